/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The back end of `platform: trace`: instead of the model, a recorded program
 * runs on the simulated GPU (serving_gpu.h) in real time. Batches share that GPU
 * and slow each other down as on the real one; all outputs are zeros. It lets
 * users try clients, deadlines and priorities on a machine without a GPU.
 *
 * Built as the module hb-trace-backend.so; hb-serve loads it with the first
 * model that needs it (server/backends/backend_module.c).
 *
 * All trace models of a server share one simulated GPU. It is created with the
 * first model and freed with the last. GPU time = (clock - start) * speed. The
 * GPU advances whenever a model is polled; events of other models found on the
 * way are kept until those models are polled. While anything runs, the
 * dispatcher polls at most every POLL_NS, not at every kernel.
 */
#include "base/clock.h"
#include "base/paths.h"
#include "server/backends/backend_module.h"
#include "server/models/inference_check.h"
#include "simserving/serving_gpu.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRACE "traces/h200-pytorch-2.11.csv.gz"
#define GPU "h200"
#define POLL_NS 50000
/* Batches at one time of one model and priority. The scheduler starts fewer, but batches of an unloaded model may still run. */
#define LANES 4
#define EVENTS_MAX (HB_SCHEDULER_FLIGHTS_MAX * (HB_STAGES + 1))
#define NO_FLIGHT UINT32_MAX

struct trace_model {
	struct trace_gpu *gpu;
	struct hb_model_config config;
	uint32_t number; /* number of the model on the simulated GPU */
	uint32_t n_events, taken;
	struct hb_scheduler_provider_event events[EVENTS_MAX]; /* events that were not reported to the dispatcher yet */
};

/*
 * A batch on the simulated GPU; the GPU names the batch by its index in trace_gpu.flights. When its model is unloaded,
 * the batch still runs to its end, and the end is not reported.
 */
struct trace_flight {
	struct trace_model *model; /* NULL = unloaded */
	uint32_t slot;             /* the dispatcher's name for the batch */
	bool used;
};

struct trace_gpu {
	struct hb_backend_shared *shared;
	struct hb_trace_set traces;
	void *gpu;
	double speed;
	int64_t begun_ns,
		advanced_ns; /* clock times: creation of the GPU, and the time up to which the GPU has advanced */
	uint32_t users, n_models;
	struct hb_serving_model_options
		options[HB_SCHEDULER_MODELS_MAX]; /* options of each model; their strings are in `names` */
	char names[HB_SCHEDULER_MODELS_MAX][2][HB_MODEL_NAME_MAX];
	bool open[HB_SCHEDULER_MODELS_MAX];
	struct trace_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
};

/* ---- GPU time and clock time ---- */

/*
 * Returns the GPU time of the last advance. Server threads read the clock before they take the lock, so their times may
 * go backwards.
 */
static int64_t get_gpu_time(const struct trace_gpu *gpu)
{
	return (int64_t)((double)(gpu->advanced_ns - gpu->begun_ns) * gpu->speed);
}

static int64_t convert_to_clock_time(const struct trace_gpu *gpu, int64_t at_ns)
{
	return gpu->begun_ns + (int64_t)ceil((double)at_ns / gpu->speed);
}

/* Advances the GPU to now_ns and stores each event with its model. */
static void advance_gpu(struct trace_gpu *gpu, int64_t now_ns)
{
	struct hb_scheduler_provider_event event;
	if (now_ns > gpu->advanced_ns)
		gpu->advanced_ns = now_ns;
	while (hb_serving_gpu_ops.poll(gpu->gpu, get_gpu_time(gpu), &event)) {
		struct trace_flight *flight = &gpu->flights[event.slot];
		struct trace_model *model = flight->model;
		event.at_ns = convert_to_clock_time(gpu, event.at_ns);
		event.slot = flight->slot;
		if (event.stage == HB_STAGES)
			*flight = (struct trace_flight){.used = false};
		if (model)
			model->events[model->n_events++] = event;
	}
}

/* ---- batches ---- */

static uint32_t find_free_flight(struct trace_gpu *gpu)
{
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (!gpu->flights[i].used)
			return i;
	return NO_FLIGHT;
}

