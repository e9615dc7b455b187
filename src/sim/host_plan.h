/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a program's host thread issues its launches. Eager programs are bound by
 * the host: their GPU idles between launches, so the simulator needs the host's
 * pace, not only the kernels. Made once a workload; see host_plan.c for where
 * the times come from. Used by program.c.
 */
#ifndef HB_SIM_HOST_PLAN_H
#define HB_SIM_HOST_PLAN_H

#include "base/rng.h"
#include "gpumodel/spec.h"
#include "trace/trace.h"

struct hb_host_plan {
	/* One an op of the workload: host time between the launch before it (or the request's start) and this launch. */
	int64_t *gap_ns;
	/* One an iteration: last launch to the synchronize call. */
	int64_t *tail_ns;
	double scale; /* what recorded or estimated gaps were multiplied with to meet alone_ns */
};

/* 0, -ENOMEM. */
int hb_host_plan_init(struct hb_host_plan *plan, const struct hb_workload *workload, const struct hb_gpu_spec *spec);
void hb_host_plan_fini(struct hb_host_plan *plan);

/*
 * A host that others use, too: what it does takes longer by a share that is
 * drawn anew every 150 ms on the mean (both exponential), so a service's time is
 * its CPU's for stretches of many requests. With a share of 0.2 the time of an
 * eager service scatters as on the shared host of an H200 (bench/results/h200/spatial.json).
 */
struct hb_host_pace {
	struct hb_rng rng;
	double noise, factor;
	int64_t until_ns;
};
void hb_host_pace_init(struct hb_host_pace *pace, double noise, uint64_t seed);
/* Times come in order. Without noise: gap_ns. */
int64_t hb_host_pace_stretch(struct hb_host_pace *pace, int64_t now_ns, int64_t gap_ns);

#endif
