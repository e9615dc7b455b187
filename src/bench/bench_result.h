/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a measurement found, raw: every latency and every rate of every round.
 * Everything shown (tables, page, headline) is computed from this, so it can be
 * shown again from the file. Filled by the runners, written and read by
 * bench_json.c; release with hb_bench_result_fini().
 */
#ifndef HB_BENCH_BENCH_RESULT_H
#define HB_BENCH_BENCH_RESULT_H

#include "bench/bench_tables.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_BENCH_ROUNDS_MAX 100
#define HB_BENCH_CASES_MAX 32

struct hb_bench_latencies {
	int64_t *ns; /* ascending */
	size_t n;
	uint64_t seen; /* measured; more than `n` when only a choice of them was kept */
};

/* One way of sharing in one case. Rounds that were not measured are empty. */
struct hb_bench_cell {
	char sharing[64];
	enum hb_bench_class class;
	struct hb_bench_latencies high[HB_BENCH_TENANTS_MAX][HB_BENCH_ROUNDS_MAX];
	double low_per_s[HB_BENCH_TENANTS_MAX][HB_BENCH_ROUNDS_MAX]; /* NAN = not known */
	int64_t clock_error_ns; /* bound of what latencies taken from the device's clock are off by; 0 = host's clock */
};

/* A way of sharing that could not be measured, or not to the end. */
struct hb_bench_dropped {
	char sharing[64];
	char why[512];
};

struct hb_bench_outcome {
	char name[64];
	char world[16];       /* "virtual", "processes", "skipped" */
	char skipped[160];    /* why; "" = it was run */
	char failed[512];     /* what went wrong; "" = nothing */
	char unfinished[160]; /* what its time was not enough for; "" = it was */
	unsigned rounds;      /* that were measured */
	unsigned n_high, n_low, n_cells, n_dropped;
	char high[HB_BENCH_TENANTS_MAX][HB_BENCH_LABEL_MAX], low[HB_BENCH_TENANTS_MAX][HB_BENCH_LABEL_MAX];
	char arrivals[HB_BENCH_TENANTS_MAX][32];
	struct hb_bench_cell *cells; /* HB_BENCH_SHARINGS_MAX */
	struct hb_bench_dropped dropped[HB_BENCH_SHARINGS_MAX];
};

struct hb_bench_result {
	char suite[32], gpu[96], machine[160], driver[96], version[96], time[32];
	char command[512];
	bool simulated;
	unsigned rounds;
	double seconds; /* of a window */
	unsigned n_cases;
	struct hb_bench_outcome cases[HB_BENCH_CASES_MAX];
};

/* Fills name, labels and world of the next case, with room for cells. NULL = no memory or too many. */
struct hb_bench_outcome *hb_bench_result_add(struct hb_bench_result *result, const struct hb_bench_plan *plan);
/* The cell of a way of sharing, made when it is new. NULL = too many. */
struct hb_bench_cell *hb_bench_outcome_cell(struct hb_bench_outcome *outcome, const char *sharing,
					    enum hb_bench_class class);
/* Gives a cell up, with what it had. */
void hb_bench_outcome_drop(struct hb_bench_outcome *outcome, const char *sharing, const char *why);
bool hb_bench_outcome_dropped(const struct hb_bench_outcome *outcome, const char *sharing);
/* Takes over `ns`, which it sorts. */
void hb_bench_latencies_take(struct hb_bench_latencies *latencies, int64_t *ns, size_t n, uint64_t seen);
/* Requests that were measured so far. */
uint64_t hb_bench_cell_trials(const struct hb_bench_cell *cell, unsigned n_high);
uint64_t hb_bench_outcome_trials(const struct hb_bench_outcome *outcome);
void hb_bench_outcome_clear(struct hb_bench_outcome *outcome); /* its cells only */
void hb_bench_result_fini(struct hb_bench_result *result);

#endif
