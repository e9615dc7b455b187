/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hb bench` can measure: suites of cases, the programs in them, ways to
 * share. Rows of the .def files of this folder; and what a case becomes on a
 * given GPU. Pure. Callers: the runners of this folder and `hb bench`.
 */
#ifndef HB_BENCH_BENCH_TABLES_H
#define HB_BENCH_BENCH_TABLES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_BENCH_TENANTS_MAX 5 /* of each priority in a case */
#define HB_BENCH_SHARINGS_MAX 16
#define HB_BENCH_LABEL_MAX 96

enum hb_bench_class { HB_BENCH_REFERENCE, HB_BENCH_TEMPORAL, HB_BENCH_SPATIAL, HB_BENCH_ENGINE };
enum hb_bench_place { HB_BENCH_NONE, HB_BENCH_NATIVE, HB_BENCH_MPS, HB_BENCH_MPS_PRIO, HB_BENCH_HB, HB_BENCH_XSCHED };

struct hb_bench_suite {
	const char *name;
	unsigned rounds;
	double real_s, simulated_s;
	const char *sharing;
	const char *help;
};

struct hb_bench_program {
	const char *name, *trace, *simulated, *real;
};

struct hb_bench_case {
	const char *suite, *name, *high, *low;
	bool kill;
};

struct hb_bench_sharing {
	const char *name;
	enum hb_bench_class class;
	const char *virtual_mode;
	enum hb_bench_place high, low;
	unsigned limit_percent;
	const char *engine, *settings;
};

/* Each ends with a row whose name is NULL. */
extern const struct hb_bench_suite hb_bench_suites[];
extern const struct hb_bench_case hb_bench_cases[];
extern const struct hb_bench_sharing hb_bench_sharings[];

const struct hb_bench_suite *hb_bench_suite_find(const char *name);
const struct hb_bench_sharing *hb_bench_sharing_find(const char *name);
/* "temporal", "engine", ...; and back, -1 = none of them. */
const char *hb_bench_class_name(enum hb_bench_class class);
int hb_bench_class_parse(const char *name);

/* How a case is run. */
enum hb_bench_world {
	HB_BENCH_SKIPPED,
	HB_BENCH_VIRTUAL,   /* recorded programs in `hb sim`'s engine, virtual time */
	HB_BENCH_PROCESSES, /* real processes */
};

struct hb_bench_high {
	const struct hb_bench_program *program;
	char arrivals[32]; /* "60/s:periodic", "closed" */
	double rate_per_s; /* 0 = closed */
	bool periodic;
	double phase; /* of periodic ones, in periods */
};

struct hb_bench_plan {
	const struct hb_bench_case *of;
	enum hb_bench_world world;
	bool simulated;
	unsigned n_high, n_low;
	struct hb_bench_high high[HB_BENCH_TENANTS_MAX];
	const struct hb_bench_program *low[HB_BENCH_TENANTS_MAX];
	char skipped[160]; /* why */
};

/* Is `name` one of `list` (comma-separated; NULL = all are)? */
bool hb_bench_is_listed(const char *list, const char *name);

/* 0, or -EINVAL: the tables are wrong (a test goes through all rows). */
int hb_bench_plan_make(const struct hb_bench_case *of, bool simulated, struct hb_bench_plan *plan,
		       struct hb_error *error);
/* What is run, for people: the program, and what stands for it when that is another one. */
void hb_bench_label(const struct hb_bench_plan *plan, const struct hb_bench_program *program,
		    char label[HB_BENCH_LABEL_MAX]);
/* Is it a PyTorch program in the world of the plan? */
bool hb_bench_needs_python(const struct hb_bench_plan *plan, const struct hb_bench_program *program);
/* Can this case be shared in this way in its world? */
bool hb_bench_can(const struct hb_bench_plan *plan, const struct hb_bench_sharing *sharing);

#endif
