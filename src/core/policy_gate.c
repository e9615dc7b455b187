/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gate: LP launches nothing while HP is at work. At other times each LP tenant has
 * at most `depth` launches in flight. With HP and LP in one MPS context this is the
 * mode `mps_gateD` of the simulator.
 *
 * Idea: in a shared context HP waits for LP blocks that already run, once for every
 * kernel of a request. If LP is silent during the whole request, HP waits for LP only
 * once, and the depth bounds how much LP work HP can still meet. Two launches in
 * flight keep the GPU as full as any number does (the boundary between two dependent
 * kernels is 1.8 us with 2 in flight and no less with more).
 *
 * Example: resnet50, batch 1, 2.7 ms per request, 60 requests a second, beside
 * resnet50 training (kernels of 12 us at the median, 273 us at p99), depth 2. A
 * request meets at most two LP kernels, mostly under 100 us together, then runs as if
 * alone. LP's gate is closed for 60 x 2.8 ms = 17 % of the time, so LP keeps at most
 * 83 % of its own speed.
 *
 * Bad at: LP throughput. An eager request leaves the GPU idle for two thirds of its
 * time, and LP may use none of it; at 220 requests/s little is left for LP. One LP
 * kernel of 1.4 ms in flight delays HP by all of it. In the daemon: a gate closes when
 * the daemon sees HP's launches, up to 2 ms late.
 */
#include "core/policy.h"

#define DEPTH_DEFAULT 2

static void set_low_gates(struct hb_policy *policy)
{
	uint32_t depth = hb_policy_config(policy)->gate_depth;
	bool closed = hb_policy_high_wants_gpu(policy);
	hb_policy_gate_all(policy, HB_PRIORITY_LOW, closed ? HB_GATE_CLOSED : HB_GATE_OPEN,
			   depth ? depth : DEPTH_DEFAULT);
}

static void note_tenant(struct hb_policy *policy, uint32_t tenant)
{
	set_low_gates(policy);
}

/* LP's own activity changes nothing. */
static void note_activity(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant)->priority == HB_PRIORITY_HIGH)
		set_low_gates(policy);
}

const struct hb_policy_ops hb_policy_gate_ops = {
	.name = "gate",
	.summary = "LP launches nothing while HP is at work",
	.tenant_added = note_tenant,
	.tenant_removed = note_tenant,
	.busy = note_activity,
	.idle = note_activity,
	.waiting = note_activity,
};
