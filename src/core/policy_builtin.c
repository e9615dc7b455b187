/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in policy: every gate open, every slice the GPU's own, nobody held
 * or masked. It is what the core falls back to when another policy is ejected,
 * so it can do nothing wrong: it does nothing.
 *
 * Idea: the GPU's own arbitration (time slices between contexts, block
 * scheduler inside one) is always there and always makes progress.
 *
 * Example: an HP kernel of 20 us beside an LP process in a context of its own,
 * both with the default slice of 2 ms, waits for the rest of LP's slice: 1.3 ms
 * at the median, 2.3 ms at p99 on an H200.
 *
 * Bad at: latency. It is the baseline (`timeslice`, `mps`), not a choice.
 */
#include "core/policy.h"

const struct hb_policy_ops hb_policy_builtin_ops = {
	.name = "builtin",
	.summary = "everything open: the GPU decides",
};
