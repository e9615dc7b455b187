/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The results of one simulated run: filled by simulation.c, printed by
 * result_json.c, result_table.c, report.c and timeline_json.c. Owned by the
 * caller of hb_sim_run(); release with hb_sim_result_fini().
 */
#ifndef HB_SIM_RESULT_H
#define HB_SIM_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SIM_TENANTS_MAX 16

struct hb_sim_high {
	char workload[80]; /* as given: "resnet50_b1:graph" */
	double rate_per_s; /* asked for; 0 = closed loop */
	uint64_t requests;
	int64_t *latency_ns; /* sorted ascending, `requests` entries, from arrival */
	int64_t *end_ns; /* when the requests ended, ascending, `requests` entries, from the begin of the simulation */
	int64_t p50_ns, p90_ns, p99_ns, max_ns;
	int64_t slo_ns; /* 0 = none */
	double attainment; /* share of requests within slo_ns, tokens by their mean if the SLO is stated (decide/token_pace.h); 1 when none */
};

struct hb_sim_low {
	char workload[80];
	double iterations_per_s;
	double relative; /* to the same program alone on this GPU */
	double *busy_ns; /* for each interval: GPU time alone of what it launched; NULL = no intervals */
};

/* An interval of the run: what HP and LP programs did in it. */
struct hb_sim_interval {
	uint64_t requests;      /* of the first HP program that ended in it */
	int64_t p50_ns, p99_ns; /* of their latency; 0 without requests */
	double low;             /* speed of the LP programs relative to alone, summed */
};

/* Rows of the timeline. */
enum hb_span_kind {
	HB_SPAN_REQUEST, /* arrival to end of an HP request */
	HB_SPAN_KERNEL,
	HB_SPAN_COPY,
	HB_SPAN_SWITCH, /* context switch, tenant = the one switched to */
	HB_SPAN_TAKEOVER,
	HB_SPAN_GATED, /* an LP thread waiting at the gate */
};

struct hb_span {
	int64_t start_ns, end_ns;
	const char *name; /* kernel name, lives as long as the trace set; or literal */
	uint8_t kind;     /* enum hb_span_kind */
	uint8_t tenant;   /* index: highs first, then lows */
};

struct hb_sim_result {
	char gpu[32];
	char sharing[64];
	double seconds;
	uint64_t seed;
	uint32_t n_high, n_low;
	struct hb_sim_high high[HB_SIM_TENANTS_MAX];
	struct hb_sim_low low[HB_SIM_TENANTS_MAX];
	double gpu_busy; /* share of time in which any kernel ran */
	double wall_s;   /* real seconds the run took */
	/* Empty unless asked for. */
	struct hb_sim_interval *intervals;
	size_t n_intervals;
	int64_t interval_ns; /* length of each */
	/* Empty unless asked for; ordered by start. */
	struct hb_span *spans;
	size_t n_spans;
	bool spans_truncated;
};

void hb_sim_result_fini(struct hb_sim_result *result);

#endif
