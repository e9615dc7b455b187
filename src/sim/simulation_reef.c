/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path of the mode `reef`: asks decide/baseline_reef.h before each launch,
 * and wakes programs that it had blocked. Called by program.c.
 */
#include "sim/simulation.h"

/* A thread that waited in a launch call continues this long after it may launch: it polls, as the shim does at first. */
#define WAKE_NS 1000

static bool is_high_present(const struct hb_simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->n_high; i++)
		if (simulation->programs[i].served_ns >= 0)
			return true;
	return false;
}

static bool is_low_in_flight(const struct hb_simulation *simulation)
{
	for (uint32_t i = simulation->n_high; i < simulation->n_programs; i++)
		if (simulation->programs[i].in_flight)
			return true;
	return false;
}

static bool may_start(const struct hb_simulation *simulation, const struct hb_program *program)
{
	if (program->high)
		return hb_reef_high_may_start(&simulation->reef);
	return hb_reef_low_may_start(is_high_present(simulation), program->in_flight);
}

bool hb_simulation_reef_go(struct hb_simulation *simulation, struct hb_program *program)
{
	if (may_start(simulation, program))
		return true;
	if (program->state != PROGRAM_GATED)
		program->gated_since_ns = simulation->now_ns;
	program->state = PROGRAM_GATED;
	program->wake_ns = INT64_MAX;
	return false;
}

void hb_simulation_reef_changed(struct hb_simulation *simulation)
{
	hb_reef_update(&simulation->reef, is_high_present(simulation), is_low_in_flight(simulation));
	for (uint32_t i = 0; i < simulation->n_programs; i++) {
		struct hb_program *program = &simulation->programs[i];
		if (program->state == PROGRAM_GATED && program->wake_ns > simulation->now_ns + WAKE_NS &&
		    may_start(simulation, program))
			program->wake_ns = simulation->now_ns + WAKE_NS;
	}
}
