/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reasons why a kernel is not split: the rows of split_reasons.def as numbers,
 * names and texts. Used by the rules, the shim and programs that count reasons.
 */
#ifndef HB_CUBIN_SPLIT_REASON_H
#define HB_CUBIN_SPLIT_REASON_H

enum hb_split_reason {
#define HB_SPLIT_REASON(name, text) HB_SPLIT_##name,
#include "cubin/split_reasons.def"
	HB_N_SPLIT_REASONS
};

/* Return the name of a reason, and the text that ends the sentence "not split: ...". */
const char *hb_split_reason_name(enum hb_split_reason reason);
const char *hb_split_reason_text(enum hb_split_reason reason);

#endif
