/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of `hb bench`: one for each engine, in a folder of its own, with the
 * settings of the way of sharing that is measured next. Caller: bench_stage.c.
 */
#ifndef HB_BENCH_BENCH_DAEMON_H
#define HB_BENCH_BENCH_DAEMON_H

#include "bench/bench_process.h"

struct hb_bench_daemon {
	const char *engine, *settings; /* rows of sharing.def */
	char config[128], socket[112];
	struct hb_bench_process process;
};

/*
 * Starts it below `folder` and waits until it answers. `command` has the
 * environment and gets the words. 0 or negative errno with *error; on failure
 * the process may run: hb_bench_process_stop() it.
 */
int hb_bench_daemon_start(struct hb_bench_daemon *daemon, const char *engine, bool simulated, const char *folder,
			  struct hb_bench_command *command, struct hb_error *error);
/* Lines of its configuration; back when it works by them. */
int hb_bench_daemon_set(struct hb_bench_daemon *daemon, const char *settings, struct hb_error *error);
/* The objective of the tenant whose first process is `pid`: a latency for 99 % of requests. */
int hb_bench_daemon_slo(const struct hb_bench_daemon *daemon, pid_t pid, int64_t slo_ns, struct hb_error *error);
/* Are GPUs with tenants shared by its engine? -ENOTSUP with why not: another one would be measured under its name. */
int hb_bench_daemon_verify(const struct hb_bench_daemon *daemon, struct hb_error *error);

#endif
