/* SPDX-License-Identifier: Apache-2.0 */
/* Measures demands; see serving_demand.h. */
#include "simserving/serving_demand.h"

#include "server/scheduler/demand.h"

#include <errno.h>

/* The batch runs on this part of the SMs, and the other program has this part of them for itself. */
#define SM_PART 8
/* The other program runs this many times as long as the batch alone. */
#define COMPANY_LENGTH 16
#define COMPANY_THREADS 1024

enum { COOKIE_BATCH = 1, COOKIE_COMPANY };

struct demand_trial {
	uint32_t sm_limit;    /* SMs of the batch; 0 = all */
	int64_t company_ns;   /* duration of the other program; 0 = there is none */
	double company_share; /* of the memory bandwidth */
};

/* Adds a process with one stream. Returns the stream or a negative errno. */
static int add_stream(struct hb_gpu_model *model, int context, uint32_t sm_limit, int priority)
{
	int client = hb_gpu_model_add_client(model, context, sm_limit);
	return client < 0 ? client : hb_gpu_model_add_stream(model, client, priority);
}

static int submit_trial(struct hb_gpu_model *model, const struct hb_gpu_spec *spec, const struct demand_trial *trial,
			const struct hb_gpu_model_work *works, size_t n_works)
{
	const struct hb_gpu_model_context mps = {.mps = true};
	const uint32_t part = (uint32_t)spec->sm_count / SM_PART;
	const struct hb_gpu_model_work company = {.kind = HB_GPU_MODEL_KERNEL,
						  .duration_ns = trial->company_ns,
						  .blocks = part,
						  .threads = COMPANY_THREADS,
						  .memory_share = trial->company_share,
						  .cookie = COOKIE_COMPANY};
	int context = hb_gpu_model_add_context(model, &mps);
	int batch = context < 0 ? context : add_stream(model, context, trial->sm_limit, -5);
	int other = batch < 0 ? batch : add_stream(model, context, part, 0);
	int result = other < 0 ? other : 0;
	if (result == 0 && trial->company_ns)
		result = hb_gpu_model_submit(model, 0, other, &company);
	return result < 0 ? result : hb_gpu_model_submit_graph(model, 0, batch, works, n_works, COOKIE_BATCH);
}

/* Returns the time of the batch in *ns. */
static int run_trial(const struct hb_gpu_spec *spec, const struct demand_trial *trial,
		     const struct hb_gpu_model_work *works, size_t n_works, int64_t *ns)
{
	struct hb_gpu_model *model = hb_gpu_model_new(spec);
	struct hb_gpu_model_completion done = {.cookie = 0};
	int result = model ? submit_trial(model, spec, trial, works, n_works) : -ENOMEM;
	while (result == 0 && done.cookie != COOKIE_BATCH) {
		int64_t next_ns = hb_gpu_model_next_ns(model);
		if (next_ns == INT64_MAX)
			result = -EINVAL; /* the batch never ends */
		else
			hb_gpu_model_advance(model, next_ns);
		while (result == 0 && done.cookie != COOKIE_BATCH && hb_gpu_model_pop(model, &done))
			;
	}
	*ns = done.end_ns;
	hb_gpu_model_free(model);
	return result;
}

int hb_serving_measure_demand(const struct hb_gpu_spec *spec, const struct hb_gpu_model_work *works, size_t n_works,
			      double *sm, double *memory)
{
	int64_t alone_ns, limited_ns, beside_ns, beside_memory_ns;
	const uint32_t part = (uint32_t)spec->sm_count / SM_PART;
	int result = run_trial(spec, &(struct demand_trial){0, 0, 0}, works, n_works, &alone_ns);
	if (result == 0)
		result = run_trial(spec, &(struct demand_trial){part, 0, 0}, works, n_works, &limited_ns);
	if (result == 0)
		result = run_trial(spec, &(struct demand_trial){0, COMPANY_LENGTH * alone_ns, 0}, works, n_works,
				   &beside_ns);
	if (result == 0)
		result = run_trial(spec, &(struct demand_trial){0, COMPANY_LENGTH * alone_ns, 1}, works, n_works,
				   &beside_memory_ns);
	if (result < 0)
		return result;
	const struct hb_demand_times times = {.alone = (double)alone_ns,
					      .limited = (double)limited_ns,
					      .sm_part = 1.0 / SM_PART,
					      .beside = (double)beside_ns,
					      .beside_memory = (double)beside_memory_ns};
	return hb_demand_infer(&times, sm, memory);
}
