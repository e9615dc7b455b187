/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs and hints of HP programs in the mode `temporal`. Without an option the bytes of
 * a request arrive when the request does. With `hints=` they show what foresight gains
 * from early knowledge, and what it loses by wrong knowledge. An API hint names the
 * time of the first launch:
 *
 *   perfect  HINT_AHEAD_NS before each arrival, with the right time
 *   late     LATE_AHEAD_NS before each arrival: less than a switch takes
 *   early    names a time EARLY_BY_NS before the launch
 *   missing  half of the requests get no hint, the others a perfect one
 *   wrong    perfect, and the same number of hints at random times without a launch
 *
 * and, without hints, signs as a real server gives them, which have to be learned:
 *
 *   learned  a request's bytes arrive on a socket PREPARE_LEAST_NS plus an
 *            exponential time of mean PREPARE_MORE_NS before the program begins to
 *            launch (a parser and a tokenizer take a few hundred us, with a tail). The
 *            first call into the driver follows. NOISE_PER_S times a second bytes
 *            arrive that lead to nothing: on sockets of another kind, and one time in
 *            NOISE_SAME on that of the requests. No sign names a time.
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

static void plan_signs(struct hb_simulation *simulation, struct hb_program *program)
{
	double more = hb_rng_exponential(&program->hint_rng, PREPARE_MORE_NS);
	program->hint_ns = program->next_arrival_ns - PREPARE_LEAST_NS - (int64_t)more;
	program->hint_start_ns = 0;
	if (program->hint_ns < simulation->now_ns)
		program->hint_ns = simulation->now_ns;
	if (program->false_hint_ns == INT64_MAX)
		program->false_hint_ns = simulation->now_ns +
					 (int64_t)hb_rng_exponential(&program->hint_rng, 1e9 / NOISE_PER_S);
}

void hb_simulation_plan_hint(struct hb_simulation *simulation, struct hb_program *program)
{
	enum hb_hint_quality quality = simulation->mode.hints;
	program->hint_ns = INT64_MAX;
	if (quality != HB_HINTS_LEARNED || program->next_arrival_ns == INT64_MAX)
		program->false_hint_ns = INT64_MAX;
	if (quality == HB_HINTS_NONE || program->next_arrival_ns == INT64_MAX)
		return;
	if (quality == HB_HINTS_LEARNED) {
		plan_signs(simulation, program);
		return;
	}
	if (quality == HB_HINTS_MISSING && hb_rng_below(&program->hint_rng, 2))
		return;
	int64_t ahead = quality == HB_HINTS_LATE ? LATE_AHEAD_NS : HINT_AHEAD_NS;
	int64_t first = program->next_arrival_ns + program->plan->gap_ns[0];
	program->hint_ns = program->next_arrival_ns - ahead;
	program->hint_start_ns = quality == HB_HINTS_EARLY ? first - EARLY_BY_NS : first;
	if (quality == HB_HINTS_EARLY)
		program->hint_ns -= EARLY_BY_NS;
	if (quality == HB_HINTS_WRONG) {
		int64_t room = program->next_arrival_ns - simulation->now_ns;
		program->false_hint_ns = simulation->now_ns +
					 (room > 0 ? (int64_t)(hb_rng_double(&program->hint_rng) * (double)room) : 0);
	}
	if (program->hint_ns < simulation->now_ns)
		program->hint_ns = simulation->now_ns;
}

int64_t hb_simulation_next_hint_ns(const struct hb_program *program)
{
	return program->hint_ns < program->false_hint_ns ? program->hint_ns : program->false_hint_ns;
}

static void give_hint(struct hb_simulation *simulation, struct hb_program *program, int64_t start_ns)
{
	if (start_ns < simulation->now_ns)
		start_ns = simulation->now_ns;
	hb_simulation_takeover_sign(simulation, program, HB_SIGN_API, SOURCE_HINT, 0, start_ns);
}

static void give_sign(struct hb_simulation *simulation, struct hb_program *program, enum hb_sign sign,
		      enum source source)
{
	hb_simulation_takeover_sign(simulation, program, sign, source, 0, 0);
}

static void give_noise(struct hb_simulation *simulation, struct hb_program *program)
{
	bool same = hb_rng_below(&program->hint_rng, NOISE_SAME) == 0;
	give_sign(simulation, program, HB_SIGN_SOCKET, same ? SOURCE_REQUEST : SOURCE_OTHER);
	program->false_hint_ns = simulation->now_ns +
				 (int64_t)hb_rng_exponential(&program->hint_rng, 1e9 / NOISE_PER_S);
}

void hb_simulation_give_hints(struct hb_simulation *simulation, struct hb_program *program)
{
	bool learned = simulation->mode.hints == HB_HINTS_LEARNED;
	if (program->hint_ns <= simulation->now_ns) {
		program->hint_ns = INT64_MAX;
		if (learned)
			give_sign(simulation, program, HB_SIGN_SOCKET, SOURCE_REQUEST);
		else
			give_hint(simulation, program, program->hint_start_ns);
	}
	if (program->false_hint_ns <= simulation->now_ns) {
		program->false_hint_ns = INT64_MAX;
		if (learned)
			give_noise(simulation, program);
		else
			give_hint(simulation, program, simulation->now_ns + HINT_AHEAD_NS);
	}
}

void hb_simulation_begin_calls(struct hb_simulation *simulation, struct hb_program *program)
{
	if (simulation->mode.hints == HB_HINTS_LEARNED)
		give_sign(simulation, program, HB_SIGN_CALL, SOURCE_CALL);
}

void hb_simulation_plan_bytes(const struct hb_simulation *simulation, struct hb_program *program)
{
	uint32_t phase;
	int64_t next_ns = hb_service_arrivals_next(&program->bytes, &phase);
	program->bytes_ns = next_ns == INT64_MAX ? next_ns : next_ns + simulation->options->lead_ns;
}

void hb_simulation_report_bytes(struct hb_simulation *simulation, struct hb_program *program)
{
	hb_simulation_plan_bytes(simulation, program);
	give_sign(simulation, program, HB_SIGN_SOCKET, SOURCE_REQUEST);
}
