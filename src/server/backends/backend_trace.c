/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace back end: a recorded program takes the model's place, on the
 * simulated GPU (simserving/serving_gpu.h), in real time. What runs beside what, and how
 * it slows down, is as on that GPU; the answers are zeros. It is what a model
 * runs on where there is no GPU, so that clients, deadlines and priorities can
 * be tried anywhere.
 *
 * One simulated GPU for all models of a server: opened with the first of them,
 * closed with the last. Its time is the clock's, times the speed that was asked
 * for. It moves on whenever a model is polled; what is found on the way waits
 * with its model until that is polled. It is not woken for every kernel but,
 * while anything runs, every LOOK_NS.
 */
#include "base/clock.h"
#include "base/paths.h"
#include "server/backends/backend.h"
#include "simserving/serving_gpu.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRACE "traces/h200-pytorch-2.11.csv.gz"
#define GPU "h200"
#define LOOK_NS 50000
/* Of a model and priority: more than the scheduler starts, as unloading leaves some running. */
#define LANES 4
#define EVENTS_MAX (HB_SCHEDULER_FLIGHTS_MAX * (HB_STAGES + 1))
#define NOBODY UINT32_MAX

struct trace_model {
	struct trace_gpu *gpu;
	struct hb_model_config config;
	uint32_t number; /* the simulated GPU's */
	uint32_t n_events, taken;
	struct hb_scheduler_provider_event events[EVENTS_MAX]; /* happened, not polled yet */
};

/* A batch on the simulated GPU, which has numbers of its own for them: one whose model was unloaded runs on for nobody. */
struct trace_flight {
	struct trace_model *model; /* NULL: for nobody */
	uint32_t slot;             /* the dispatcher's */
	bool used;
};

struct trace_gpu {
	struct hb_backend_shared *shared;
	struct hb_trace_set traces;
	void *gpu;
	double speed;
	int64_t begun_ns, looked_ns;
	uint32_t users, n_models;
	struct hb_serving_model_wish wishes[HB_SCHEDULER_MODELS_MAX]; /* names are in `names` */
	char names[HB_SCHEDULER_MODELS_MAX][2][HB_MODEL_NAME_MAX];
	bool open[HB_SCHEDULER_MODELS_MAX];
	struct trace_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
};

/* ---- its time and the clock's ---- */

/* Of the last look: threads of the server read the clock before they take its lock, so their times may be out of order. */
static int64_t gpu_time(const struct trace_gpu *gpu)
{
	int64_t now_ns = gpu->looked_ns;
	return (int64_t)((double)(now_ns - gpu->begun_ns) * gpu->speed);
}

static int64_t clock_time(const struct trace_gpu *gpu, int64_t at_ns)
{
	return gpu->begun_ns + (int64_t)ceil((double)at_ns / gpu->speed);
}

/* Moves on to now; what happens is put with its model. */
static void look(struct trace_gpu *gpu, int64_t now_ns)
{
	struct hb_scheduler_provider_event event;
	if (now_ns > gpu->looked_ns)
		gpu->looked_ns = now_ns;
	while (hb_serving_gpu_ops.poll(gpu->gpu, gpu_time(gpu), &event)) {
		struct trace_flight *flight = &gpu->flights[event.slot];
		struct trace_model *model = flight->model;
		event.at_ns = clock_time(gpu, event.at_ns);
		event.slot = flight->slot;
		if (event.stage == HB_STAGES)
			*flight = (struct trace_flight){.used = false};
		if (model)
			model->events[model->n_events++] = event;
	}
}

/* ---- batches ---- */

static uint32_t flight_take(struct trace_gpu *gpu)
{
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (!gpu->flights[i].used)
			return i;
	return NOBODY;
}

static int start(void *self, int64_t now_ns, uint32_t slot, uint32_t number, const struct hb_scheduler_batch *batch)
{
	struct trace_model *model = self;
	struct trace_gpu *gpu = model->gpu;
	uint32_t flight = flight_take(gpu);
	if (flight == NOBODY)
		return -EBUSY;
	for (uint32_t i = 0; i < batch->n_requests; i++)
		if (!hb_inference_make_outputs(hb_backend_request(batch->cookies[i]), &model->config))
			return -ENOMEM;
	look(gpu, now_ns);
	int result = hb_serving_gpu_ops.start(gpu->gpu, gpu_time(gpu), flight, model->number, batch);
	if (result == 0)
		gpu->flights[flight] = (struct trace_flight){.model = model, .slot = slot, .used = true};
	return result;
}

static void hold(void *self, int64_t now_ns, uint32_t slot, bool held)
{
	const struct trace_model *model = self;
	struct trace_gpu *gpu = model->gpu;
	look(gpu, now_ns);
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (gpu->flights[i].used && gpu->flights[i].model == model && gpu->flights[i].slot == slot)
			hb_serving_gpu_ops.hold(gpu->gpu, gpu_time(gpu), i, held);
}

static bool poll(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct trace_model *model = self;
	if (model->taken == model->n_events) {
		model->taken = model->n_events = 0;
		look(model->gpu, now_ns);
	}
	if (model->taken == model->n_events)
		return false;
	*event = model->events[model->taken++];
	return true;
}

