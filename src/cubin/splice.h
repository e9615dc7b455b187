/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates a copy of a cubin in which every kernel that can be split begins with the
 * range check of prologue.h and has one more parameter, the bounds. The copy is
 * loaded in addition to the original, which does not change. Called by the shim and
 * by tests. Everything is checked before anything is written, and the copy is parsed
 * and checked again before it is returned.
 *
 * These change for such a kernel: its text (the check is put before it), its
 * attributes (positions, parameters, exits), the size of its parameter bank, its
 * symbols, and the position in the file of all that follows. Debugging information
 * does not change, so it refers to positions in the original code.
 */
#ifndef HB_CUBIN_SPLICE_H
#define HB_CUBIN_SPLICE_H

#include "cubin/elf_cubin.h"
#include "cubin/prologue.h"
#include "cubin/split_reason.h"

struct hb_splice {
	uint8_t *bytes; /* the new cubin; NULL if no kernel can be split */
	size_t size;
	uint32_t n_kernels, n_split;
	struct hb_spliced_kernel {
		enum hb_split_reason reason; /* HB_SPLIT_none: the kernel can be split */
		uint32_t n_parameters;    /* number of parameters of the original kernel; the bounds are the next one */
		uint32_t parameter_bytes; /* size of the original kernel's parameters */
		uint32_t bounds_place;    /* offset of the bounds among the parameters */
	} * kernels;                      /* one entry for each of cubin->kernels, in the same order */
};

/* Returns 0, -EINVAL (the layout of the cubin cannot be extended), or -ENOMEM. */
int hb_splice(const struct hb_cubin *cubin, const struct hb_prologue *prologue, struct hb_splice *splice);
void hb_splice_free(struct hb_splice *splice);

#endif
