/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XSched (Shen et al., OSDI 2025) as a way of sharing: its own server and its
 * own library in front of the driver, at its level 1, from the folder it was
 * installed to. It is used as its example of transparent scheduling says;
 * nothing of it is part of this project. Caller: bench_stage.c.
 */
#ifndef HB_BENCH_BENCH_XSCHED_H
#define HB_BENCH_BENCH_XSCHED_H

#include "bench/bench_process.h"

/* Starts DIR/bin/xserver (highest priority first) and waits until it can be connected to. 0 or negative errno. */
int hb_bench_xsched_start(struct hb_bench_process *server, const char *dir, struct hb_bench_command *command,
			  const char *folder, struct hb_error *error);
/* The environment of a program; `driver`: the folder of the driver behind it, "" = the system's. False = no memory. */
bool hb_bench_xsched_place(struct hb_bench_command *command, const char *dir, const char *driver, bool high);

#endif
