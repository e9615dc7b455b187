/* SPDX-License-Identifier: Apache-2.0 */
/* The guaranteed minimum of LP; see low_minimum.h. Called by policy_temporal.c and the daemon's status. */
#include "core/low_minimum.h"

#include "base/hist.h"
#include "core/core_priv.h"
#include "decide/defaults.h"

#define PPM INT64_C(1000000)
/* A request without company is needed so often before its percentile is used instead of its typical time. */
#define SAMPLES_LEAST 100

static int64_t strictest_part(int64_t slo_ns)
{
	int64_t low_ns = slo_ns ? slo_ns / HB_DEFAULT_LOW_TURN_SLO_PARTS : HB_DEFAULT_LOW_TURN_NS;
	if (low_ns < HB_DEFAULT_LOW_TURN_LEAST_NS)
		low_ns = HB_DEFAULT_LOW_TURN_LEAST_NS;
	return low_ns < HB_DEFAULT_LOW_TURN_NS ? low_ns : HB_DEFAULT_LOW_TURN_NS;
}

void hb_low_minimum_slices(int64_t minimum_ppm, uint32_t n_high, int64_t slo_ns, int64_t switch_ns,
			   struct hb_low_minimum_slices *slices)
{
	int64_t n = n_high, switches_ns = (n + 1) * switch_ns, low_ns = strictest_part(slo_ns);
	int64_t high_ns = (low_ns * (PPM - minimum_ppm) / minimum_ppm - switches_ns) / n;
	if (high_ns < HB_DEFAULT_HIGH_TURN_LEAST_NS) {
		high_ns = HB_DEFAULT_HIGH_TURN_LEAST_NS;
		low_ns = (n * high_ns + switches_ns) * minimum_ppm / (PPM - minimum_ppm);
	}
	*slices = (struct hb_low_minimum_slices){
		.low_ns = low_ns,
		.high_ns = high_ns,
		.high_ppm = (uint32_t)(n * high_ns * PPM / (low_ns + n * high_ns + switches_ns)),
	};
}

int64_t hb_low_minimum_latency_ns(const struct hb_low_minimum_slices *slices, uint32_t n_high, int64_t alone_ns,
				  int64_t switch_ns)
{
	int64_t others_ns = (int64_t)(n_high - 1) * (slices->high_ns + switch_ns);
	int64_t round_ns = slices->low_ns + 2 * switch_ns + others_ns;
	return alone_ns + round_ns - switch_ns + alone_ns / slices->high_ns * round_ns;
}

/* --- the balance -------------------------------------------------------------------------- */

/* Requests are reported in the order of their ends, and only when they have ended. */
void hb_low_minimum_request(struct hb_low_minimum_high *high, const struct hb_request *request)
{
	int64_t begin_ns = request->begin_ns > high->covered_ns ? request->begin_ns : high->covered_ns;
	if (request->end_ns <= begin_ns)
		return;
	high->present_ns += request->end_ns - begin_ns;
	high->covered_ns = request->end_ns;
}

/* A tenant that has work but ended no request has one that is longer than the interval. */
static int64_t take_present_ns(struct hb_low_minimum_high *high, bool busy, int64_t now_ns, int64_t interval_ns)
{
	if (!high->present_ns && busy) {
		high->covered_ns = now_ns;
		return interval_ns;
	}
	int64_t taken_ns = high->present_ns < interval_ns ? high->present_ns : interval_ns;
	high->present_ns -= taken_ns;
	return taken_ns;
}

/* Returns the time that LP's work since the last interval takes alone; 0 = the owner does not report it. */
static int64_t take_progress_ns(const struct hb_policy *policy, struct hb_low_minimum *minimum)
{
	uint64_t sum_ns = 0, before_ns = minimum->work_ns;
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE)
		sum_ns += hb_policy_tenant(policy, id)->counters.work_time;
	minimum->work_ns = sum_ns;
	return sum_ns > before_ns ? (int64_t)(sum_ns - before_ns) : 0;
}

static bool low_wants_gpu(const struct hb_policy *policy)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE)
		if (hb_tenant_wants_gpu(hb_policy_tenant(policy, id)))
			return true;
	return false;
}

bool hb_low_minimum_count(struct hb_policy *policy, struct hb_low_minimum *minimum,
			  struct hb_low_minimum_high *(*high_of)(struct hb_policy *policy, uint32_t tenant))
{
	int64_t minimum_ppm = hb_policy_config(policy)->low_minimum_ppm, now_ns = hb_policy_now_ns(policy);
	int64_t interval_ns = now_ns - minimum->counted_ns, free_ns = interval_ns;
	int64_t most_ns = HB_DEFAULT_LOW_MINIMUM_WINDOW_NS * minimum_ppm / PPM;
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE)
		free_ns -= take_present_ns(high_of(policy, id), hb_policy_tenant(policy, id)->busy, now_ns,
					   interval_ns);
	int64_t due_ns = low_wants_gpu(policy) ? interval_ns * minimum_ppm / PPM : 0;
	int64_t had_ns = take_progress_ns(policy, minimum);
	if (minimum->active && !had_ns)
		had_ns = due_ns;
	if (had_ns < free_ns)
		had_ns = free_ns;
	minimum->counted_ns = now_ns;
	minimum->balance_ns += (had_ns < interval_ns ? had_ns : interval_ns) - due_ns;
	if (minimum->balance_ns > most_ns)
		minimum->balance_ns = most_ns;
	if (minimum->balance_ns < -most_ns)
		minimum->balance_ns = -most_ns;
	bool before = minimum->active;
	/* The margin keeps the slices from changing with each interval. */
	minimum->active = minimum->balance_ns < (before ? most_ns / 4 : 0);
	return minimum->active != before;
}

/* --- for messages ------------------------------------------------------------------------ */

static int64_t strictest_slo_ns(const struct hb_core *core)
{
	int64_t least_ns = 0;
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		int64_t slo_ns = core->slots[id].tenant.slo_ns;
		if (slo_ns && (!least_ns || slo_ns < least_ns))
			least_ns = slo_ns;
	}
	return least_ns;
}

void hb_low_minimum_look(const struct hb_core *core, uint32_t tenant, struct hb_low_minimum_view *view)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	*view = (struct hb_low_minimum_view){.applies = false};
	if (!slot || slot->tenant.priority != HB_PRIORITY_HIGH || !core->config.low_minimum_ppm)
		return;
	const struct hb_tenant *high = &slot->tenant;
	hb_low_minimum_slices(core->config.low_minimum_ppm, core->n_high, strictest_slo_ns(core),
			      core->config.switch_ns, &view->slices);
	view->alone_ns = high->alone_ns;
	if (high->latency_alone && high->latency_alone->count >= SAMPLES_LEAST)
		view->alone_ns = hb_hist_percentile(high->latency_alone, (double)high->slo_share_ppm / (double)PPM);
	view->applies = high->slo_ns && view->alone_ns;
	view->latency_ns = hb_low_minimum_latency_ns(&view->slices, core->n_high, view->alone_ns,
						     core->config.switch_ns);
	view->kept = !view->applies || view->latency_ns <= high->slo_ns;
}
