/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times at which a program's host thread launches. Eager programs are bound by the
 * host: the GPU idles between their launches, so the simulator needs the host's pace as
 * well as the kernels. A plan is made once for each workload; host_plan.c says where
 * the times come from. Used by program.c.
 */
#ifndef HB_SIM_HOST_PLAN_H
#define HB_SIM_HOST_PLAN_H

#include "base/rng.h"
#include "gpumodel/spec.h"
#include "trace/trace.h"

struct hb_host_plan {
	/* For each op: host time from the launch before it (or the request's start) to its launch. */
	int64_t *gap_ns;
	/* For each iteration: host time from the last launch to the synchronize call. */
	int64_t *tail_ns;
	double scale; /* factor applied to all gaps so that an iteration takes alone_ns */
};

/* 0, -ENOMEM. */
int hb_host_plan_init(struct hb_host_plan *plan, const struct hb_workload *workload, const struct hb_gpu_spec *spec);
void hb_host_plan_fini(struct hb_host_plan *plan);

/*
 * A host shared with other machines: its times are longer by a share that changes
 * every 150 ms on average (share and interval are drawn from exponential
 * distributions). With a share of 0.2 the latency of an eager service varies as on the
 * shared host of an H200 (bench/results/h200/spatial.json).
 */
struct hb_host_pace {
	struct hb_rng rng;
	double noise, factor;
	int64_t until_ns;
};
void hb_host_pace_init(struct hb_host_pace *pace, double noise, uint64_t seed);
/* Returns the longer time; gap_ns without noise. Calls must be in the order of now_ns. */
int64_t hb_host_pace_stretch(struct hb_host_pace *pace, int64_t now_ns, int64_t gap_ns);

#endif
