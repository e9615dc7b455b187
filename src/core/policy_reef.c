/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REEF-like: HP and LP never have work on the GPU at one time. LP is blocked
 * while HP has work, and HP's first launch waits for the LP kernels that are
 * running. After REEF (Han et al., OSDI 2022), whose reset of running kernels
 * exists on no NVIDIA GPU; this is what its re-creations on NVIDIA do: a short
 * device queue for LP, and waiting for what is in it.
 *
 * Idea: HP runs exactly as if alone once it runs, in any kind of context,
 * because nothing is beside it.
 *
 * Example: depth 2, LP kernels of 100 us. A request begins while one runs and
 * one is queued: LP is closed, 150 us later (on average) it has drained, HP's
 * gate opens. HP's p50 is alone + 150 us, its worst case alone + 200 us.
 *
 * Bad at: long LP kernels (1.4 ms each: HP waits up to 2.8 ms), and LP
 * throughput, for the same reason as `gate`. Two HP tenants are not kept apart
 * from each other.
 */
#include "core/policy.h"

#define DEPTH_DEFAULT 2

struct state {
	bool serving; /* HP may launch; stays so until HP has no work left */
};

static void review(struct hb_policy *policy)
{
	struct state *state = hb_policy_state(policy);
	uint32_t depth = hb_policy_config(policy)->gate_depth;
	bool wanted = hb_policy_high_wants_gpu(policy);

	if (wanted)
		hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_CLOSED, 0);
	state->serving = wanted && (state->serving || !hb_policy_low_undrained(policy));
	hb_policy_gate_all(policy, HB_PRIORITY_HIGH, state->serving ? HB_GATE_OPEN : HB_GATE_CLOSED, 0);
	if (!wanted)
		hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_OPEN, depth ? depth : DEPTH_DEFAULT);
}

static void any_change(struct hb_policy *policy, uint32_t tenant)
{
	review(policy);
}

static void request(struct hb_policy *policy, uint32_t tenant, const struct hb_work *work)
{
	review(policy);
}

static void dump(const struct hb_policy *policy, FILE *out)
{
	const struct state *state = hb_policy_state(policy);
	fprintf(out, "reef %s\n", state->serving ? "serving HP" : "not serving HP");
}

const struct hb_policy_ops hb_policy_reef_ops = {
	.name = "reef",
	.summary = "LP blocked while HP has work; HP waits for the running LP kernels",
	.state_bytes = sizeof(struct state),
	.tenant_added = any_change,
	.tenant_removed = any_change,
	.request_begun = request,
	.request_ended = request,
	.busy = any_change,
	.idle = any_change,
	.waiting = any_change,
	.drained = any_change,
	.dump = dump,
};
