/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny trace and runs of it on the H200 model: `service` (20 kernels of 10 us, paced by
 * the host when eager) and `train` (12 kernels of 300 us that fill the GPU). Used by
 * test_simulation_*.c.
 */
#ifndef HB_TESTS_ENGINE_RIG_H
#define HB_TESTS_ENGINE_RIG_H

#include "sim/sim.h"
#include "unit.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)

const struct hb_trace_set *engine_traces(void);
/* Options of a run without tenants: 1 s, seed 1, H200. */
struct hb_sim_options engine_options(const char *sharing);
/* Adds a tenant: "service", "service:graph", "train"; slo_ns as in sim.h. */
void engine_high(struct hb_sim_options *options, const char *label, const char *arrivals, int64_t slo_ns);
void engine_low(struct hb_sim_options *options, const char *label);
/* Runs the options; fails the test if the run fails. The caller calls hb_sim_result_fini(). */
struct hb_sim_result engine_run(const struct hb_sim_options *options);
/* The usual pair: the service as a graph at 100/s beside one training. */
struct hb_sim_result engine_pair(const char *sharing);

#endif
