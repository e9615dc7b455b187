/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core knows of one tenant. Written by the core alone; policies,
 * status and the simulator read it.
 */
#ifndef HB_CORE_TENANT_H
#define HB_CORE_TENANT_H

#include "core/core.h"

struct hb_hist;

/* Per-tenant counters, one row each in tenant_counters.def. */
struct hb_tenant_counters {
#define HB_COUNTER(name, unit, what) uint64_t name;
#include "core/tenant_counters.def"
};

struct hb_tenant {
	uint32_t id;
	enum hb_priority priority;
	struct hb_name name;
	uint32_t weight;
	bool present;

	/* SLO: slo_ns 0 = none or not learned yet. */
	int64_t slo_ns;
	uint32_t slo_share_ppm;
	bool slo_auto;

	/* What it does now. */
	bool busy;         /* work in flight on the GPU */
	bool waiting;      /* a thread stands at the gate */
	bool undrained;    /* its gate was closed and it has not drained since */
	uint32_t requests; /* begun and not ended */
	uint32_t launches; /* reported and not completed, admitted ones only */
	uint32_t pending;  /* launches that wait for admission */
	int64_t busy_since_ns;
	int64_t idle_since_ns;
	int64_t waiting_since_ns;

	/* What it was told. */
	enum hb_gate_state gate;
	uint32_t gate_depth;
	int64_t slice_compute_ns, slice_copy_ns;
	uint32_t mask_sms;
	uint32_t terms_ppm; /* HP: delay that LP may cause */
	bool holding;

	/* What the policy wants of its gate; `gate` is closed where a turn does not allow it. */
	enum hb_gate_state wish;
	uint32_t wish_depth;

	/* What was learned. */
	int64_t alone_ns;              /* typical latency of a request that ran alone and unqueued; 0 = not known */
	const struct hb_hist *latency; /* of all requests; HP only, else NULL */
	const struct hb_hist *latency_alone; /* of those during which no other tenant had work */
	struct hb_tenant_counters counters;
};

/* A request, or a launch where launches are reported. */
struct hb_work {
	uint64_t id;
	int64_t begin_ns;    /* posted */
	int64_t deadline_ns; /* requests; HB_TIME_NEVER = none */
	int64_t duration_ns; /* launches: predicted, 0 = unknown */
	uint64_t kernel;     /* launches */
	uint32_t sms;        /* launches: 0 = unknown */
	enum hb_class class; /* launches */
	bool queued;         /* requests: another one was unfinished when it began */
	uint64_t hidden;     /* requests: the tenant's hints_hidden when it began */
	bool measured;       /* requests, when judged: harm_ns is known */
	int64_t harm_ns;     /* what LP made it take longer */
};

/* Oldest first. NULL = none. */
const struct hb_work *hb_tenant_request(const struct hb_core *core, uint32_t tenant);
const struct hb_work *hb_tenant_launch(const struct hb_core *core, uint32_t tenant);
const struct hb_work *hb_tenant_pending(const struct hb_core *core, uint32_t tenant);

/* HP work is being served: a request is unfinished, or work is in flight, or a thread wants to submit some. */
static inline bool hb_tenant_wants_gpu(const struct hb_tenant *tenant)
{
	return tenant->requests || tenant->busy || tenant->waiting || tenant->pending;
}

/*
 * The least slack of the tenant's unfinished requests: deadline - now -
 * predicted remaining time alone, where a request waits for those before it.
 * HB_TIME_NEVER = nothing has a deadline.
 */
int64_t hb_tenant_slack_ns(const struct hb_core *core, uint32_t tenant, int64_t now_ns);

/* Share of ended requests within the SLO, in ppm; 1000000 while none counts. */
uint32_t hb_tenant_attainment_ppm(const struct hb_tenant *tenant);

#endif
