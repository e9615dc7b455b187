/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last five minutes of one GPU, for `hb top` and the live page: who used it, how long requests took, and why they
 * were late. One step of 5 s after the other replaces the oldest, so memory is bounded: 9 KiB for each tenant on a GPU.
 * No decision uses the numbers but the placement of programs (placements.c). Called from the event loop only.
 *
 * This is the only place that says what a share of a GPU is; `hb top` and the live page read the results from the status.
 * A tenant's share is exact if there are requests (HP) or turns (LP), else an estimate from the time with launches. LP had
 * the GPU during its turns; where the hardware switches, during the time with LP launches less that of HP's requests.
 */
#ifndef HB_DAEMON_USAGE_HISTORY_H
#define HB_DAEMON_USAGE_HISTORY_H

#include "base/hist.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HB_USAGE_STEPS 60
#define HB_USAGE_STEP_NS 5000000000
#define HB_USAGE_UNKNOWN UINT32_MAX

/* Counts of a tenant on the GPU for which the history has a list. Those of the missed requests follow, one for each cause. */
enum hb_usage_counter {
	HB_USAGE_TAKEOVERS, /* of all GPUs of the tenant; counted on the first of them */
	HB_USAGE_PREEMPTIONS, /* HP: requests beside which another tenant had work; LP: gate closings over work in flight */
	HB_USAGE_LAUNCHES, /* kernels and graphs */
	HB_USAGE_MISSED,
	HB_USAGE_COUNTERS = HB_USAGE_MISSED
#define HB_MISS_CAUSE(counter, text) +1
#include "core/miss_causes.def"
#undef HB_MISS_CAUSE
};

/* Counters of a tenant on the GPU since it began; a new core begins at 0 again. */
struct hb_usage_counts {
	uint64_t exact_ns;             /* HP: sum of the latencies of requests; LP: time of turns; 0 = there are none */
	uint64_t active_ns;            /* time in which the tenant launched, which is an estimate of its share */
	const struct hb_hist *latency; /* of requests; NULL = none */
	uint64_t counters[HB_USAGE_COUNTERS];
	uint64_t memory_bytes, peer_bytes,
		host_bytes; /* allocated now: on the GPU, moved to another one, moved to the host */
};

struct hb_usage_step {
	uint32_t share_ppm; /* of the step, on the GPU */
	bool is_exact;      /* from requests or turns; false = estimated from launches */
	uint64_t requests;
	int64_t p50_ns, p99_ns;               /* of the requests of the step, 4 % too large at most; 0 = no request */
	uint32_t counters[HB_USAGE_COUNTERS]; /* during the step */
	uint64_t memory_bytes, peer_bytes, host_bytes; /* at its end */
};

/* Latency is kept as counts below these bounds: 16 for each doubling from 1 us to 18 minutes. */
#define HB_USAGE_BOUNDS 481

struct hb_tenant_usage {
	struct hb_usage_step steps[HB_USAGE_STEPS];
	uint32_t n, next; /* steps so far, at most HB_USAGE_STEPS; place of the next one */
	uint64_t exact_ns, active_ns, counters[HB_USAGE_COUNTERS]; /* at the last step */
	uint64_t at_most[HB_USAGE_BOUNDS];
};

/* Adds a step that took step_ns. Pure. */
void hb_tenant_usage_add(struct hb_tenant_usage *usage, const struct hb_usage_counts *counts, int64_t step_ns);
/* The step `back` steps before the last one; NULL = there is none. */
const struct hb_usage_step *hb_tenant_usage_step(const struct hb_tenant_usage *usage, uint32_t back);

/* The shares of all tenants of a GPU in one step. */
struct hb_usage_shares {
	uint64_t high_ppm, turns_ppm; /* sums over HP's requests and LP's turns; may be more than all the time */
	uint32_t active_ppm;          /* of the LP tenant that launched for longest */
	bool has_low, is_estimated;   /* there is an LP tenant; one of them has no turns */
};

/* Adds a tenant's step. Pure. */
void hb_usage_shares_add(struct hb_usage_shares *shares, bool is_low, const struct hb_usage_step *step);
/* The share of the step in which HP or LP had the GPU. */
uint32_t hb_usage_shares_high(const struct hb_usage_shares *shares);
uint32_t hb_usage_shares_low(const struct hb_usage_shares *shares);

struct hb_gpu;
struct hb_gpu_usage;
struct hb_tenancy;

/* NULL when out of memory. */
struct hb_gpu_usage *hb_gpu_usage_new(void);
void hb_gpu_usage_free(struct hb_gpu_usage *usage);
/* The tenant with this index has left: frees its steps. */
void hb_gpu_usage_forget(struct hb_gpu_usage *usage, uint32_t tenancy);
/* Every HB_TICK_MS. */
void hb_gpu_usage_tick(struct hb_gpu *gpu, int64_t now_ns);

/* Reads the tenant's present counters. */
struct hb_usage_counts hb_gpu_usage_counts(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy);

/* HP's part of the last `steps` steps, in ppm; 0 while there are none. */
uint32_t hb_gpu_usage_high_ppm(const struct hb_gpu *gpu, uint32_t steps);

/*
 * The share of the last step in which LP had the GPU; HB_USAGE_UNKNOWN = no step has ended yet, or it had no LP tenant.
 * *estimated: at least one LP tenant has no turns.
 */
uint32_t hb_gpu_usage_low_active(const struct hb_gpu *gpu, bool *estimated);
/* The time in ns that HP or LP had the GPU up to the end of the last step. */
uint64_t hb_gpu_usage_time(const struct hb_gpu *gpu, bool is_low);

/* The lists of docs/daemon.md; the last step is at the end of each. */
json_t *hb_gpu_usage_json(const struct hb_gpu *gpu, int64_t now_ns);
json_t *hb_tenant_usage_json(const struct hb_gpu *gpu, uint32_t tenancy);

#endif
