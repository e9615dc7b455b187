/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processors services get and which everybody else, so that no thread of
 * a neighbour runs on the other half of a service's core: what such a neighbour
 * costs is not the subject of `hb bench`. Caller: bench_stage.c.
 */
#ifndef HB_BENCH_BENCH_CPUS_H
#define HB_BENCH_BENCH_CPUS_H

#include <sched.h>
#include <stdbool.h>

/* Whole cores: the first half for services, the others for the rest. False on small machines: all run everywhere. */
bool hb_bench_cpus_choose(bool high, cpu_set_t *set);
/* The same for given processors and their cores (`core[cpu]`, numbers below CPU_SETSIZE); for tests. */
bool hb_bench_cpus_split(const cpu_set_t *allowed, const int core[CPU_SETSIZE], bool high, cpu_set_t *set);

#endif
