/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: latency, attainment, misses by cause, slack, and SLOs learned from
 * the latency alone. Called by core_post.c; read through tenant.h.
 *
 * "Alone" means that no other tenant had work on the GPU at any time between
 * the request's begin and end. Queueing behind the tenant's own requests
 * belongs to the latency alone (it is what the owner of an SLO would see on a
 * GPU of his own), but not to alone_ns, which predicts how long a request takes
 * once it is its turn.
 */
#include "base/hist.h"
#include "core/core_priv.h"

#include <errno.h>

#define PPM 1000000
/* Samples before an SLO is learned, and between two refreshes: enough for a p99 to be one of them. */
#define LEARN_SAMPLES 100
/* alone_ns is a moving average that forgets within about eight requests. */
#define ALONE_SHIFT 3
/* Keeps the sums of slack within 64 bits. */
#define ALONE_MAX_NS (INT64_C(1) << 40)

int hb_account_begin(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t deadline_ns)
{
	if (deadline_ns < 0 || deadline_ns >= HB_TIME_LIMIT_NS)
		return -EINVAL;
	/* Ids mostly ascend; only others can be in the list. */
	if (slot->requests.count && request <= slot->highest_request &&
	    hb_list_find(&core->requests, &slot->requests, request) != HB_NODE_NONE)
		return -EEXIST;
	bool queued = slot->requests.count != 0;
	struct hb_work *work = hb_list_append(&core->requests, &slot->requests, request);
	if (!work) {
		slot->tenant.counters.requests_lost++;
		return -ENOSPC;
	}
	if (!deadline_ns)
		deadline_ns = slot->tenant.slo_ns ? core->now_ns + slot->tenant.slo_ns : HB_TIME_NEVER;
	work->begin_ns = core->now_ns;
	work->deadline_ns = deadline_ns;
	work->queued = queued;
	work->hidden = slot->tenant.counters.hints_hidden;
	if (request > slot->highest_request)
		slot->highest_request = request;
	if (!queued)
		slot->head_since_ns = core->now_ns;
	slot->tenant.requests = slot->requests.count;
	return 0;
}

/* Somebody else of this priority had work at or after since_ns. */
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

/* Whom a request shared the GPU with. */
struct company {
	bool high, low;
};

static struct company company_of(const struct hb_core *core, uint32_t tenant, int64_t since_ns)
{
	return (struct company){
		.high = others_worked(core, HB_PRIORITY_HIGH, tenant, since_ns),
		/* Of those that left nobody knows any more which they were; most tenants that come and go are LP. */
		.low = core->departed_idle_ns > since_ns || others_worked(core, HB_PRIORITY_LOW, tenant, since_ns),
	};
}

/* What an ended request is judged by. */
struct verdict {
	int64_t begin_ns, end_ns, deadline_ns; /* HB_TIME_NEVER = no deadline */
	bool queued;                           /* behind another one of its tenant */
	bool hidden;                           /* a hold had hidden the switch */
	struct company company;
};

/* Only where the hardware switches between HP and LP, that is where HP was given a slice. */
static bool switch_explains(const struct hb_core *core, const struct hb_tenant *tenant, const struct verdict *verdict)
{
	int64_t late_ns = verdict->end_ns - verdict->deadline_ns;
	return tenant->slice_compute_ns && !verdict->hidden && late_ns <= core->config.switch_ns;
}

static void judge(const struct hb_core *core, struct hb_tenant *tenant, const struct verdict *verdict)
{
	struct hb_tenant_counters *counters = &tenant->counters;
	struct company company = verdict->company;
	if (verdict->deadline_ns == HB_TIME_NEVER)
		return;
	counters->requests_judged++;
	if (verdict->end_ns <= verdict->deadline_ns)
		counters->requests_met++;
	else if (verdict->queued)
		counters->missed_queue++;
	else if (company.high)
		counters->missed_high++;
	else if (!company.low)
		counters->missed_alone++;
	else if (switch_explains(core, tenant, verdict))
		counters->missed_switch++;
	else
		counters->missed_low++;
}

