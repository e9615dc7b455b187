/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks of kernels that the spatial engine must treat differently from others;
 * see kernel_marks.c, which sets the marks in hooks.
 */
#ifndef HB_SHIM_KERNEL_MARKS_H
#define HB_SHIM_KERNEL_MARKS_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>

enum hb_kernel_mark {
	HB_MARK_COLLECTIVE, /* belongs to a collective operation: must never wait */
	HB_MARK_WIDE,       /* may use clusters that do not fit beside a mask: must not be masked */
	HB_N_KERNEL_MARKS
};

/* Called at launches, without a lock. `kernel` is a CUfunction or a CUkernel. */
bool hb_kernel_is_marked(enum hb_kernel_mark mark, const void *kernel);

/* Before a module or library is unloaded. */
void hb_kernel_marks_forget_code(const void *code);
/* After a context was destroyed. */
void hb_kernel_marks_forget_context(CUcontext context);
/* The driver returned `function` for `kernel`; the function gets the kernel's marks. */
void hb_kernel_marks_note_function(CUfunction function, CUkernel kernel);

#endif
