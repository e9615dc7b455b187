/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of a measurement that are running: each is started once for all
 * ways of sharing that have it in the same place, waits while others are
 * measured, and stays for the next case that needs it. Caller: bench_window.c.
 */
#ifndef HB_BENCH_BENCH_COMPANY_H
#define HB_BENCH_BENCH_COMPANY_H

#include "bench/bench_process.h"
#include "bench/bench_stage.h"

struct hb_bench_member {
	char key[160];
	const struct hb_bench_program *program;
	bool high;
	const struct hb_bench_sharing *sharing;
	struct hb_bench_process process;
	int64_t slo_ns;   /* the one that its daemon knows; 0 = none */
	bool needed;      /* in this case */
	char failed[512]; /* why it does not run; "" = it does */
};

#define HB_BENCH_MEMBERS_MAX (4 * HB_BENCH_TENANTS_MAX * HB_BENCH_SHARINGS_MAX)

struct hb_bench_company {
	struct hb_bench_stage *stage;
	bool simulated;
	unsigned n;
	struct hb_bench_member members[HB_BENCH_MEMBERS_MAX];
};

/* From here on nobody is needed but whom hb_bench_company_call() names. */
void hb_bench_company_begin(struct hb_bench_company *company);
/* The member for the `index`-th program of its side in this way of sharing; it may not run yet. */
struct hb_bench_member *hb_bench_company_call(struct hb_bench_company *company, const struct hb_bench_program *program,
					      unsigned index, bool high, const struct hb_bench_sharing *sharing);
/*
 * Ends whom nobody called, starts who is missing, waits until all are ready: 0, -EINTR, or -ETIME. Who did not start or get
 * ready has `failed` set. Members move: call them again.
 */
int hb_bench_company_gather(struct hb_bench_company *company, char gpu[96], struct hb_error *error);
/* After the process has been killed: starts it again and waits. */
int hb_bench_company_replace(struct hb_bench_company *company, struct hb_bench_member *member, struct hb_error *error);
/* Ends all. `well`: they answer, so they get time to end by themselves. */
void hb_bench_company_dismiss(struct hb_bench_company *company, bool well);

#endif
