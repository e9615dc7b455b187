/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of the dispatcher: each has its own scheduler, predictor and journal. Called by dispatch.c and
 * dispatch_models.c, with the dispatcher's lock.
 */
#include "server/models/dispatch_priv.h"

#include "base/clock.h"
#include "server/backends/worker_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The journal of GPU 0 is the given file; the others' is FILE.gpuN. */
static int open_journal(struct hb_served_gpu *gpu, const char *path, struct hb_error *error)
{
	char *other = NULL;
	if (gpu->shared.index && asprintf(&other, "%s.gpu%u", path, gpu->shared.index) < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = hb_journal_new(other ? other : path, &gpu->journal, error);
	free(other);
	return result;
}

int hb_dispatch_make_gpus(struct hb_dispatch *dispatch, const struct hb_dispatch_config *config, struct hb_error *error)
{
	struct hb_scheduler_config scheduler;
	uint32_t n = config->n_gpus ? config->n_gpus : hb_worker_gpu_count((enum hb_worker_gpu)config->gpu);
	int result = 0;
	n = n < HB_ROUTE_GPUS_MAX ? n : HB_ROUTE_GPUS_MAX;
	hb_scheduler_config_init(&scheduler);
	scheduler.policy = config->policy;
	scheduler.queue_max = config->queue_max;
	memcpy(scheduler.late, config->late, sizeof(scheduler.late));
	dispatch->gpus_end = dispatch->gpus + n;
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		gpu->shared.speed = config->speed;
		gpu->shared.gpu = config->gpu;
		gpu->shared.index = (uint32_t)(gpu - dispatch->gpus);
		gpu->shared.n_gpus = n;
		if (result == 0 && config->journal)
			result = open_journal(gpu, config->journal, error);
		if (result == 0)
			result = hb_scheduler_new(&scheduler, &gpu->scheduler, error);
	}
	return result;
}

void hb_dispatch_free_gpus(struct hb_dispatch *dispatch)
{
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		hb_scheduler_free(gpu->scheduler);
		hb_journal_free(gpu->journal);
	}
}

int hb_dispatch_set_policy_of_gpus(struct hb_dispatch *dispatch, const char *policy, struct hb_error *error)
{
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		int result = hb_scheduler_check_policy(gpu->scheduler, policy, error);
		if (result < 0)
			return result;
	}
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		hb_scheduler_set_policy(gpu->scheduler, policy, error);
		hb_journal_policy(gpu->journal, hb_clock_now_ns(), policy);
	}
	return 0;
}

uint32_t hb_dispatch_admitted(const struct hb_dispatch *dispatch, enum hb_scheduler_priority priority)
{
	uint32_t n = 0;
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		n += hb_scheduler_admitted(gpu->scheduler, priority);
	return n;
}

uint32_t hb_dispatch_in_flight(const struct hb_dispatch *dispatch, uint32_t number)
{
	uint32_t n = 0;
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		n += hb_scheduler_in_flight(gpu->scheduler, number);
	return n;
}

bool hb_dispatch_is_loaded(const struct hb_dispatch *dispatch, uint32_t number)
{
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		if (gpu->backends[number].ops)
			return true;
	return false;
}

/* ---- replicas ---- */

static uint32_t count_replicas(const struct hb_served_gpu *gpu)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < HB_SCHEDULER_MODELS_MAX; i++)
		n += gpu->backends[i].ops != NULL;
	return n;
}

/* Lists the GPUs that the model may use, those with the fewest replicas first. Returns their number. */
static uint32_t list_gpus(struct hb_dispatch *dispatch, const struct hb_model_config *config,
			  struct hb_served_gpu **out)
{
	uint32_t n = 0, all = (uint32_t)(dispatch->gpus_end - dispatch->gpus);
	for (uint32_t i = 0; i < (config->n_gpus ? config->n_gpus : all); i++) {
		struct hb_served_gpu *gpu = &dispatch->gpus[config->n_gpus ? (uint32_t)config->gpus[i] : i];
		uint32_t at = n++;
		for (; at > 0 && count_replicas(out[at - 1]) > count_replicas(gpu); at--)
			out[at] = out[at - 1];
		out[at] = gpu;
	}
	return n;
}

