/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One recording function per row of exports.def, weak, so that fake_driver.c
 * can give any of them a body. Uses the shim's own instruction macros.
 */
#if defined(__x86_64__)
#include "shim/stubs_x86_64.inc"
#elif defined(__aarch64__)
#include "shim/stubs_aarch64.inc"
#endif

	.macro recording name
	.weak	\name
	.type	\name, %function
\name:
	load_number .Lfn
	branch	record
	.size	\name, . - \name
	.set	.Lfn, .Lfn + 1
	.endm

	.text
	.set	.Lfn, 0
#define X(name) recording name
#include "nvidia/exports.def"

	call_c_and_jump record, hb_fake_record, 1

	.section .note.GNU-stack, "", %progbits
