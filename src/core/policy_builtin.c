/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in policy: every gate is open and nothing is set. The core falls back
 * to this policy when it ejects another one.
 *
 * Idea: the GPU's own arbitration (time slices between contexts, block scheduler
 * inside one) is always there and always makes progress.
 *
 * Example: an HP kernel of 20 us beside an LP process in a context of its own, both
 * with the default slice of 2 ms, waits for the rest of LP's slice: 1.3 ms at the
 * median, 2.3 ms at p99 on an H200.
 *
 * Bad at: latency. It is a baseline (`timeslice`, `mps`).
 */
#include "core/policy.h"

const struct hb_policy_ops hb_policy_builtin_ops = {
	.name = "builtin",
	.summary = "every gate open: the GPU decides",
};
