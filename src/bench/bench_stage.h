/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the processes of `hb bench` run: a folder of its own, a daemon for each
 * engine and an MPS server, each started when the first program needs it and
 * gone at the end, however the end comes (a small process of its own watches
 * over that). Caller: bench_window.c.
 */
#ifndef HB_BENCH_BENCH_STAGE_H
#define HB_BENCH_BENCH_STAGE_H

#include "bench/bench_process.h"
#include "bench/bench_tables.h"

struct hb_bench_stage;

/* `xsched`: where XSched is, NULL = nowhere. */
int hb_bench_stage_new(bool simulated, const char *xsched, struct hb_bench_stage **stage, struct hb_error *error);
/* Stops daemons and servers and removes the folder; all programs have been stopped before. NULL is allowed. */
void hb_bench_stage_free(struct hb_bench_stage *stage);

/* 0, or -ENOENT: python3, or a module of it that the program needs, is not there. */
int hb_bench_stage_check_python(struct hb_bench_stage *stage, const struct hb_bench_program *program,
				struct hb_error *error);
/* Starts a program in the place that a way of sharing has for its priority. It is "ready" later. */
int hb_bench_stage_start(struct hb_bench_stage *stage, const struct hb_bench_program *program, bool high,
			 const struct hb_bench_sharing *sharing, struct hb_bench_process *process,
			 struct hb_error *error);
/* Before a window: the settings of a way of sharing. */
int hb_bench_stage_set(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, struct hb_error *error);
/* Tells the daemon, where there is one, the SLO of the service that is this process. */
int hb_bench_stage_slo(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, pid_t pid, int64_t slo_ns,
		       struct hb_error *error);
/* Once its programs are ready: -ENOTSUP when the GPU is shared in another way than this one. */
int hb_bench_stage_verify(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, struct hb_error *error);
/* Two programs of which this is the same are one process. */
void hb_bench_stage_key(const struct hb_bench_program *program, unsigned index, bool high,
			const struct hb_bench_sharing *sharing, char key[160]);

#endif
