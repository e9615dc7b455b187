/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a kernel can be split, from its attributes, relocations, symbols
 * and instructions; anything unknown means no. The launch has further conditions, see
 * docs/splitting.md. Called by the splicer and by programs that count kernels.
 */
#ifndef HB_CUBIN_SPLIT_RULE_H
#define HB_CUBIN_SPLIT_RULE_H

#include "cubin/code_info.h"

/* Returns HB_SPLIT_none and fills `facts`, or returns why the kernel cannot be split. */
enum hb_split_reason hb_split_rule(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				   struct hb_code_facts *facts);

#endif
