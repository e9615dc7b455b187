/* SPDX-License-Identifier: Apache-2.0 */
/* See pairing.h. */
#include "cluster/pairing.h"

#include "cluster/assignment.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE HB_PAIRING_NONE
/* The model's services have the objective "p99 alone", which 99 % of their requests meet alone. */
#define ALONE 0.99
/* The value of a job of low priority that runs, and of one that shares. Both exceed what the speeds of all jobs sum up to. */
#define VALUE_RUNS 1e7
#define VALUE_SHARES 2e3

/* Why a job may not run on a GPU. `said` follows the number of GPUs. */
enum obstacle { FITS, LOST, OTHER_NODE, HAS_HIGH, HAS_LOW, MEMORY, LOSS, SPEED, TAKEN, OBSTACLES };
static const char *const said[] = {"",
				   "not answering the driver",
				   "not on the node that the job asks for",
				   "with a job of high priority",
				   "with a job of low priority",
				   "with too little free memory",
				   "whose service would lose more attainment than it may",
				   "on which it would be slower than it wants",
				   "given to other jobs"};

bool hb_pairing_has_high(const struct hb_pairing_gpu *gpu)
{
	return gpu->high != NONE || gpu->n_high;
}

static bool has_low(const struct hb_pairing_gpu *gpu)
{
	return gpu->low != NONE || gpu->n_low;
}

/* What is predicted for a service with these terms on the GPU. `high` NULL = only tenants that no job describes are there. */
static struct hb_pairing_guess guess_pair(const struct hb_pairing *pairing, const struct hb_pairing_job *high,
					  uint32_t low_program, const struct hb_pairing_gpu *gpu)
{
	bool stays = gpu->n_high && (!high || high->runs); /* the daemon measured this service */
	bool has_objective = stays && gpu->has_attainment, beside = has_objective && gpu->low_was_beside;
	double alone = has_objective ? gpu->attainment : ALONE, bound = pairing->most_loss;
	if (high && high->most_loss >= 0)
		bound = high->most_loss;
	else if (has_objective)
		bound = beside ? 0 : gpu->attainment - gpu->asked;
	uint32_t service = high ? high->program : HB_PAIR_OTHER_SERVICE;
	double duty = high && high->duty >= 0 ? high->duty : gpu->high_share;
	struct hb_pairing_guess best = {.is_measured = beside};
	for (uint32_t sharing = 0; sharing < HB_PAIR_SHARINGS; sharing++) {
		if (!(gpu->sharings & (1u << sharing)))
			continue;
		struct hb_pair_prediction p = hb_pair_predict(pairing->model, sharing, service, low_program, duty);
		double loss = beside ? fmax(0, gpu->asked - gpu->attainment) : p.loss;
		double speed = p.speed * (1 - gpu->other_share);
		if (loss > bound || speed <= best.speed)
			continue;
		best.speed = speed;
		best.loss = loss;
		best.attainment = beside ? alone : fmax(0, alone - loss);
		best.sharing = sharing;
	}
	return best;
}

struct hb_pairing_guess hb_pairing_predict(const struct hb_pairing *pairing, const struct hb_pairing_job *low,
					   const struct hb_pairing_gpu *gpu)
{
	return guess_pair(pairing, gpu->high != NONE ? &pairing->jobs[gpu->high] : NULL, low->program, gpu);
}

static uint64_t free_for(const struct hb_pairing_gpu *gpu, bool is_high)
{
	if (is_high || gpu->free_bytes == UINT64_MAX)
		return gpu->free_bytes;
	return gpu->free_bytes > gpu->reserve_bytes ? gpu->free_bytes - gpu->reserve_bytes : 0;
}

static enum obstacle find_obstacle(const struct hb_pairing *pairing, const struct hb_pairing_job *job,
				   const struct hb_pairing_gpu *gpu, double *speed)
{
	if (gpu->is_lost)
		return LOST;
	if (job->only_node != NONE && job->only_node != gpu->node)
		return OTHER_NODE;
	if (job->is_high && hb_pairing_has_high(gpu))
		return HAS_HIGH;
	if (!job->is_high && has_low(gpu))
		return HAS_LOW;
	if (free_for(gpu, job->is_high) < job->memory_bytes)
		return MEMORY;
	*speed = 1 - gpu->other_share;
	if (job->is_high && has_low(gpu))
		*speed = guess_pair(pairing, job,
				    gpu->low != NONE ? pairing->jobs[gpu->low].program : HB_PAIR_OTHER_LOW, gpu)
				 .speed;
	else if (!job->is_high && hb_pairing_has_high(gpu))
		*speed = hb_pairing_predict(pairing, job, gpu).speed;
	if (*speed <= 0)
		return LOSS;
	return !job->is_high && *speed < job->least_speed ? SPEED : FITS;
}

