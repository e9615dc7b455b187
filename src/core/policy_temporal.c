/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporal: HP and LP have separate contexts, and the hardware switches between
 * them. This policy sets the time slices: when tenants are added, changed or removed,
 * when the slack that LP may use has changed, and when LP falls below its minimum or
 * reaches it; never during a launch. Foresight, which hides the context switch from HP, is
 * decided in HP's processes (decide/process_foresight.h).
 *
 * Idea. A context with the smallest slice loses the GPU as soon as another one has
 * work; a context with a long slice keeps the GPU until it has no work. So with LP at
 * the smallest slice and HP at a long one, HP waits for one context switch (190 us)
 * and, without slack (below), not for LP's work. (Graphs of 2 to 3 ms take longer than that
 * explains, see "Where the temporal engine loses" in docs/evaluation.md.) LP loses nothing while no other tenant has work.
 *
 * Several LP tenants. Two contexts with tiny slices stop each other, so at most one
 * may have work: either all LP tenants share one MPS context (low_shared), or they
 * take turns through their gates (turns.c). In one MPS context they take turns only if
 * their weights differ. copy_slices.c sets the slices of their copies.
 *
 * Several HP tenants. When a tenant's slice ends during its request, LP gets the GPU
 * for a moment as well, which costs two switches. So all HP tenants have slices that are
 * long enough for most requests (high_uncut_slice), unless the strictest SLO leaves time
 * for a round: one slice for each HP tenant, together about half of that SLO. Slices of
 * a round are in proportion to 1 / SLO, because a tenant waits for the slices of the others,
 * and at least 1 ms (five switches), so a round can be a little longer. There is none if
 * a tenant has no SLO, or if there is no room for 1 ms each. Example: A with 10 ms and B with
 * 40 ms: the round is 5 ms, A gets 4 ms, B 1 ms. A waits at most 1 ms for B, and B at most
 * 4 of its 40 ms for A.
 *
 * An objective with slack (slo_slices.h): beside one HP tenant whose objective leaves
 * slack, LP's slice is as long as the slack allows, and HP's as long as a request.
 *
 * A guaranteed minimum of LP (low_minimum.h): while LP falls below it, LP has slices of
 * up to 2 ms, and HP's compute slices are so short that LP gets its share.
 *
 * Bad at: (1) gaps inside a request, which LP can use only if there is slack: an eager
 * resnet50 leaves two thirds of its request time unused; (2) LP's latency when LP tenants take
 * turns, which last 50 ms.
 */
#include "core/low_minimum.h"
#include "core/policy.h"
#include "core/slo_slices.h"
#include "decide/defaults.h"

/* The policy's timer without a tenant. */
#define TIMER_MINIMUM 0
#define SLICE_LEAST_NS INT64_C(1000000)

static int start_turns(struct hb_policy *policy)
{
	hb_policy_share_low(policy, hb_policy_config(policy)->low_shared);
	return 0;
}

/* --- slices --- */

/* Finds the strictest SLO, and the sum of urgencies in ppm of the urgency of that tenant. False = there can be no round. */
static bool sum_urgency(const struct hb_policy *policy, int64_t *strictest_ns, int64_t *urgency_ppm)
{
	uint32_t id = HB_TENANT_NONE;
	int64_t least_ns = HB_TIME_NEVER, shortest_round_ns = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		int64_t slo_ns = hb_policy_tenant(policy, id)->slo_ns;
		if (!slo_ns)
			return false;
		if (slo_ns < least_ns)
			least_ns = slo_ns;
		shortest_round_ns += SLICE_LEAST_NS;
	}
	*strictest_ns = least_ns;
	*urgency_ppm = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE)
		*urgency_ppm += (int64_t)((__int128)least_ns * 1000000 / hb_policy_tenant(policy, id)->slo_ns);
	return shortest_round_ns <= least_ns / 2;
}

static int64_t at_most(int64_t slice_ns, int64_t most_ns)
{
	return slice_ns < most_ns ? slice_ns : most_ns;
}

static int64_t slice_of_round_ns(int64_t slo_ns, int64_t strictest_ns, int64_t urgency_ppm)
{
	int64_t own_ppm = (int64_t)((__int128)strictest_ns * 1000000 / slo_ns);
	int64_t slice_ns = (int64_t)((__int128)strictest_ns / 2 * own_ppm / urgency_ppm);
	return slice_ns < SLICE_LEAST_NS ? SLICE_LEAST_NS : slice_ns;
}

/* `most_ns` limits the slices of kernels, but not those of copies. */
static void set_high_slices(struct hb_policy *policy, int64_t most_ns)
{
	int64_t longest_ns = hb_policy_config(policy)->high_slice_ns;
	int64_t strictest_ns = 0, urgency_ppm = 0;
	uint32_t first = hb_policy_next(policy, HB_PRIORITY_HIGH, HB_TENANT_NONE);
	if (first == HB_TENANT_NONE)
		return;
	bool single = hb_policy_next(policy, HB_PRIORITY_HIGH, first) == HB_TENANT_NONE;
	bool round = sum_urgency(policy, &strictest_ns, &urgency_ppm);
	for (uint32_t id = first; id != HB_TENANT_NONE; id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) {
		int64_t kernels_ns = HB_DEFAULT_HIGH_UNCUT_SLICE_NS, copies_ns = HB_DEFAULT_DRIVER_COPY_SLICE_NS;
		if (single)
			kernels_ns = copies_ns = longest_ns;
		else if (round)
			kernels_ns = copies_ns = slice_of_round_ns(hb_policy_tenant(policy, id)->slo_ns, strictest_ns,
								   urgency_ppm);
		kernels_ns = at_most(kernels_ns, longest_ns);
		hb_policy_slice(policy, id, at_most(kernels_ns, most_ns), at_most(copies_ns, longest_ns));
	}
}

