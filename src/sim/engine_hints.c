/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints of a chosen quality, for `temporal:hints=...`: what a policy gains from
 * knowing requests early, and what it loses by knowing them badly.
 *
 *   perfect  HINT_AHEAD_NS before each arrival, with the right first launch
 *   late     only LATE_AHEAD_NS before: less than a switch takes
 *   early    says that the launch comes EARLY_BY_NS sooner than it does
 *   missing  half of the requests get none, the other half a perfect one
 *   wrong    perfect, and as many more at random times that lead to nothing
 */
#include "sim/engine.h"

#define HINT_AHEAD_NS INT64_C(1000000)
#define LATE_AHEAD_NS INT64_C(50000)
#define EARLY_BY_NS INT64_C(1000000)

void hb_engine_plan_hint(struct hb_engine *engine, struct hb_program *program)
{
	enum hb_hint_quality quality = engine->mode.hints;
	program->hint_ns = program->false_hint_ns = INT64_MAX;
	if (quality == HB_HINTS_NONE || program->next_arrival_ns == INT64_MAX)
		return;
	if (quality == HB_HINTS_MISSING && hb_rng_below(&program->hint_rng, 2))
		return;
	int64_t ahead = quality == HB_HINTS_LATE ? LATE_AHEAD_NS : HINT_AHEAD_NS;
	int64_t first = program->next_arrival_ns + program->plan.gap_ns[0];
	program->hint_ns = program->next_arrival_ns - ahead;
	program->hint_start_ns = quality == HB_HINTS_EARLY ? first - EARLY_BY_NS : first;
	if (quality == HB_HINTS_EARLY)
		program->hint_ns -= EARLY_BY_NS;
	if (quality == HB_HINTS_WRONG) {
		int64_t room = program->next_arrival_ns - engine->now_ns;
		program->false_hint_ns = engine->now_ns +
					 (room > 0 ? (int64_t)(hb_rng_double(&program->hint_rng) * (double)room) : 0);
	}
	if (program->hint_ns < engine->now_ns)
		program->hint_ns = engine->now_ns;
}

int64_t hb_engine_next_hint_ns(const struct hb_program *program)
{
	return program->hint_ns < program->false_hint_ns ? program->hint_ns : program->false_hint_ns;
}

static void give(struct hb_engine *engine, struct hb_program *program, int64_t start_ns)
{
	struct hb_event event = {.kind = HB_EVENT_HINT};
	event.hint.expected_start_ns = start_ns > engine->now_ns ? start_ns : engine->now_ns;
	event.hint.sign = HB_SIGN_API;
	hb_engine_post(engine, program, &event);
}

void hb_engine_give_hints(struct hb_engine *engine, struct hb_program *program)
{
	if (program->hint_ns <= engine->now_ns) {
		program->hint_ns = INT64_MAX;
		give(engine, program, program->hint_start_ns);
	}
	if (program->false_hint_ns <= engine->now_ns) {
		program->false_hint_ns = INT64_MAX;
		give(engine, program, engine->now_ns + HINT_AHEAD_NS);
	}
}