int hb_dispatch_place_model(struct hb_dispatch *dispatch, struct hb_model_config *config, struct hb_served_gpu **out,
			    uint32_t *n, struct hb_error *error)
{
	uint32_t all = (uint32_t)(dispatch->gpus_end - dispatch->gpus);
	for (uint32_t i = 0; i < config->n_gpus; i++)
		if (config->gpus[i] >= all)
			return hb_error_set(error, -EINVAL,
					    "%s/model.yaml: gpus: %lld: the server uses %u GPUs, numbered from 0",
					    config->folder, (long long)config->gpus[i], all);
	uint32_t most = list_gpus(dispatch, config, out);
	if (config->replicas > most)
		return hb_error_set(
			error, -EINVAL,
			"%s/model.yaml: replicas: %lld: the model can use %u GPUs, with one replica on each",
			config->folder, (long long)config->replicas, most);
	*n = config->replicas ? (uint32_t)config->replicas : most;
	config->replicas = *n;
	return 0;
}

bool hb_served_replica_runs(const struct hb_backend *backend)
{
	return backend->ops && (!backend->state || *backend->state == HB_SERVED_MODEL_READY) &&
	       (!backend->runs || *backend->runs);
}

/* Lists the schedulers of all GPUs. Returns their number. */
static uint32_t list_schedulers(const struct hb_dispatch *dispatch, struct hb_scheduler **out)
{
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		out[gpu->shared.index] = gpu->scheduler;
	return (uint32_t)(dispatch->gpus_end - dispatch->gpus);
}

uint32_t hb_dispatch_find_waiting(struct hb_dispatch *dispatch, const struct hb_served_gpu *idle, uint32_t number)
{
	struct hb_scheduler *schedulers[HB_ROUTE_GPUS_MAX];
	uint32_t n = list_schedulers(dispatch, schedulers);
	return n > 1 ? hb_route_find_waiting(schedulers, n, idle->shared.index, number) : HB_ROUTE_GPUS_MAX;
}

uint32_t hb_dispatch_route(struct hb_dispatch *dispatch, int64_t now_ns, const struct hb_scheduler_request *request)
{
	struct hb_scheduler *schedulers[HB_ROUTE_GPUS_MAX];
	uint32_t ready = 0, running = 0;
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		const struct hb_backend *backend = &gpu->backends[request->model];
		uint32_t bit = 1u << gpu->shared.index;
		if (hb_served_replica_runs(backend))
			running |= bit;
		if (backend->ops && (!backend->state || *backend->state == HB_SERVED_MODEL_READY))
			ready |= bit;
	}
	list_schedulers(dispatch, schedulers);
	return hb_route_choose(schedulers, running ? running : ready, now_ns, request);
}

bool hb_dispatch_runs(const struct hb_dispatch *dispatch, uint32_t number)
{
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		if (hb_served_replica_runs(&gpu->backends[number]))
			return true;
	return false;
}

enum hb_served_model_state hb_dispatch_find_state(const struct hb_dispatch *dispatch, struct hb_served_model *model,
						  const struct hb_backend **backend)
{
	static const int rank[] = {[HB_SERVED_MODEL_READY] = 3,
				   [HB_SERVED_MODEL_LOADING] = 2,
				   [HB_SERVED_MODEL_RESTARTING] = 1,
				   [HB_SERVED_MODEL_FAILED] = 0,
				   [HB_SERVED_MODEL_UNLOADING] = 0};
	enum hb_served_model_state state = HB_SERVED_MODEL_UNLOADED;
	uint64_t restarts = 0, running = 0;
	*backend = NULL;
	for (const struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		const struct hb_backend *one = &gpu->backends[model->number];
		enum hb_served_model_state its = one->state ? (enum hb_served_model_state) * one->state
							    : HB_SERVED_MODEL_READY;
		if (!one->ops)
			continue;
		restarts += one->restarts ? *one->restarts : 0;
		running += hb_served_replica_runs(one);
		if (*backend && rank[its] <= rank[state])
			continue;
		*backend = one;
		state = its;
	}
	model->stats.running = running;
	if (*backend)
		model->stats.restarts = restarts;
	return state;
}