/* True when the SLO changed. */
static bool learn(struct hb_core *core, struct hb_slot *slot, int64_t latency_ns, bool queued)
{
	struct hb_tenant *tenant = &slot->tenant;
	if (latency_ns > ALONE_MAX_NS)
		latency_ns = ALONE_MAX_NS;
	if (!queued && !tenant->alone_ns)
		tenant->alone_ns = latency_ns;
	else if (!queued)
		tenant->alone_ns += (latency_ns - tenant->alone_ns) / (1 << ALONE_SHIFT);
	if (slot->hist == HB_NODE_NONE)
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

/* True when the SLO changed. */
static bool close_books(struct hb_core *core, struct hb_slot *slot, struct verdict *verdict)
{
	int64_t latency_ns = verdict->end_ns - verdict->begin_ns;
	verdict->company = company_of(core, slot->tenant.id, verdict->begin_ns);
	slot->tenant.counters.requests_ended++;
	judge(core, &slot->tenant, verdict);
	if (slot->hist != HB_NODE_NONE)
		hb_hist_record(&core->hists[2 * slot->hist], latency_ns);
	if (verdict->company.high || verdict->company.low)
		return false;
	slot->tenant.counters.requests_alone++;
	return learn(core, slot, latency_ns, verdict->queued);
}

int hb_account_end(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t end_ns, struct hb_work *ended,
		   bool *learned)
{
	uint32_t node = hb_list_find(&core->requests, &slot->requests, request);
	if (node == HB_NODE_NONE)
		return -ENOENT;
	*ended = core->requests.nodes[node].work;
	if (node == slot->requests.first)
		slot->head_since_ns = core->now_ns;
	hb_list_remove(&core->requests, &slot->requests, node);
	slot->tenant.requests = slot->requests.count;

	*learned = close_books(core, slot,
			       &(struct verdict){
				       .begin_ns = ended->begin_ns,
				       .end_ns = end_ns,
				       .deadline_ns = ended->deadline_ns,
				       .queued = ended->queued,
				       .hidden = slot->tenant.counters.hints_hidden > ended->hidden,
			       });
	return 0;
}

/* Unfinished when the other one began; one that began later than that one but ended before it is not known of. */
static bool was_queued(const struct hb_slot *slot, int64_t begin_ns)
{
	return slot->past_begin_ns < begin_ns && slot->past_end_ns > begin_ns;
}

static bool past_valid(const struct hb_core *core, const struct hb_event *event)
{
	return event->request_past.begin_ns >= 0 && event->request_past.begin_ns <= event->request_past.end_ns &&
	       event->request_past.end_ns <= core->now_ns && event->request_past.deadline_ns >= 0 &&
	       event->request_past.deadline_ns < HB_TIME_LIMIT_NS && event->request_past.harm_ns >= 0 &&
	       event->request_past.harm_ns < HB_TIME_LIMIT_NS;
}

int hb_account_past(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event, struct hb_work *ended,
		    bool *learned)
{
	if (!past_valid(core, event))
		return -EINVAL;
	struct verdict verdict = {
		.begin_ns = event->request_past.begin_ns,
		.end_ns = event->request_past.end_ns,
		.deadline_ns = event->request_past.deadline_ns,
		.queued = was_queued(slot, event->request_past.begin_ns),
		.hidden = event->request_past.held,
	};
	if (!verdict.deadline_ns)
		verdict.deadline_ns = slot->tenant.slo_ns ? verdict.begin_ns + slot->tenant.slo_ns : HB_TIME_NEVER;
	slot->tenant.counters.requests_lost += event->request_past.lost;
	if (verdict.end_ns >= slot->past_end_ns) {
		slot->past_begin_ns = verdict.begin_ns;
		slot->past_end_ns = verdict.end_ns;
	}
	*ended = (struct hb_work){.begin_ns = verdict.begin_ns,
				  .deadline_ns = verdict.deadline_ns,
				  .queued = verdict.queued,
				  .measured = event->request_past.measured,
				  .harm_ns = event->request_past.harm_ns};
	*learned = close_books(core, slot, &verdict);
	return 0;
}

void hb_account_drop(struct hb_core *core, struct hb_slot *slot, uint64_t request)
{
	uint32_t node = hb_list_find(&core->requests, &slot->requests, request);
	if (node == HB_NODE_NONE)
		return;
	hb_list_remove(&core->requests, &slot->requests, node);
	slot->tenant.requests = slot->requests.count;
}

/*
 * Progress of the request in service is taken to be the time it was served, so
 * beside other work the prediction is too hopeful until it has overrun; then
 * its remaining time is 0 and the slack is what is left to the deadline.
 */
int64_t hb_tenant_slack_ns(const struct hb_core *core, uint32_t tenant, int64_t now_ns)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	int64_t least_ns = HB_TIME_NEVER;
	if (!slot)
		return least_ns;
	int64_t alone_ns = slot->tenant.alone_ns;
	int64_t served_ns = now_ns - slot->head_since_ns;
	int64_t ahead_ns = served_ns < alone_ns ? alone_ns - served_ns : 0;
	for (uint32_t node = slot->requests.first; node != HB_NODE_NONE; node = core->requests.nodes[node].next) {
		int64_t deadline_ns = core->requests.nodes[node].work.deadline_ns;
		if (deadline_ns != HB_TIME_NEVER && deadline_ns - now_ns - ahead_ns < least_ns)
			least_ns = deadline_ns - now_ns - ahead_ns;
		ahead_ns += alone_ns;
	}
	return least_ns;
}

uint32_t hb_tenant_attainment_ppm(const struct hb_tenant *tenant)
{
	const struct hb_tenant_counters *counters = &tenant->counters;
	if (!counters->requests_judged)
		return PPM;
	return (uint32_t)(counters->requests_met * PPM / counters->requests_judged);
}

const struct hb_work *hb_tenant_request(const struct hb_core *core, uint32_t tenant)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	return slot ? hb_list_first(&core->requests, &slot->requests) : NULL;
}
