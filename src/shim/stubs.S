/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions. Each is one jump through its entry slot, so it needs no
 * signature and also works for functions with an unknown one. This file also has
 * the slots, the thunks that fill them on first use, and the forwarding thunks of
 * HB_FORWARD rows. A forwarding thunk passes the arguments to hb_shim_forward() and
 * then jumps to the driver with registers and stack unchanged, or calls the driver
 * if something must be done after the call.
 *
 * The numbers are those of enum hb_fn: both count the rows of exports.def. The
 * instructions of each architecture are in stubs_x86_64.inc and stubs_aarch64.inc.
 */
#if defined(__x86_64__)
#include "shim/stubs_x86_64.inc"
#elif defined(__aarch64__)
#include "shim/stubs_aarch64.inc"
#else
#error "the shim has entry stubs for x86-64 and aarch64 only"
#endif

	.macro exported name
	.set	.Lfn_\name, .Lfn
	.text
	.globl	\name
	.type	\name, %function
	.p2align 4
\name:
	.cfi_startproc
	jump_through_entry .Lfn
	.cfi_endproc
	.size	\name, . - \name
.Lbind_entry_\name:
	.cfi_startproc
	load_number .Lfn
	branch	bind_entry
	.cfi_endproc
.Lbind_real_\name:
	.cfi_startproc
	load_number .Lfn
	branch	bind_real
	.cfi_endproc
	.set	.Lfn, .Lfn + 1
	.endm

	.macro entry_slot name
	.quad	.Lbind_entry_\name
	.endm

	.macro real_slot name
	.quad	.Lbind_real_\name
	.endm

	.macro table name
	.globl	\name
	.hidden	\name
	.type	\name, %object
	.p2align 6
\name:
	.endm

	.macro forwarding name
	.globl	hb_forward_\name
	.hidden	hb_forward_\name
	.type	hb_forward_\name, %function
	.p2align 4
hb_forward_\name:
	.cfi_startproc
	load_number .Lfn_\name
	branch	forward
	.cfi_endproc
	.size	hb_forward_\name, . - hb_forward_\name
	.endm

	.set	.Lfn, 0
#define X(name) exported name
#include "nvidia/exports.def"
#undef X

	.data
table hb_shim_entry
#define X(name) entry_slot name
#include "nvidia/exports.def"
#undef X
table hb_shim_real
#define X(name) real_slot name
#include "nvidia/exports.def"
#undef X

	.text
#define HB_FORWARD(name, counter, duty, stream, size) forwarding name
#define HB_HOOK(name)
#include "shim/hooks.def"

	call_c_and_jump bind_entry, hb_bind_entry, 1
	call_c_and_jump bind_real, hb_bind_real, 1
	call_c_and_continue forward, hb_shim_forward

	.section .note.GNU-stack, "", %progbits
