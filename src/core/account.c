/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ended requests: latency, attainment, misses by cause, and SLOs learned from the
 * latency alone. Called by core_post.c; the results are in tenant.h.
 *
 * A request ran alone if no other tenant had work on the GPU between its begin and
 * its end. Queueing behind the tenant's own requests belongs to the latency alone,
 * because a service queues on a GPU of its own as well. It does not belong to
 * alone_ns, the time of a request from the moment when it is served.
 */
#include "base/hist.h"
#include "core/core_priv.h"

#include <errno.h>

/* The policy suspects LP if tokens took this many times the SLO more than their share. */
#define SUSPECT_DEBT_SLOS 3
#define PPM 1000000
/* Requests alone before an SLO is learned, and between two updates: enough to contain a p99. */
#define LEARN_SAMPLES 100
/* alone_ns is a moving average that forgets within about eight requests. */
#define ALONE_SHIFT 3
/* Longest latency that is learned. */
#define ALONE_MAX_NS (INT64_C(1) << 40)

/* Whether another tenant of a priority had work at or after since_ns. */
static bool others_worked(const struct hb_core *core, enum hb_priority priority, uint32_t tenant, int64_t since_ns)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, priority, id)) != HB_TENANT_NONE) {
		const struct hb_tenant *other = &core->slots[id].tenant;
		if (id != tenant && (other->busy || other->idle_since_ns > since_ns))
			return true;
	}
	return false;
}

/* Priorities of the other tenants that had work during a request. */
struct company {
	bool high, low;
};

static struct company company_of(const struct hb_core *core, uint32_t tenant, int64_t since_ns)
{
	return (struct company){
		.high = others_worked(core, HB_PRIORITY_HIGH, tenant, since_ns),
		/* The priority of tenants that have left is not known any more; most of them are LP. */
		.low = core->departed_idle_ns > since_ns || others_worked(core, HB_PRIORITY_LOW, tenant, since_ns),
	};
}

/* A miss by no more than a switch is blamed on the switch if HP has its own time slice and no takeover hid the switch. */
static bool is_switch_to_blame(const struct hb_core *core, const struct hb_tenant *tenant,
			       const struct hb_request *request, bool hidden)
{
	int64_t late_ns = request->end_ns - request->deadline_ns;
	return tenant->slice_compute_ns && !hidden && late_ns <= core->config.switch_ns;
}

static void judge_request(const struct hb_core *core, struct hb_tenant *tenant, const struct hb_request *request,
			  struct company company, bool hidden)
{
	struct hb_tenant_counters *counters = &tenant->counters;
	if (request->deadline_ns == HB_TIME_NEVER)
		return;
	counters->requests_judged++;
	if (request->end_ns <= request->deadline_ns)
		counters->requests_met++;
	else if (request->queued)
		counters->missed_queue++;
	else if (company.high)
		counters->missed_high++;
	else if (!company.low)
		counters->missed_alone++;
	else if (is_switch_to_blame(core, tenant, request, hidden))
		counters->missed_switch++;
	else
		counters->missed_low++;
}

/* Learns from a request alone. True if the SLO has changed. */
static bool learn_latency(struct hb_core *core, struct hb_slot *slot, int64_t latency_ns, bool queued)
{
	struct hb_tenant *tenant = &slot->tenant;
	if (latency_ns > ALONE_MAX_NS)
		latency_ns = ALONE_MAX_NS;
	if (!queued && !tenant->alone_ns)
		tenant->alone_ns = latency_ns;
	else if (!queued)
		tenant->alone_ns += (latency_ns - tenant->alone_ns) / (1 << ALONE_SHIFT);
	if (slot->hist == HB_HIST_NONE)
		return false;
	struct hb_hist *alone = &core->hists[2 * slot->hist + 1];
	hb_hist_record(alone, latency_ns);
	if (!tenant->slo_auto || alone->count % LEARN_SAMPLES)
		return false;
	int64_t slo_ns = hb_hist_percentile(alone, (double)tenant->slo_share_ppm / PPM);
	bool changed = slo_ns != tenant->slo_ns;
	tenant->slo_ns = slo_ns;
	return changed;
}

