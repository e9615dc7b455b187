/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the answer of `hb place`; see pairing.h. docs/placing.md describes its keys. */
#include "cluster/pairing.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE HB_PAIRING_NONE
#define WEIGHT_STEPS 1000 /* weights of nodes are 1 to this + 1 */

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

/* A number in steps of a millionth, so that it is the same on every machine. */
static json_t *rounded(double value)
{
	return json_real(round(value * 1e6) / 1e6);
}

static const char *name_of(const struct hb_pairing *pairing, uint32_t job, uint32_t tenants)
{
	return job != NONE ? pairing->jobs[job].name : tenants ? "a tenant that no job describes" : "";
}

/* Adds what is predicted for the pair to the object. */
static void add_guess(json_t *object, const struct hb_pairing_guess *guess)
{
	bool allowed = guess->speed > 0;
	json_object_set_new(object, "engine",
			    allowed ? json_string(hb_pair_sharing_names[guess->sharing]) : json_null());
	json_object_set_new(object, "loss", allowed ? rounded(guess->loss) : json_null());
	json_object_set_new(object, "attainment", allowed ? rounded(guess->attainment) : json_null());
	json_object_set_new(object, "from", json_string(guess->is_measured ? "daemon" : "model"));
}

static void add_gpu(json_t *object, const struct hb_pairing *pairing, const struct hb_pairing_gpu *gpu)
{
	json_object_set_new(object, "node", gpu ? json_string(pairing->nodes[gpu->node]) : json_null());
	json_object_set_new(object, "gpu", gpu ? json_integer(gpu->number) : json_null());
	json_object_set_new(object, "uuid", text_or_null(gpu ? gpu->uuid : ""));
}

static double speed_on(const struct hb_pairing_gpu *gpu, const struct hb_pairing_guess *guess)
{
	return hb_pairing_has_high(gpu) ? guess->speed : 1 - gpu->other_share;
}

/* --- other nodes --------------------------------------------------------------------------------------------------- */

struct option {
	double speed;
	uint32_t gpu, weight;
};

/* The smaller, the better: 1 is a job as fast as alone. With --prefer sharing, GPUs that the job has to itself come last. */
static uint32_t weigh_option(const struct hb_pairing *pairing, const struct option *option)
{
	bool behind = pairing->prefers_sharing && !hb_pairing_has_high(&pairing->gpus[option->gpu]);
	return 1 + (uint32_t)lround(WEIGHT_STEPS * (1 - option->speed)) + (behind ? WEIGHT_STEPS : 0);
}

static int compare_options(const void *a, const void *b)
{
	const struct option *x = a, *y = b;
	if (x->weight != y->weight)
		return x->weight < y->weight ? -1 : 1;
	return x->gpu < y->gpu ? -1 : x->gpu > y->gpu;
}

static json_t *pack_option(const struct hb_pairing *pairing, const struct hb_pairing_job *job,
			   const struct option *option)
{
	const struct hb_pairing_gpu *gpu = &pairing->gpus[option->gpu];
	json_t *object = json_object();
	add_gpu(object, pairing, gpu);
	json_object_set_new(object, "weight", json_integer(option->weight));
	json_object_set_new(object, "speed", rounded(option->speed));
	json_object_set_new(object, "beside", text_or_null(name_of(pairing, gpu->high, gpu->n_high)));
	if (hb_pairing_has_high(gpu)) {
		struct hb_pairing_guess guess = hb_pairing_predict(pairing, job, gpu);
		add_guess(object, &guess);
	}
	return object;
}

/* The best GPU of each node for this job, as if no other job of low priority waited. */
static json_t *pack_options(const struct hb_pairing *pairing, const struct hb_pairing_job *job)
{
	struct option *options = calloc(pairing->n_gpus + 1, sizeof *options);
	json_t *array = json_array();
	uint32_t n = 0;
	for (uint32_t i = 0; options && i < pairing->n_gpus; i++) {
		struct option option = {.speed = hb_pairing_speed(pairing, job, &pairing->gpus[i]), .gpu = i};
		bool same_node = n && pairing->gpus[options[n - 1].gpu].node == pairing->gpus[i].node;
		option.weight = weigh_option(pairing, &option);
		if (option.speed > 0 && (!same_node || option.weight < options[n - 1].weight))
			options[same_node ? n - 1 : n++] = option;
	}
	if (options)
		qsort(options, n, sizeof *options, compare_options);
	for (uint32_t i = 0; i < n && i < pairing->n_options; i++)
		json_array_append_new(array, pack_option(pairing, job, &options[i]));
	free(options);
	return array;
}

