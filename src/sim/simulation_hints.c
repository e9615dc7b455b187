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
 *
 * and of signs as a real server gives them, which the core has to learn
 *   learned  the request's bytes arrive on a socket PREPARE_LEAST_NS and an
 *            exponential time of mean PREPARE_MORE_NS before its arrival (which
 *            is when the program begins to launch; a parser and a tokenizer take
 *            a few hundred us, never less than some, with a tail); the first
 *            call into the driver comes with the arrival; and NOISE_PER_S times
 *            a second something comes in that leads to nothing: on sockets of
 *            another kind, and one time in NOISE_SAME on that of the requests.
 *            No sign says when.
 */
#include "sim/simulation.h"

#define HINT_AHEAD_NS INT64_C(1000000)
#define LATE_AHEAD_NS INT64_C(50000)
#define EARLY_BY_NS INT64_C(1000000)
#define PREPARE_LEAST_NS INT64_C(200000)
#define PREPARE_MORE_NS 100000.0
#define NOISE_PER_S 40.0
#define NOISE_SAME 8

enum source { SOURCE_REQUEST = 1, SOURCE_OTHER, SOURCE_CALL, SOURCE_HINT };

static void plan_signs(struct hb_simulation *engine, struct hb_program *program)
{
	double more = hb_rng_exponential(&program->hint_rng, PREPARE_MORE_NS);
	program->hint_ns = program->next_arrival_ns - PREPARE_LEAST_NS - (int64_t)more;
	program->hint_start_ns = 0;
	if (program->hint_ns < engine->now_ns)
		program->hint_ns = engine->now_ns;
	if (program->false_hint_ns == INT64_MAX)
		program->false_hint_ns = engine->now_ns +
					 (int64_t)hb_rng_exponential(&program->hint_rng, 1e9 / NOISE_PER_S);
}

void hb_simulation_plan_hint(struct hb_simulation *engine, struct hb_program *program)
{
	enum hb_hint_quality quality = engine->mode.hints;
	program->hint_ns = INT64_MAX;
	if (quality != HB_HINTS_LEARNED || program->next_arrival_ns == INT64_MAX)
		program->false_hint_ns = INT64_MAX;
	if (quality == HB_HINTS_NONE || program->next_arrival_ns == INT64_MAX)
		return;
	if (quality == HB_HINTS_LEARNED) {
		plan_signs(engine, program);
		return;
	}
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

int64_t hb_simulation_next_hint_ns(const struct hb_program *program)
{
	return program->hint_ns < program->false_hint_ns ? program->hint_ns : program->false_hint_ns;
}

static void give_hint(struct hb_simulation *engine, struct hb_program *program, int64_t start_ns)
{
	if (start_ns < engine->now_ns)
		start_ns = engine->now_ns;
	hb_simulation_takeover_sign(engine, program, HB_SIGN_API, SOURCE_HINT, 0, start_ns);
}

static void give_sign(struct hb_simulation *engine, struct hb_program *program, enum hb_sign sign, enum source source)
{
	hb_simulation_takeover_sign(engine, program, sign, source, 0, 0);
}

static void give_noise(struct hb_simulation *engine, struct hb_program *program)
{
	bool same = hb_rng_below(&program->hint_rng, NOISE_SAME) == 0;
	give_sign(engine, program, HB_SIGN_SOCKET, same ? SOURCE_REQUEST : SOURCE_OTHER);
	program->false_hint_ns = engine->now_ns + (int64_t)hb_rng_exponential(&program->hint_rng, 1e9 / NOISE_PER_S);
}

void hb_simulation_give_hints(struct hb_simulation *engine, struct hb_program *program)
{
	bool learned = engine->mode.hints == HB_HINTS_LEARNED;
	if (program->hint_ns <= engine->now_ns) {
		program->hint_ns = INT64_MAX;
		if (learned)
			give_sign(engine, program, HB_SIGN_SOCKET, SOURCE_REQUEST);
		else
			give_hint(engine, program, program->hint_start_ns);
	}
	if (program->false_hint_ns <= engine->now_ns) {
		program->false_hint_ns = INT64_MAX;
		if (learned)
			give_noise(engine, program);
		else
			give_hint(engine, program, engine->now_ns + HINT_AHEAD_NS);
	}
}

void hb_simulation_begin_calls(struct hb_simulation *engine, struct hb_program *program)
{
	if (engine->mode.hints == HB_HINTS_LEARNED)
		give_sign(engine, program, HB_SIGN_CALL, SOURCE_CALL);
}

void hb_simulation_report_bytes(struct hb_simulation *engine, struct hb_program *program)
{
	int64_t next_ns = hb_arrivals_next(program->bytes);
	program->bytes_ns = next_ns == INT64_MAX ? next_ns : next_ns + engine->options->lead_ns;
	give_sign(engine, program, HB_SIGN_SOCKET, SOURCE_REQUEST);
}