static int64_t strictest_slo_ns(const struct hb_policy *policy, uint32_t *n_high)
{
	int64_t least_ns = 0;
	uint32_t id = HB_TENANT_NONE;
	*n_high = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		int64_t slo_ns = hb_policy_tenant(policy, id)->slo_ns;
		if (slo_ns && (!least_ns || slo_ns < least_ns))
			least_ns = slo_ns;
		++*n_high;
	}
	return least_ns;
}

/* State of an HP tenant. */
struct high_state {
	struct hb_low_minimum_high minimum;
	struct hb_slo_slices slack;
};

/* An objective that the core learned is the p99 alone and has no slack to give away. */
static int64_t objective_with_slack_ns(const struct hb_tenant *tenant)
{
	return tenant->slo_auto ? 0 : tenant->slo_ns;
}

/* The slices that use the slack of the only HP tenant. False: there is none, or there are several HP tenants. */
static bool use_slack(struct hb_policy *policy, struct hb_low_minimum_slices *slices)
{
	uint32_t high = hb_policy_next(policy, HB_PRIORITY_HIGH, HB_TENANT_NONE);
	if (high == HB_TENANT_NONE || hb_policy_next(policy, HB_PRIORITY_HIGH, high) != HB_TENANT_NONE)
		return false;
	const struct high_state *state = hb_policy_tenant_state(policy, high);
	int64_t low_ns, high_ns;
	if (!hb_slo_slices_get(&state->slack, objective_with_slack_ns(hb_policy_tenant(policy, high)),
			       hb_policy_config(policy)->switch_ns, &low_ns, &high_ns))
		return false;
	slices->low_ns = low_ns;
	slices->high_ns = high_ns;
	return true;
}

static void set_slices(struct hb_policy *policy)
{
	const struct hb_core_config *config = hb_policy_config(policy);
	const struct hb_low_minimum *minimum = hb_policy_state(policy);
	struct hb_low_minimum_slices slices = {.low_ns = config->low_slice_ns, .high_ns = HB_SLICE_MAX_NS};
	uint32_t n_high;
	int64_t slo_ns = strictest_slo_ns(policy, &n_high);
	if (minimum->active && n_high)
		hb_low_minimum_slices(config->low_minimum_ppm, n_high, slo_ns, config->switch_ns, &slices);
	else
		use_slack(policy, &slices);
	hb_policy_slice_low(policy, slices.low_ns);
	set_high_slices(policy, slices.high_ns);
}

/* --- the minimum of LP --- */

/* Counts while there are tenants of both priorities. */
static void watch_minimum(struct hb_policy *policy)
{
	struct hb_low_minimum *minimum = hb_policy_state(policy);
	bool both = hb_policy_next(policy, HB_PRIORITY_LOW, HB_TENANT_NONE) != HB_TENANT_NONE &&
		    hb_policy_next(policy, HB_PRIORITY_HIGH, HB_TENANT_NONE) != HB_TENANT_NONE;
	int64_t now_ns = hb_policy_now_ns(policy), next_ns = minimum->counted_ns + HB_DEFAULT_LOW_MINIMUM_EVERY_NS;
	if (!both || !hb_policy_config(policy)->low_minimum_ppm) {
		hb_policy_cancel(policy, HB_TENANT_NONE, TIMER_MINIMUM);
		minimum->active = false;
		return;
	}
	if (next_ns <= now_ns) {
		minimum->counted_ns = now_ns;
		next_ns = now_ns + HB_DEFAULT_LOW_MINIMUM_EVERY_NS;
	}
	hb_policy_timer(policy, HB_TENANT_NONE, TIMER_MINIMUM, next_ns);
}

static struct hb_low_minimum_high *high_of(struct hb_policy *policy, uint32_t tenant)
{
	return &((struct high_state *)hb_policy_tenant_state(policy, tenant))->minimum;
}

static void count_minimum(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	bool changed = hb_low_minimum_count(policy, hb_policy_state(policy), high_of);
	watch_minimum(policy);
	if (changed)
		set_slices(policy);
}

static void note_request(struct hb_policy *policy, uint32_t tenant, const struct hb_request *request)
{
	struct high_state *state = hb_policy_tenant_state(policy, tenant);
	if (hb_policy_tenant(policy, tenant)->priority != HB_PRIORITY_HIGH)
		return;
	hb_low_minimum_request(&state->minimum, request);
	if (hb_slo_slices_note(&state->slack, objective_with_slack_ns(hb_policy_tenant(policy, tenant)), request))
		set_slices(policy);
}

static void note_tenants(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_share_low(policy, hb_policy_config(policy)->low_shared);
	watch_minimum(policy);
	set_slices(policy);
}

static void dump_minimum(const struct hb_policy *policy, FILE *out)
{
	const struct hb_low_minimum *minimum = hb_policy_state(policy);
	if (hb_policy_config(policy)->low_minimum_ppm)
		fprintf(out, "low minimum %s balance=%lldns\n", minimum->active ? "active" : "at rest",
			(long long)minimum->balance_ns);
}

const struct hb_policy_ops hb_policy_temporal_ops = {
	.name = "temporal",
	.summary = "time slices: LP's the smallest, HP's long",
	.high_by_requests = true,
	.init = start_turns,
	.state_bytes = sizeof(struct hb_low_minimum),
	.tenant_bytes = sizeof(struct high_state),
	.tenant_added = note_tenants,
	.tenant_changed = note_tenants,
	.tenant_removed = note_tenants,
	.request_ended = note_request,
	.timer = count_minimum,
	.dump = dump_minimum,
};