/* Counts the request. True if the SLO has changed. */
static bool count_request(struct hb_core *core, struct hb_slot *slot, const struct hb_request *request, bool hidden)
{
	int64_t latency_ns = request->end_ns - request->begin_ns;
	struct company company = company_of(core, slot->tenant.id, request->begin_ns);
	slot->tenant.counters.requests_ended++;
	judge_request(core, &slot->tenant, request, company, hidden);
	if (slot->hist != HB_HIST_NONE)
		hb_hist_record(&core->hists[2 * slot->hist], latency_ns);
	if (company.high || company.low)
		return false;
	slot->tenant.counters.requests_alone++;
	return learn_latency(core, slot, latency_ns, request->queued);
}

/* Only the request that ended last is compared. A request that began after it but ended before it is not noticed. */
static bool was_queued(const struct hb_slot *slot, int64_t begin_ns)
{
	return slot->past_begin_ns < begin_ns && slot->past_end_ns > begin_ns;
}

static bool is_request_valid(const struct hb_core *core, const struct hb_event *event)
{
	return event->request_past.begin_ns >= 0 && event->request_past.begin_ns <= event->request_past.end_ns &&
	       event->request_past.end_ns <= core->now_ns && event->request_past.deadline_ns >= 0 &&
	       event->request_past.deadline_ns < HB_TIME_LIMIT_NS && event->request_past.harm_ns >= 0 &&
	       event->request_past.harm_ns < HB_TIME_LIMIT_NS && event->request_past.kind < HB_REQUEST_KINDS;
}

/* An objective applies to the pace of tokens; one that was learned from single requests does not. */
static void set_deadline(struct hb_slot *slot, struct hb_request *request)
{
	int64_t slo_ns = slot->tenant.slo_ns;
	struct hb_token_times times = {.took_ns = request->took_ns, .excess_ns = request->harm_ns};
	request->deadline_ns = slo_ns ? request->begin_ns + slo_ns : HB_TIME_NEVER;
	enum hb_pace pace = hb_token_pace_note(&slot->pace, slo_ns, request->begin_ns, request->end_ns, &times);
	request->paced = slot->tenant.paced = pace != HB_PACE_NONE && slo_ns && !slot->tenant.slo_auto;
	if (!request->paced)
		return;
	request->credit_open = slot->pace.credit.is_open;
	request->overdrawn = slot->pace.credit.credit_ns < -SUSPECT_DEBT_SLOS * slo_ns;
	request->took_ns = times.took_ns;
	request->harm_ns = times.excess_ns;
	request->deadline_ns = pace == HB_PACE_WINDOW ? request->end_ns + slo_ns - times.took_ns : HB_TIME_NEVER;
}

int hb_account_request(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event,
		       struct hb_request *request, bool *learned)
{
	if (!is_request_valid(core, event))
		return -EINVAL;
	*request = (struct hb_request){
		.begin_ns = event->request_past.begin_ns,
		.end_ns = event->request_past.end_ns,
		.deadline_ns = event->request_past.deadline_ns,
		.queued = was_queued(slot, event->request_past.begin_ns),
		.measured = event->request_past.measured,
		.harm_ns = event->request_past.harm_ns,
		.kind = event->request_past.kind,
	};
	request->took_ns = request->end_ns - request->begin_ns;
	if (!request->deadline_ns)
		set_deadline(slot, request);
	slot->tenant.counters.requests_lost += event->request_past.lost;
	if (request->end_ns >= slot->past_end_ns) {
		slot->past_begin_ns = request->begin_ns;
		slot->past_end_ns = request->end_ns;
	}
	*learned = count_request(core, slot, request, event->request_past.held);
	return 0;
}

uint32_t hb_tenant_attainment_ppm(const struct hb_tenant *tenant)
{
	const struct hb_tenant_counters *counters = &tenant->counters;
	if (!counters->requests_judged)
		return PPM;
	return (uint32_t)(counters->requests_met * PPM / counters->requests_judged);
}
