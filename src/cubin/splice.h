/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a copy of a cubin in which every kernel that may be sliced begins with
 * the range check of prologue.h and has one parameter more, the bounds. The
 * copy is loaded beside the original, which stays as it is. Called by the shim
 * and by tests. Everything is checked before anything is written, and the copy is
 * read again as a stranger's before it is handed out.
 *
 * What changes for such a kernel: its text (the check before it), its attributes
 * (places in the code, parameters, exits), the size of its bank of parameters, its
 * symbols, and where everything behind these lies in the file. Not changed:
 * debugging information, which tells places in the old code.
 */
#ifndef HB_CUBIN_SPLICE_H
#define HB_CUBIN_SPLICE_H

#include "cubin/elf_cubin.h"
#include "cubin/prologue.h"
#include "cubin/split_reason.h"

struct hb_splice {
	uint8_t *bytes; /* the new cubin; NULL when no kernel can be sliced */
	size_t size;
	uint32_t n_kernels, n_sliced;
	struct hb_spliced_kernel {
		enum hb_split_reason reason; /* HB_SPLIT_none: sliced */
		uint32_t n_parameters;       /* of the original; the bounds are the next one */
		uint32_t parameter_bytes;    /* of the original */
		uint32_t bounds_place;       /* among the parameters */
	} * kernels;                         /* in the order of cubin->kernels */
};

/* 0; -EINVAL: the cubin is laid out in a way that cannot be extended; -ENOMEM. */
int hb_splice(const struct hb_cubin *cubin, const struct hb_prologue *prologue, struct hb_splice *splice);
void hb_splice_free(struct hb_splice *splice);

#endif