static int start_batch(void *self, int64_t now_ns, uint32_t slot, uint32_t number,
		       const struct hb_scheduler_batch *batch)
{
	struct trace_model *model = self;
	struct trace_gpu *gpu = model->gpu;
	uint32_t flight = find_free_flight(gpu);
	if (flight == NO_FLIGHT)
		return -EBUSY;
	for (uint32_t i = 0; i < batch->n_requests; i++)
		if (!hb_inference_make_outputs(hb_backend_inference(batch->cookies[i]), &model->config))
			return -ENOMEM;
	advance_gpu(gpu, now_ns);
	int result = hb_serving_gpu_ops.start(gpu->gpu, get_gpu_time(gpu), flight, model->number, batch);
	if (result == 0)
		gpu->flights[flight] = (struct trace_flight){.model = model, .slot = slot, .used = true};
	return result;
}

static void pause_batch(void *self, int64_t now_ns, uint32_t slot, bool paused)
{
	const struct trace_model *model = self;
	struct trace_gpu *gpu = model->gpu;
	advance_gpu(gpu, now_ns);
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (gpu->flights[i].used && gpu->flights[i].model == model && gpu->flights[i].slot == slot)
			hb_serving_gpu_ops.pause(gpu->gpu, get_gpu_time(gpu), i, paused);
}

static bool poll_events(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct trace_model *model = self;
	if (model->taken == model->n_events) {
		model->taken = model->n_events = 0;
		advance_gpu(model->gpu, now_ns);
	}
	if (model->taken == model->n_events)
		return false;
	*event = model->events[model->taken++];
	return true;
}

static int64_t next_poll_ns(void *self)
{
	const struct trace_model *model = self;
	int64_t next = hb_serving_gpu_ops.next_ns(model->gpu->gpu), soonest = model->gpu->advanced_ns + POLL_NS;
	if (model->taken < model->n_events)
		return 0;
	if (next == INT64_MAX)
		return next;
	next = convert_to_clock_time(model->gpu, next);
	return next > soonest ? next : soonest;
}

/* ---- models ---- */

static uint32_t count_models(void *self)
{
	return 1;
}

static int describe_model(void *self, uint32_t number, struct hb_scheduler_model *out)
{
	const struct trace_model *model = self;
	struct hb_scheduler_model known;
	hb_serving_gpu_ops.model(model->gpu->gpu, model->number, &known);
	memcpy(out->sm_demand, known.sm_demand, sizeof(out->sm_demand));
	memcpy(out->memory_demand, known.memory_demand, sizeof(out->memory_demand));
	out->in_bytes = known.in_bytes;
	out->out_bytes = known.out_bytes;
	out->stop_share = known.stop_share;
	return 0;
}

static int profile_batch(void *self, uint32_t number, uint32_t items, double stage_ns[HB_STAGES])
{
	const struct trace_model *model = self;
	int result = hb_serving_gpu_ops.profile(model->gpu->gpu, model->number, items, stage_ns);
	for (int i = 0; i < HB_STAGES; i++)
		stage_ns[i] /= model->gpu->speed;
	return result;
}

static bool are_options_equal(const struct hb_serving_model_options *a, const struct hb_serving_model_options *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->program, b->program) == 0 && a->max_items == b->max_items &&
	       a->in_bytes == b->in_bytes && a->out_bytes == b->out_bytes;
}

/* Reuses the number of a closed model that has no running batch. Returns the number or a negative errno. */
static int reuse_number(struct trace_gpu *gpu, const struct hb_serving_model_options *wanted, struct hb_error *error)
{
	int result = hb_error_set(error, -ENOSPC, "model %s: the simulated GPU has %d models", wanted->name,
				  HB_SCHEDULER_MODELS_MAX);
	for (uint32_t i = 0; i < gpu->n_models; i++) {
		if (gpu->open[i])
			continue;
		result = hb_serving_gpu_replace_model(gpu->gpu, i, wanted, error);
		if (result != -EBUSY)
			return result == 0 ? (int)i : result;
	}
	return result;
}

