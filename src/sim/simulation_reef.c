/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch path of the mode `reef`: asks decide/baseline_reef.h before each launch,
 * and wakes programs that it had blocked. Called by program.c.
 */
#include "sim/simulation.h"

/* A thread that waited in a launch call continues this long after it may launch: it polls, as the shim does at first. */
#define WAKE_NS 1000

static bool is_high_present(const struct hb_simulation *engine)
{
	for (uint32_t i = 0; i < engine->n_high; i++)
		if (engine->programs[i].served_ns >= 0)
			return true;
	return false;
}

static bool is_low_in_flight(const struct hb_simulation *engine)
{
	for (uint32_t i = engine->n_high; i < engine->n_programs; i++)
		if (engine->programs[i].in_flight)
			return true;
	return false;
}

static bool may_start(const struct hb_simulation *engine, const struct hb_program *program)
{
	if (program->high)
		return hb_reef_high_may_start(&engine->reef);
	return hb_reef_low_may_start(is_high_present(engine), program->in_flight);
}

bool hb_simulation_reef_go(struct hb_simulation *engine, struct hb_program *program)
{
	if (may_start(engine, program))
		return true;
	if (program->state != PROGRAM_GATED)
		program->gated_since_ns = engine->now_ns;
	program->state = PROGRAM_GATED;
	program->wake_ns = INT64_MAX;
	return false;
}

void hb_simulation_reef_changed(struct hb_simulation *engine)
{
	hb_reef_update(&engine->reef, is_high_present(engine), is_low_in_flight(engine));
	for (uint32_t i = 0; i < engine->n_programs; i++) {
		struct hb_program *program = &engine->programs[i];
		if (program->state == PROGRAM_GATED && program->wake_ns > engine->now_ns + WAKE_NS &&
		    may_start(engine, program))
			program->wake_ns = engine->now_ns + WAKE_NS;
	}
}
