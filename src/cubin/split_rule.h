/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May this kernel run in pieces? Decided from its attributes, relocations,
 * symbols and instructions alone; whatever is not known leaves it whole. The
 * launch has a say of its own, see docs/splitting.md. Called by the splicer, and by
 * who wants to count.
 */
#ifndef HB_CUBIN_SLICE_RULE_H
#define HB_CUBIN_SLICE_RULE_H

#include "cubin/code_info.h"

/* HB_SPLIT_none and the facts, or why not. */
enum hb_split_reason hb_split_rule(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				   struct hb_code_facts *facts);

#endif
