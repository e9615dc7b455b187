/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of `hb place`: the assignment against all possible ones, and what holds for any input. */
#include "base/rng.h"
#include "cluster/assignment.h"
#include "cluster/pairing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST 6

/* The greatest sum from this row on, over all possible assignments. */
static double try_all(const double *values, uint32_t rows, uint32_t columns, uint32_t row, uint32_t taken)
{
	if (row == rows)
		return 0;
	double best = try_all(values, rows, columns, row + 1, taken);
	for (uint32_t column = 0; column < columns; column++) {
		double value = values[row * columns + column];
		if (taken & (1u << column) || value < 0)
			continue;
		best = fmax(best, value + try_all(values, rows, columns, row + 1, taken | (1u << column)));
	}
	return best;
}

static void no_assignment_is_better(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 5, 5);
	for (int round = 0; round < 3000; round++) {
		uint32_t rows = 1 + (uint32_t)hb_rng_below(&rng, MOST),
			 columns = (uint32_t)hb_rng_below(&rng, MOST + 1);
		double values[MOST * MOST], sum = 0;
		uint32_t column_of[MOST], taken = 0;
		for (uint32_t i = 0; i < rows * columns; i++)
			values[i] = hb_rng_below(&rng, 3) ? 1 + (double)hb_rng_below(&rng, 20) : -INFINITY;
		assert_int_equal(hb_assignment_solve(values, rows, columns, column_of), 0);
		for (uint32_t row = 0; row < rows; row++) {
			if (column_of[row] == HB_ASSIGNMENT_NONE)
				continue;
			assert_true(column_of[row] < columns && !(taken & (1u << column_of[row])));
			assert_true(values[row * columns + column_of[row]] > 0);
			taken |= 1u << column_of[row];
			sum += values[row * columns + column_of[row]];
		}
		if (fabs(sum - try_all(values, rows, columns, 0, 0)) > 1e-9)
			fail_msg("round %d: %f is not the greatest sum", round, sum);
	}
	(void)state;
}

/* Services with each duty lose more, and jobs beside them are slower, the busier they are. */
static const struct hb_pair_model model = {
	.n = 3,
	.rows = {{.measured = true, .sharing = HB_PAIR_TEMPORAL, .duty = 0, .loss = 0, .speed = 1},
		 {.measured = true, .sharing = HB_PAIR_TEMPORAL, .duty = 0.5, .loss = 0.02, .speed = 0.5},
		 {.measured = true, .sharing = HB_PAIR_TEMPORAL, .duty = 1, .loss = 0.2, .speed = 0.1}},
};

static void fill(struct hb_pairing *pairing, struct hb_rng *rng)
{
	pairing->n_nodes = 3;
	for (uint32_t i = 0; i < pairing->n_gpus; i++)
		pairing->gpus[i] = (struct hb_pairing_gpu){.node = i % 3,
							   .number = i / 3,
							   .sharings = 1u << HB_PAIR_TEMPORAL,
							   .free_bytes = hb_rng_below(rng, 4) ? hb_rng_below(rng, 100)
											      : UINT64_MAX,
							   .reserve_bytes = hb_rng_below(rng, 10),
							   .is_lost = !hb_rng_below(rng, 8),
							   .high = HB_PAIRING_NONE,
							   .low = HB_PAIRING_NONE};
	for (uint32_t i = 0; i < pairing->n_jobs; i++) {
		bool is_high = hb_rng_below(rng, 2);
		pairing->jobs[i] = (struct hb_pairing_job){
			.is_high = is_high,
			.program = is_high ? HB_PAIR_OTHER_SERVICE : HB_PAIR_OTHER_LOW,
			.duty = (double)hb_rng_below(rng, 101) / 100,
			.most_loss = hb_rng_below(rng, 2) ? -1 : (double)hb_rng_below(rng, 10) / 100,
			.least_speed = hb_rng_below(rng, 2) ? 0 : 0.6,
			.memory_bytes = hb_rng_below(rng, 60),
			.only_node = hb_rng_below(rng, 3) ? HB_PAIRING_NONE : (uint32_t)hb_rng_below(rng, 3),
			.gpu = HB_PAIRING_NONE};
	}
}

static void check_choice(const struct hb_pairing *pairing, const struct hb_pairing_gpu *before)
{
	uint64_t used[16] = {0};
	for (uint32_t i = 0; i < pairing->n_jobs; i++) {
		const struct hb_pairing_job *job = &pairing->jobs[i];
		assert_int_equal(job->gpu == HB_PAIRING_NONE, job->why[0] != '\0');
		if (job->gpu == HB_PAIRING_NONE)
			continue;
		const struct hb_pairing_gpu *gpu = &pairing->gpus[job->gpu];
		assert_int_equal(job->is_high ? gpu->high : gpu->low, i);
		assert_false(gpu->is_lost);
		assert_true(job->only_node == HB_PAIRING_NONE || job->only_node == gpu->node);
		used[job->gpu] += job->memory_bytes;
		if (job->is_high || gpu->high == HB_PAIRING_NONE)
			continue;
		const struct hb_pairing_job *high = &pairing->jobs[gpu->high];
		struct hb_pairing_guess guess = hb_pairing_predict(pairing, job, gpu);
		assert_true(guess.speed >= job->least_speed && guess.speed > 0);
		assert_true(guess.loss <= (high->most_loss < 0 ? pairing->most_loss : high->most_loss));
	}
	for (uint32_t i = 0; i < pairing->n_gpus; i++)
		assert_true(used[i] <= before[i].free_bytes);
}

static void every_choice_keeps_the_terms(void **state)
{
	struct hb_pairing_gpu gpus[16], before[16];
	struct hb_pairing_job jobs[24];
	struct hb_rng rng;
	uint32_t shared = 0, waiting = 0;
	hb_rng_init(&rng, 9, 9);
	for (int round = 0; round < 500; round++) {
		struct hb_pairing pairing = {.gpus = gpus,
					     .jobs = jobs,
					     .n_gpus = (uint32_t)hb_rng_below(&rng, 17),
					     .n_jobs = (uint32_t)hb_rng_below(&rng, 25),
					     .model = &model,
					     .most_loss = 0.03,
					     .prefers_sharing = hb_rng_below(&rng, 2)};
		fill(&pairing, &rng);
		memcpy(before, gpus, sizeof before);
		assert_int_equal(hb_pairing_choose(&pairing), 0);
		check_choice(&pairing, before);
		for (uint32_t i = 0; i < pairing.n_gpus; i++)
			shared += gpus[i].high != HB_PAIRING_NONE && gpus[i].low != HB_PAIRING_NONE;
		for (uint32_t i = 0; i < pairing.n_jobs; i++)
			waiting += jobs[i].gpu == HB_PAIRING_NONE;
	}
	assert_true(shared > 100 && waiting > 100); /* the rounds show both */
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_assignment_is_better),
		cmocka_unit_test(every_choice_keeps_the_terms),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
