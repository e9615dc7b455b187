/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of slice_reasons.def as numbers and words. Used by the rules, the shim and who counts for them. */
#ifndef HB_CUBIN_SLICE_REASON_H
#define HB_CUBIN_SLICE_REASON_H

enum hb_slice_reason {
#define HB_SLICE_REASON(name, text) HB_SLICE_##name,
#include "cubin/slice_reasons.def"
	HB_N_SLICE_REASONS
};

/* A word, and the end of the sentence "left whole: ...". */
const char *hb_slice_reason_name(enum hb_slice_reason reason);
const char *hb_slice_reason_text(enum hb_slice_reason reason);

#endif
