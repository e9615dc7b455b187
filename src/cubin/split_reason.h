/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of split_reasons.def as numbers and words. Used by the rules, the shim and who counts for them. */
#ifndef HB_CUBIN_SLICE_REASON_H
#define HB_CUBIN_SLICE_REASON_H

enum hb_split_reason {
#define HB_SPLIT_REASON(name, text) HB_SPLIT_##name,
#include "cubin/split_reasons.def"
	HB_N_SPLIT_REASONS
};

/* A word, and the end of the sentence "left whole: ...". */
const char *hb_split_reason_name(enum hb_split_reason reason);
const char *hb_split_reason_text(enum hb_split_reason reason);

#endif
