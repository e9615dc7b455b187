/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One simulated run: which programs share which GPU, and how. Everything about
 * a run is in this struct, so the same struct gives the same result. Callers:
 * `hb sim` (src/cli), the fidelity check, tests.
 */
#ifndef HB_SIM_SIM_H
#define HB_SIM_SIM_H

#include "sim/arrivals.h"
#include "sim/result.h"
#include "trace/trace.h"

/* Describes what a service serves from `from_ns` on, until its next phase begins. */
struct hb_sim_phase {
	const struct hb_workload *workload;
	bool graph;
	const char *arrivals;
	uint32_t tokens; /* as in struct hb_sim_tenant */
	int64_t from_ns;
};

#define HB_SIM_PHASES_MAX 8

struct hb_sim_tenant {
	const struct hb_workload *workload;
	char label[80];        /* "resnet50_b1:graph" */
	bool graph;            /* one CUDA graph an iteration */
	const char *arrivals;  /* HP: see arrivals.h; LP: NULL = closed loop */
	uint32_t weight;       /* LP: share of the GPU among LP tenants; 0 = 1 */
	uint32_t copy_weight;  /* LP: share of PCIe; 0 = weight */
	uint32_t host_percent; /* LP: share of its memory that is on the host, because it did not fit */
	int64_t slo_ns;        /* HP: 0 none, -1 auto = p99 alone, else the bound */
	uint32_t tokens;       /* HP: iterations that follow each other at each arrival, each a request; 0 = 1 */
	/* HP: the phases after the first, in order of time. */
	struct hb_sim_phase later[HB_SIM_PHASES_MAX - 1];
	uint32_t n_later;
};

struct hb_sim_options {
	const struct hb_trace_set *traces;
	const char *gpu;     /* name of a file in data/gpus, or a path */
	const char *sharing; /* one mode, see sharing_modes.h */
	struct hb_sim_tenant high[HB_SIM_TENANTS_MAX];
	struct hb_sim_tenant low[HB_SIM_TENANTS_MAX];
	uint32_t n_high, n_low;
	double seconds;
	int64_t lead_ns; /* LP programs run alone this long before arrivals count from 0 */
	uint64_t seed;
	double host_noise;   /* 0.2 = host times are longer by a fifth on the mean; host_plan.h */
	bool progress;       /* a line on stderr now and then when a run takes long */
	int64_t interval_ns; /* also results for each interval of this length; 0 = none */
	/* Timeline: record spans that touch [from, to); 0,0 = none. */
	int64_t spans_from_ns, spans_to_ns;
	size_t spans_max;
};

/* 0, -EINVAL (error says which value), -ENOENT, -ENOMEM. *result written only on success. */
int hb_sim_run(const struct hb_sim_options *options, struct hb_sim_result *result, struct hb_error *error);

#endif
