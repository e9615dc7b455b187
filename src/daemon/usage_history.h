/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last five minutes of one GPU, for `hb top` and the live page: who used it, and the latency of requests. One step
 * of 5 s after the other replaces the oldest, so memory is bounded: 6 KiB for each tenant on a GPU. The numbers are made
 * as `hb top` makes them (cli/top_model.c). No decision uses them. Called from the tick of the event loop only.
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

/* Counters of a tenant on the GPU since it began; a new core begins at 0 again. */
struct hb_usage_counts {
	uint64_t exact_ns;             /* HP: sum of the latencies of requests; LP: time of turns; 0 = there are none */
	uint64_t active_ns;            /* time in which the tenant launched, which is an estimate of its share */
	const struct hb_hist *latency; /* of requests; NULL = none */
};

struct hb_usage_step {
	uint32_t share_ppm; /* of the step, on the GPU */
	bool is_exact;      /* from requests or turns; false = estimated from launches */
	uint64_t requests;
	int64_t p50_ns, p99_ns; /* of the requests of the step, 4 % too large at most; 0 = no request */
};

/* Latency is kept as counts below these bounds: 16 for each doubling from 1 us to 18 minutes. */
#define HB_USAGE_BOUNDS 481

struct hb_tenant_usage {
	struct hb_usage_step steps[HB_USAGE_STEPS];
	uint32_t n, next; /* steps so far, at most HB_USAGE_STEPS; place of the next one */
	uint64_t exact_ns, active_ns, at_most[HB_USAGE_BOUNDS]; /* the counters at the last step */
};

/* Adds a step that took step_ns. Pure. */
void hb_tenant_usage_add(struct hb_tenant_usage *usage, const struct hb_usage_counts *counts, int64_t step_ns);
/* The step `back` steps before the last one; NULL = there is none. */
const struct hb_usage_step *hb_tenant_usage_step(const struct hb_tenant_usage *usage, uint32_t back);

struct hb_gpu;
struct hb_gpu_usage;

/* NULL when out of memory. */
struct hb_gpu_usage *hb_gpu_usage_new(void);
void hb_gpu_usage_free(struct hb_gpu_usage *usage);
/* The tenant with this index has left: frees its steps. */
void hb_gpu_usage_forget(struct hb_gpu_usage *usage, uint32_t tenancy);
/* Every HB_TICK_MS. */
void hb_gpu_usage_tick(struct hb_gpu *gpu, int64_t now_ns);

/*
 * {step_ns, age_ns: since the end of the last step, high_ppm, low_ppm, not_managed_ppm}: lists of shares, the last step at
 * the end; null where a share is not known.
 */
json_t *hb_gpu_usage_json(const struct hb_gpu *gpu, int64_t now_ns);
/* {estimated, share_ppm, requests, p50_ns, p99_ns}: lists that end with the same step as the GPU's; null = no request. */
json_t *hb_tenant_usage_json(const struct hb_gpu *gpu, uint32_t tenancy);

#endif
