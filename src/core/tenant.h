/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of one tenant in the core. Only the core writes it; policies, the daemon's
 * status and the simulator read it.
 */
#ifndef HB_CORE_TENANT_H
#define HB_CORE_TENANT_H

#include "core/core.h"

struct hb_hist;

/* Counters of one tenant, one row each in tenant_counters.def. */
struct hb_tenant_counters {
#define HB_COUNTER(name, unit, what) uint64_t name;
#include "core/tenant_counters.def"
};

struct hb_tenant {
	uint32_t id;
	enum hb_priority priority;
	struct hb_name name;
	uint32_t weight;      /* LP: share of the GPU among LP tenants */
	uint32_t copy_weight; /* LP: share of PCIe */
	uint32_t user;        /* LP: whose turns it shares */
	bool shared;          /* LP: runs in the MPS server, so it has its turn together with the others there */
	bool present;

	/* SLO */
	int64_t slo_ns; /* 0 = none, or not learned yet */
	uint32_t slo_share_ppm;
	bool slo_auto;
	bool paced; /* the SLO applied to the mean time of tokens at the last request (hb_request.paced) */

	/* Present activity */
	bool busy;      /* has work in flight on the GPU */
	bool waiting;   /* a thread is blocked at the gate */
	bool undrained; /* the gate was closed, and `drained` was not posted since */
	int64_t busy_since_ns;
	int64_t idle_since_ns; /* -1 = the tenant never had work */
	int64_t waiting_since_ns;

	/* Results of the last actions */
	enum hb_gate_state gate;
	uint32_t gate_depth;
	int64_t slice_compute_ns, slice_copy_ns;
	uint32_t allowance_ppm; /* HP: delay that LP may cause */

	/* The gate that the policy asked for; `gate` is closed if the tenant does not have the turn. */
	enum hb_gate_state asked_gate;
	uint32_t asked_depth;

	/* Learned values */
	int64_t alone_ns;              /* typical latency of a request that ran alone and unqueued; 0 = not known */
	const struct hb_hist *latency; /* of all requests; NULL for LP */
	const struct hb_hist *latency_alone; /* of requests during which no other tenant had work */
	struct hb_tenant_counters counters;
};

#define HB_REQUEST_KINDS 16

/* A request that has ended. */
struct hb_request {
	int64_t begin_ns, end_ns;
	int64_t deadline_ns; /* HB_TIME_NEVER = none */
	bool queued;         /* another request of the tenant was unfinished when this one began */
	int64_t took_ns;     /* its duration; if paced, the mean of the last requests (decide/token_pace.h) */
	bool paced;          /* the objective applies to that mean */
	bool credit_open;    /* paced, and LP may delay the next token (decide/token_credit.h) */
	bool overdrawn;      /* paced, and the credit is so far below 0 that an answer of 64 tokens may have missed */
	bool measured;       /* harm_ns is known */
	int64_t harm_ns;     /* delay of the request caused by LP */
	uint32_t kind;       /* below HB_REQUEST_KINDS */
};

/* The tenant has work in flight, or a thread that wants to launch some. */
static inline bool hb_tenant_wants_gpu(const struct hb_tenant *tenant)
{
	return tenant->busy || tenant->waiting;
}

/* Share of ended requests within the SLO, in ppm; 1000000 before the first such request. */
uint32_t hb_tenant_attainment_ppm(const struct hb_tenant *tenant);

#endif
