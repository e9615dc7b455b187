/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrites a kernel's attributes for code that begins with a range check. Called by
 * splice.c only, for kernels with known attributes only.
 */
#ifndef HB_CUBIN_SPLICE_INFO_H
#define HB_CUBIN_SPLICE_INFO_H

#include "cubin/code_info.h"
#include "cubin/prologue.h"

/* Bytes added: the record of one parameter and one exit. */
#define HB_SPLICE_INFO_GROWTH 24

/* Returns the offset of the bounds among the parameters. */
static inline uint32_t hb_splice_bounds_place(const struct hb_code_facts *facts)
{
	return (facts->parameter_bytes + HB_BOUNDS_BYTES - 1) & ~(uint32_t)(HB_BOUNDS_BYTES - 1);
}

/* Writes the new attributes to `out`, which has room for the old size plus HB_SPLICE_INFO_GROWTH. Returns their size. */
size_t hb_splice_info(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
		      const struct hb_code_facts *facts, const struct hb_prologue *prologue, uint8_t *out);

#endif
