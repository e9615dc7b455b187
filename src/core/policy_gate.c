/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gate: LP launches nothing while an HP request is served; otherwise at most
 * `depth` LP launches are in flight. This is `mps_gateD` when HP and LP share
 * one MPS context.
 *
 * Idea: in a shared context HP waits for LP blocks that already run, once for
 * every kernel of a request. With LP silent from the request's begin to its end
 * HP pays that once, and the depth bounds how much LP work it can still meet.
 * Two in flight keep the GPU as full as any number does (the boundary between
 * two dependent kernels is 1.8 us with 2 in flight and no less with more).
 *
 * Example: resnet50, batch 1, 2.7 ms a request, 60 a second, beside resnet50
 * training (kernels of 12 us at the median, 273 us at p99), depth 2. A request
 * meets at most two LP kernels, mostly under 100 us together, then runs as if
 * alone. LP is shut for 60 x 2.8 ms = 17 % of the time, so it keeps at most
 * 83 % of its own speed.
 *
 * Bad at: LP throughput. An eager request leaves the GPU idle two thirds of its
 * time and LP may use none of it; at 220 requests/s little is left for LP. One
 * LP kernel of 1.4 ms in flight delays HP by all of it.
 */
#include "core/policy.h"

#define DEPTH_DEFAULT 2

static void review(struct hb_policy *policy)
{
	uint32_t depth = hb_policy_config(policy)->gate_depth;
	bool closed = hb_policy_high_wants_gpu(policy);
	hb_policy_gate_all(policy, HB_PRIORITY_LOW, closed ? HB_GATE_CLOSED : HB_GATE_OPEN,
			   depth ? depth : DEPTH_DEFAULT);
}

static void tenant_moved(struct hb_policy *policy, uint32_t tenant)
{
	review(policy);
}

/* LP's own comings and goings change nothing. */
static void activity(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant)->priority == HB_PRIORITY_HIGH)
		review(policy);
}

static void request(struct hb_policy *policy, uint32_t tenant, const struct hb_work *work)
{
	activity(policy, tenant);
}

const struct hb_policy_ops hb_policy_gate_ops = {
	.name = "gate",
	.summary = "LP launches nothing while an HP request is served",
	.tenant_added = tenant_moved,
	.tenant_removed = tenant_moved,
	.request_begun = request,
	.request_ended = request,
	.busy = activity,
	.idle = activity,
	.waiting = activity,
};