static int64_t next_ns(void *self)
{
	const struct trace_model *model = self;
	int64_t next = hb_serving_gpu_ops.next_ns(model->gpu->gpu), soonest = model->gpu->looked_ns + LOOK_NS;
	if (model->taken < model->n_events)
		return 0;
	if (next == INT64_MAX)
		return next;
	next = clock_time(model->gpu, next);
	return next > soonest ? next : soonest;
}

/* ---- models ---- */

static uint32_t models(void *self)
{
	return 1;
}

static int describe(void *self, uint32_t number, struct hb_scheduler_model *out)
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

static int profile(void *self, uint32_t number, uint32_t items, double stage_ns[HB_STAGES])
{
	const struct trace_model *model = self;
	int result = hb_serving_gpu_ops.profile(model->gpu->gpu, model->number, items, stage_ns);
	for (int i = 0; i < HB_STAGES; i++)
		stage_ns[i] /= model->gpu->speed;
	return result;
}

static bool same_wish(const struct hb_serving_model_wish *a, const struct hb_serving_model_wish *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->program, b->program) == 0 && a->max_items == b->max_items &&
	       a->in_bytes == b->in_bytes && a->out_bytes == b->out_bytes;
}

/* That of one which was closed and of which nothing runs any more. */
static int replace_closed(struct trace_gpu *gpu, const struct hb_serving_model_wish *wish, struct hb_error *error)
{
	int result = hb_error_set(error, -ENOSPC, "model %s: the simulated GPU has %d models", wish->name,
				  HB_SCHEDULER_MODELS_MAX);
	for (uint32_t i = 0; i < gpu->n_models; i++) {
		if (gpu->open[i])
			continue;
		result = hb_serving_gpu_replace_model(gpu->gpu, i, wish, error);
		if (result != -EBUSY)
			return result == 0 ? (int)i : result;
	}
	return result;
}

/* The number of such a model on the simulated GPU: the one it had before, a new one, or that of one which was closed. */
static int number_for(struct trace_gpu *gpu, const struct hb_model_config *config, struct hb_error *error)
{
	struct hb_serving_model_wish wish = {.name = config->name,
					     .program = config->trace,
					     .max_items = config->max_batch ? (uint32_t)config->max_batch : 1};
	wish.in_bytes = (double)config->transfer_bytes[0];
	wish.out_bytes = (double)config->transfer_bytes[1];
	for (uint32_t i = 0; i < config->n_inputs && !config->n_transfer; i++)
		wish.in_bytes += (double)hb_tensor_spec_bytes(&config->inputs[i]);
	for (uint32_t i = 0; i < config->n_outputs && !config->n_transfer; i++)
		wish.out_bytes += (double)hb_tensor_spec_bytes(&config->outputs[i]);
	for (uint32_t i = 0; i < gpu->n_models; i++)
		if (!gpu->open[i] && same_wish(&gpu->wishes[i], &wish))
			return (int)i;
	int number = gpu->n_models < HB_SCHEDULER_MODELS_MAX ? hb_serving_gpu_add_model(gpu->gpu, &wish, error)
							     : replace_closed(gpu, &wish, error);
	if (number < 0)
		return number;
	gpu->n_models += (uint32_t)number == gpu->n_models;
	struct hb_serving_model_wish *kept = &gpu->wishes[number];
	memcpy(gpu->names[number][0], config->name, sizeof(config->name));
	memcpy(gpu->names[number][1], config->trace, sizeof(config->trace));
	*kept = wish;
	kept->name = gpu->names[number][0];
	kept->program = gpu->names[number][1];
	return number;
}

static void free_gpu(struct trace_gpu *gpu)
{
	gpu->shared->trace = NULL;
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
	gpu->begun_ns = gpu->looked_ns = hb_clock_now_ns();
	int result = hb_path_data(TRACE, path, sizeof(path), error);
	result = result ? result : hb_trace_read_csv(path, &gpu->traces, error);
	struct hb_serving_gpu_options options = {.traces = &gpu->traces, .gpu = GPU, .lanes = LANES, .only = ""};
	result = result ? result : hb_serving_gpu_new(&options, &gpu->gpu, error);
	if (result < 0) {
		free_gpu(gpu);
		return result;
	}
	shared->trace = gpu;
	return 0;
}

static void leave_gpu(struct trace_gpu *gpu)
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
	leave_gpu(gpu);
}

static const struct hb_scheduler_provider_ops ops = {
	.name = "trace",
	.models = models,
	.model = describe,
	.profile = profile,
	.start = start,
	.hold = hold,
	.poll = poll,
	.next_ns = next_ns,
	.close = close_model,
};

static int open_trace(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		      struct hb_error *error)
{
	struct trace_model *model = calloc(1, sizeof(*model));
	int result = model ? 0 : hb_error_set(error, -ENOMEM, "model %s: out of memory", config->name);
	if (result == 0 && !shared->trace)
		result = open_gpu(shared, error);
	if (result < 0) {
		free(model);
		return result;
	}
	model->gpu = shared->trace;
	model->config = *config;
	model->gpu->users++;
	result = number_for(model->gpu, config, error);
	if (result < 0) {
		leave_gpu(model->gpu);
		free(model);
		return result;
	}
	model->number = (uint32_t)result;
	model->gpu->open[model->number] = true;
	*out = (struct hb_backend){.ops = &ops, .self = model};
	return 0;
}

const struct hb_platform hb_backend_trace = {.name = "trace", .open = open_trace};