/* --- jobs ---------------------------------------------------------------------------------------------------------- */

/* What is predicted for the pair on the GPU, of which a job is part. */
static struct hb_pairing_guess guess_on(const struct hb_pairing *pairing, const struct hb_pairing_gpu *gpu)
{
	struct hb_pairing_job other = {.program = HB_PAIR_OTHER_LOW};
	return hb_pairing_predict(pairing, gpu->low != NONE ? &pairing->jobs[gpu->low] : &other, gpu);
}

static json_t *pack_job(const struct hb_pairing *pairing, const struct hb_pairing_job *job)
{
	const struct hb_pairing_gpu *gpu = job->gpu == NONE ? NULL : &pairing->gpus[job->gpu];
	const char *why = job->why;
	json_t *object = json_object();
	json_object_set_new(object, "name", json_string(job->name));
	json_object_set_new(object, "priority", json_string(job->is_high ? "high" : "low"));
	json_object_set_new(object, "runs", json_boolean(job->runs));
	add_gpu(object, pairing, gpu);
	if (gpu) {
		struct hb_pairing_guess guess = guess_on(pairing, gpu);
		const char *beside = job->is_high ? name_of(pairing, gpu->low, gpu->n_low)
						  : name_of(pairing, gpu->high, gpu->n_high);
		json_object_set_new(object, "beside", text_or_null(beside));
		double speed = speed_on(gpu, &guess);
		if (!job->is_high)
			json_object_set_new(object, "speed", speed > 0 ? rounded(speed) : json_null());
		if (*beside)
			add_guess(object, &guess);
		if (*beside && speed <= 0)
			why = "the two run already, and more attainment is lost than the job of high priority may lose";
	}
	json_object_set_new(object, "why", json_string(why));
	if (pairing->n_options && !job->is_high)
		json_object_set_new(object, "options", pack_options(pairing, job));
	return object;
}

static json_t *pack_total(const struct hb_pairing *pairing)
{
	uint32_t waiting = 0, used = 0, shared = 0;
	double speed = 0;
	for (uint32_t i = 0; i < pairing->n_jobs; i++)
		waiting += pairing->jobs[i].gpu == NONE;
	for (uint32_t i = 0; i < pairing->n_gpus; i++) {
		const struct hb_pairing_gpu *gpu = &pairing->gpus[i];
		bool high = hb_pairing_has_high(gpu), low = gpu->low != NONE || gpu->n_low;
		used += high || low;
		shared += high && low;
		if (gpu->low != NONE) {
			struct hb_pairing_guess guess = guess_on(pairing, gpu);
			speed += speed_on(gpu, &guess);
		}
	}
	return json_pack("{s:i, s:i, s:i, s:i, s:o}", "gpus", (int)pairing->n_gpus, "gpus_used", (int)used,
			 "gpus_shared", (int)shared, "waiting", (int)waiting, "speed", rounded(speed));
}

static json_t *pack_errors(const struct hb_pair_model *model)
{
	json_t *object = json_object();
	for (uint32_t sharing = HB_PAIR_TEMPORAL; sharing <= HB_PAIR_SPATIAL; sharing++) {
		struct hb_pair_error error = hb_pair_hold_out(model, sharing);
		json_object_set_new(object, hb_pair_sharing_names[sharing],
				    json_pack("{s:i, s:o, s:o}", "rows", (int)error.rows, "loss", rounded(error.loss),
					      "speed", rounded(error.speed)));
	}
	return object;
}

int hb_pairing_pack(const struct hb_pairing *pairing, json_t **root, struct hb_error *error)
{
	json_t *jobs = json_array();
	for (uint32_t i = 0; i < pairing->n_jobs; i++)
		json_array_append_new(jobs, pack_job(pairing, &pairing->jobs[i]));
	*root = hb_json_pack(error, "{s:i, s:o, s:o, s:o}", "version", 1, "jobs", jobs, "total", pack_total(pairing),
			     "model_error", pack_errors(pairing->model));
	return *root ? 0 : -ENOMEM;
}