double hb_pairing_speed(const struct hb_pairing *pairing, const struct hb_pairing_job *low,
			const struct hb_pairing_gpu *gpu)
{
	struct hb_pairing_gpu before = *gpu;
	double speed = 0;
	if (gpu->low != NONE && !pairing->jobs[gpu->low].runs) {
		before.low = NONE;
		before.free_bytes += gpu->free_bytes == UINT64_MAX ? 0 : pairing->jobs[gpu->low].memory_bytes;
	}
	return find_obstacle(pairing, low, &before, &speed) == FITS ? speed : 0;
}

static void explain_waiting(const struct hb_pairing *pairing, struct hb_pairing_job *job)
{
	uint32_t counts[OBSTACLES] = {0};
	double speed;
	size_t at = 0;
	for (uint32_t i = 0; i < pairing->n_gpus; i++) {
		enum obstacle found = find_obstacle(pairing, job, &pairing->gpus[i], &speed);
		counts[found == FITS ? TAKEN : found]++;
	}
	snprintf(job->why, sizeof job->why, "there is no GPU");
	for (int i = 0; i < OBSTACLES && at < sizeof job->why; i++)
		if (counts[i])
			at += (size_t)snprintf(job->why + at, sizeof job->why - at, "%s%u %s",
					       at ? ", " : "GPUs: ", counts[i], said[i]);
}

static void put_on_gpu(struct hb_pairing *pairing, uint32_t job, uint32_t index)
{
	struct hb_pairing_gpu *gpu = &pairing->gpus[index];
	*(pairing->jobs[job].is_high ? &gpu->high : &gpu->low) = job;
	pairing->jobs[job].gpu = index;
	if (gpu->free_bytes != UINT64_MAX)
		gpu->free_bytes -= pairing->jobs[job].memory_bytes;
}

/* --- high priority ------------------------------------------------------------------------------------------------- */

/* Whether GPU a is better than b for a service: the partner that is wanted, then the most time, then the least memory that is enough. */
static bool is_better(const struct hb_pairing *pairing, const struct hb_pairing_gpu *a, double speed_a,
		      const struct hb_pairing_gpu *b, double speed_b)
{
	if (has_low(a) != has_low(b))
		return has_low(a) == pairing->prefers_sharing;
	if (speed_a != speed_b)
		return speed_a > speed_b;
	return a->free_bytes < b->free_bytes;
}

static void place_high(struct hb_pairing *pairing, uint32_t index)
{
	struct hb_pairing_job *job = &pairing->jobs[index];
	uint32_t best = NONE;
	double best_speed = 0, speed = 0;
	for (uint32_t i = 0; i < pairing->n_gpus; i++) {
		const struct hb_pairing_gpu *gpu = &pairing->gpus[i];
		if (find_obstacle(pairing, job, gpu, &speed) != FITS ||
		    (best != NONE && !is_better(pairing, gpu, speed, &pairing->gpus[best], best_speed)))
			continue;
		best = i;
		best_speed = speed;
	}
	if (best != NONE)
		put_on_gpu(pairing, index, best);
	else
		explain_waiting(pairing, job);
}

/* --- low priority -------------------------------------------------------------------------------------------------- */

static double rate_pair(const struct hb_pairing *pairing, const struct hb_pairing_job *job,
			const struct hb_pairing_gpu *gpu)
{
	double speed = hb_pairing_speed(pairing, job, gpu);
	if (speed <= 0)
		return -INFINITY;
	return VALUE_RUNS + speed + (pairing->prefers_sharing && hb_pairing_has_high(gpu) ? VALUE_SHARES : 0);
}

static int place_low(struct hb_pairing *pairing, const uint32_t *rows, uint32_t n_rows)
{
	uint32_t *column_of = calloc(n_rows + 1, sizeof *column_of);
	double *values = calloc((size_t)n_rows * pairing->n_gpus + 1, sizeof *values);
	int rc = column_of && values ? 0 : -ENOMEM;
	for (uint32_t row = 0; !rc && row < n_rows; row++)
		for (uint32_t i = 0; i < pairing->n_gpus; i++)
			values[(size_t)row * pairing->n_gpus + i] = rate_pair(pairing, &pairing->jobs[rows[row]],
									      &pairing->gpus[i]);
	rc = rc ? rc : hb_assignment_solve(values, n_rows, pairing->n_gpus, column_of);
	for (uint32_t row = 0; !rc && row < n_rows; row++)
		if (column_of[row] == HB_ASSIGNMENT_NONE)
			explain_waiting(pairing, &pairing->jobs[rows[row]]);
	for (uint32_t row = 0; !rc && row < n_rows; row++)
		if (column_of[row] != HB_ASSIGNMENT_NONE)
			put_on_gpu(pairing, rows[row], column_of[row]);
	free(values);
	free(column_of);
	return rc;
}

int hb_pairing_choose(struct hb_pairing *pairing)
{
	uint32_t rows[HB_PAIRING_JOBS_MAX], n_rows = 0;
	for (uint32_t i = 0; i < pairing->n_jobs; i++) {
		const struct hb_pairing_job *job = &pairing->jobs[i];
		if (job->runs)
			continue;
		if (job->is_high)
			place_high(pairing, i);
		else
			rows[n_rows++] = i;
	}
	return place_low(pairing, rows, n_rows);
}