/* Chooses the number of a model on the simulated GPU: the one it had before, a new one, or the one of a closed model. */
static int choose_number(struct trace_gpu *gpu, const struct hb_model_config *config, struct hb_error *error)
{
	struct hb_serving_model_options wanted = {.name = config->name,
						  .program = config->trace,
						  .max_items = config->max_batch ? (uint32_t)config->max_batch : 1};
	wanted.in_bytes = (double)config->transfer_bytes[0];
	wanted.out_bytes = (double)config->transfer_bytes[1];
	for (uint32_t i = 0; i < config->n_inputs && !config->n_transfer; i++)
		wanted.in_bytes += (double)hb_tensor_spec_bytes(&config->inputs[i]);
	for (uint32_t i = 0; i < config->n_outputs && !config->n_transfer; i++)
		wanted.out_bytes += (double)hb_tensor_spec_bytes(&config->outputs[i]);
	for (uint32_t i = 0; i < gpu->n_models; i++)
		if (!gpu->open[i] && are_options_equal(&gpu->options[i], &wanted))
			return (int)i;
	int number = gpu->n_models < HB_SCHEDULER_MODELS_MAX ? hb_serving_gpu_add_model(gpu->gpu, &wanted, error)
							     : reuse_number(gpu, &wanted, error);
	if (number < 0)
		return number;
	gpu->n_models += (uint32_t)number == gpu->n_models;
	struct hb_serving_model_options *kept = &gpu->options[number];
	memcpy(gpu->names[number][0], config->name, sizeof(config->name));
	memcpy(gpu->names[number][1], config->trace, sizeof(config->trace));
	*kept = wanted;
	kept->name = gpu->names[number][0];
	kept->program = gpu->names[number][1];
	return number;
}

static void free_gpu(struct trace_gpu *gpu)
{
	gpu->shared->trace_gpu = NULL;
	hb_serving_gpu_ops.close(gpu->gpu);
	hb_trace_set_fini(&gpu->traces);
	free(gpu);
}

static int open_gpu(struct hb_backend_shared *shared, struct hb_error *error)
{
	char path[PATH_MAX];
	struct trace_gpu *gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return hb_error_set(error, -ENOMEM, "out of memory for the simulated GPU");
	gpu->shared = shared;
	gpu->speed = shared->speed;
	gpu->begun_ns = gpu->advanced_ns = hb_clock_now_ns();
	int result = hb_path_data(TRACE, path, sizeof(path), error);
	result = result ? result : hb_trace_read_csv(path, &gpu->traces, error);
	struct hb_serving_gpu_options options = {.traces = &gpu->traces, .gpu = GPU, .lanes = LANES, .only = ""};
	result = result ? result : hb_serving_gpu_new(&options, &gpu->gpu, error);
	if (result < 0) {
		free_gpu(gpu);
		return result;
	}
	shared->trace_gpu = gpu;
	return 0;
}

static void release_gpu(struct trace_gpu *gpu)
{
	if (--gpu->users == 0)
		free_gpu(gpu);
}

static void close_model(void *self)
{
	struct trace_model *model = self;
	struct trace_gpu *gpu = model->gpu;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (gpu->flights[i].model == model)
			gpu->flights[i].model = NULL;
	gpu->open[model->number] = false;
	free(model);
	release_gpu(gpu);
}

static const struct hb_scheduler_provider_ops ops = {
	.name = "trace",
	.models = count_models,
	.model = describe_model,
	.profile = profile_batch,
	.start = start_batch,
	.pause = pause_batch,
	.poll = poll_events,
	.next_ns = next_poll_ns,
	.close = close_model,
};

static int open_trace(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		      struct hb_error *error)
{
	struct trace_model *model = calloc(1, sizeof(*model));
	int result = model ? 0 : hb_error_set(error, -ENOMEM, "model %s: out of memory", config->name);
	if (result == 0 && !shared->trace_gpu)
		result = open_gpu(shared, error);
	if (result < 0) {
		free(model);
		return result;
	}
	model->gpu = shared->trace_gpu;
	model->config = *config;
	model->gpu->users++;
	result = choose_number(model->gpu, config, error);
	if (result < 0) {
		release_gpu(model->gpu);
		free(model);
		return result;
	}
	model->number = (uint32_t)result;
	model->gpu->open[model->number] = true;
	*out = (struct hb_backend){.ops = &ops, .self = model};
	return 0;
}

__attribute__((visibility("default"))) const struct hb_backend_module hb_backend_module = {
	.interface = HB_BACKEND_INTERFACE,
	.platform = {.name = "trace", .open = open_trace},
};
