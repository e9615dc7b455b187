/* SPDX-License-Identifier: Apache-2.0 */
/* Runs batches on the GPU model; see serving_gpu.h. */
#include "simserving/serving_gpu.h"

#include "gpumodel/model.h"
#include "simserving/serving_models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Processes that copy take turns after this time. On an H200 the link then reaches 54.5 of 54.9 GB/s, and waits stay short. */
#define COPY_SLICE_NS 100000
/* A batch that can be paused is launched in steps of this many kernels, with this many steps queued on the GPU. */
#define STEP_KERNELS 16
#define STEPS_AHEAD 2
#define LANES_MAX 8
#define HIGH_STREAM (-5)

/* A stream of a worker process. */
struct serving_lane {
	int stream;
	bool busy;
};

struct serving_flight {
	const struct hb_serving_program *program;
	struct serving_lane *lane;
	double out_bytes;
	size_t next;    /* first kernel that is not launched yet */
	uint32_t steps; /* launched steps that have not ended */
	bool used, copies_in, can_pause, paused;
};

struct serving_gpu {
	struct hb_serving_models models;
	const struct hb_trace_set *traces;
	struct hb_gpu_spec spec;
	int context;
	struct hb_gpu_model *model;
	uint32_t lanes_each;
	enum hb_demand_source demand;
	struct serving_lane lanes[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES][LANES_MAX];
	struct serving_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
};

/* Makes the cookie of a completion from slot and stage. */
static uint64_t make_cookie(uint32_t slot, enum hb_scheduler_stage stage)
{
	return (uint64_t)slot << 8 | stage;
}

static int open_lanes(struct serving_gpu *gpu, uint32_t model)
{
	for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++) {
		int client = hb_gpu_model_add_client(gpu->model, gpu->context, 0);
		if (client < 0)
			return client;
		for (uint32_t i = 0; i < gpu->lanes_each; i++) {
			int priority = class == HB_SCHEDULER_HIGH ? HIGH_STREAM : 0;
			int stream = hb_gpu_model_add_stream(gpu->model, client, priority);
			if (stream < 0)
				return stream;
			gpu->lanes[model][class][i].stream = stream;
		}
	}
	return 0;
}

static void close_gpu(void *self)
{
	struct serving_gpu *gpu = self;
	if (!gpu)
		return;
	hb_gpu_model_free(gpu->model);
	hb_serving_models_fini(&gpu->models);
	free(gpu);
}

/* As in server/models/model_config.c. */
static const double typed_sm[2] = {0.5, 1}, typed_memory[2] = {0.3, 0.5};

/* Replaces the demands of batches of one item and of max_items. */
static int choose_demands(struct serving_gpu *gpu, uint32_t model)
{
	struct hb_scheduler_model *known = &gpu->models.known[model];
	int rc = 0;
	if (gpu->demand == HB_DEMAND_KNOWN)
		return 0;
	if (gpu->demand == HB_DEMAND_TYPED) {
		memcpy(known->sm_demand, typed_sm, sizeof typed_sm);
		memcpy(known->memory_demand, typed_memory, sizeof typed_memory);
		return 0;
	}
	for (int i = 0; i < 2 && !rc; i++) {
		const struct hb_serving_program *program = &gpu->models.program[model][i == 0 ? 1 : known->max_items];
		rc = hb_serving_measure_demand(&gpu->spec, program->works, program->n, &known->sm_demand[i],
					       &known->memory_demand[i]);
	}
	return rc;
}

static int set_up_gpu(struct serving_gpu *gpu, const char *only, struct hb_error *error)
{
	int rc = hb_serving_models_init(&gpu->models, only, gpu->traces, &gpu->spec, error);
	if (rc)
		return rc;
	struct hb_gpu_model_context context = {.copy_slice_ns = COPY_SLICE_NS, .mps = true};
	gpu->model = hb_gpu_model_new(&gpu->spec);
	rc = gpu->context = gpu->model ? hb_gpu_model_add_context(gpu->model, &context) : -ENOMEM;
	for (uint32_t model = 0; model < gpu->models.n && rc >= 0; model++) {
		rc = open_lanes(gpu, model);
		rc = rc < 0 ? rc : choose_demands(gpu, model);
	}
	return rc < 0 ? hb_error_set(error, rc, "out of memory for the simulated GPU") : 0;
}

int hb_serving_gpu_add_model(void *self, const struct hb_serving_model_options *wanted, struct hb_error *error)
{
	struct serving_gpu *gpu = self;
	int index = hb_serving_models_add(&gpu->models, wanted, gpu->traces, &gpu->spec, error);
	int rc = index < 0 ? 0 : open_lanes(gpu, (uint32_t)index);
	return rc < 0 ? hb_error_set(error, rc, "out of memory for the simulated GPU") : index;
}

int hb_serving_gpu_replace_model(void *self, uint32_t model, const struct hb_serving_model_options *wanted,
				 struct hb_error *error)
{
	struct serving_gpu *gpu = self;
	if (model >= gpu->models.n)
		return hb_error_set(error, -EINVAL, "no model has the number %u", model);
	for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++)
		for (uint32_t i = 0; i < gpu->lanes_each; i++)
			if (gpu->lanes[model][class][i].busy)
				return hb_error_set(error, -EBUSY, "model %s: batches of the previous model still run",
						    wanted->name);
	return hb_serving_models_replace(&gpu->models, model, wanted, gpu->traces, &gpu->spec, error);
}

int hb_serving_gpu_new(const struct hb_serving_gpu_options *options, void **out, struct hb_error *error)
{
	struct hb_gpu_spec spec;
	if (options->lanes < 1 || options->lanes > LANES_MAX)
		return hb_error_set(error, -EINVAL, "%u batches in flight of a model: must be 1 to %d", options->lanes,
				    LANES_MAX);
	int rc = hb_gpu_spec_load(options->gpu, &spec, error);
	if (rc)
		return rc;
	if (options->link_bytes_per_s > 0)
		spec.pcie_h2d_bytes_per_s = spec.pcie_d2h_bytes_per_s = options->link_bytes_per_s;
	struct serving_gpu *gpu = calloc(1, sizeof *gpu);
	if (!gpu)
		return hb_error_set(error, -ENOMEM, "out of memory");
	gpu->lanes_each = options->lanes;
	gpu->demand = options->demand;
	gpu->traces = options->traces;
	gpu->spec = spec;
	rc = set_up_gpu(gpu, options->only, error);
	if (rc) {
		close_gpu(gpu);
		return rc;
	}
	*out = gpu;
	return 0;
}

static uint32_t count_models(void *self)
{
	return ((struct serving_gpu *)self)->models.n;
}

static int describe_model(void *self, uint32_t model, struct hb_scheduler_model *out)
{
	struct serving_gpu *gpu = self;
	if (model >= gpu->models.n)
		return -EINVAL;
	*out = gpu->models.known[model];
	/* After a pause the queued steps still execute; on average the first one is half done. */
	double still_runs = (STEPS_AHEAD - 0.5) * STEP_KERNELS / (double)gpu->models.program[model][1].n;
	out->stop_share = still_runs < 1 ? still_runs : 1;
	return 0;
}

/* Submits copy in, graph and copy out to an idle GPU; the cookies are the stages. */
static int submit_alone(struct serving_gpu *gpu, struct hb_gpu_model *alone, uint32_t model, uint32_t items)
{
	const struct hb_scheduler_model *known = &gpu->models.known[model];
	const struct hb_serving_program *program = &gpu->models.program[model][items];
	struct hb_gpu_model_context context = {.copy_slice_ns = COPY_SLICE_NS, .mps = true};
	struct hb_gpu_model_work in = {.kind = HB_GPU_MODEL_COPY_H2D, .bytes = (uint64_t)(known->in_bytes * items)};
	struct hb_gpu_model_work out = {.kind = HB_GPU_MODEL_COPY_D2H, .bytes = (uint64_t)(known->out_bytes * items)};
	in.cookie = HB_STAGE_IN;
	out.cookie = HB_STAGE_OUT;
	int rc = hb_gpu_model_add_context(alone, &context);
	rc = rc < 0 ? rc : hb_gpu_model_add_client(alone, rc, 0);
	int stream = rc < 0 ? rc : hb_gpu_model_add_stream(alone, rc, HIGH_STREAM);
	rc = stream < 0 ? stream : in.bytes ? hb_gpu_model_submit(alone, 0, stream, &in) : 0;
	rc = rc ? rc : hb_gpu_model_submit_graph(alone, 0, stream, program->works, program->n, HB_STAGE_RUN);
	return !rc && out.bytes ? hb_gpu_model_submit(alone, 0, stream, &out) : rc;
}

static int profile_batch(void *self, uint32_t model, uint32_t items, double stage_ns[HB_STAGES])
{
	struct serving_gpu *gpu = self;
	if (model >= gpu->models.n || items < 1 || items > gpu->models.known[model].max_items)
		return -EINVAL;
	struct hb_gpu_model *alone = hb_gpu_model_new(&gpu->spec);
	struct hb_gpu_model_completion done;
	int rc = alone ? submit_alone(gpu, alone, model, items) : -ENOMEM;
	double since_ns = 0;
	memset(stage_ns, 0, HB_STAGES * sizeof *stage_ns);
	while (!rc && hb_gpu_model_next_ns(alone) != INT64_MAX) {
		hb_gpu_model_advance(alone, hb_gpu_model_next_ns(alone));
		while (hb_gpu_model_pop(alone, &done)) {
			stage_ns[done.cookie] = (double)done.end_ns - since_ns;
			since_ns = (double)done.end_ns;
		}
	}
	hb_gpu_model_free(alone);
	return rc;
}

static int submit_copy(struct serving_gpu *gpu, int64_t now_ns, const struct serving_flight *flight, uint32_t slot,
		       enum hb_scheduler_stage stage, double bytes)
{
	struct hb_gpu_model_work work = {
		.kind = stage == HB_STAGE_IN ? HB_GPU_MODEL_COPY_H2D : HB_GPU_MODEL_COPY_D2H,
		.bytes = (uint64_t)bytes,
		.cookie = make_cookie(slot, stage),
	};
	return hb_gpu_model_submit(gpu->model, now_ns, flight->lane->stream, &work);
}

static int submit_copy_out(struct serving_gpu *gpu, int64_t now_ns, const struct serving_flight *flight, uint32_t slot)
{
	return flight->out_bytes > 0 ? submit_copy(gpu, now_ns, flight, slot, HB_STAGE_OUT, flight->out_bytes) : 0;
}

/* Launches the complete graph, or as many of its next steps as may be queued now. */
static int submit_run(struct serving_gpu *gpu, int64_t now_ns, struct serving_flight *flight, uint32_t slot)
{
	const struct hb_serving_program *program = flight->program;
	bool all = !flight->can_pause;
	int rc = 0;
	while (!rc && flight->next < program->n && (all || (!flight->paused && flight->steps < STEPS_AHEAD))) {
		size_t left = program->n - flight->next;
		size_t n = all || left < STEP_KERNELS ? left : STEP_KERNELS;
		rc = hb_gpu_model_submit_graph(gpu->model, now_ns, flight->lane->stream, &program->works[flight->next],
					       n, make_cookie(slot, HB_STAGE_RUN));
		flight->next += n;
		flight->steps++;
		if (!rc && flight->next == program->n)
			rc = submit_copy_out(gpu, now_ns, flight, slot);
	}
	return rc;
}

static int start_batch(void *self, int64_t now_ns, uint32_t slot, uint32_t model,
		       const struct hb_scheduler_batch *batch)
{
	struct serving_gpu *gpu = self;
	uint32_t items = batch->items;
	enum hb_scheduler_priority priority = batch->priority;
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || gpu->flights[slot].used || model >= gpu->models.n || items < 1 ||
	    items > gpu->models.known[model].max_items)
		return -EINVAL;
	struct serving_lane *lane = NULL;
	for (uint32_t i = 0; i < gpu->lanes_each && !lane; i++)
		if (!gpu->lanes[model][priority][i].busy)
			lane = &gpu->lanes[model][priority][i];
	if (!lane)
		return -EBUSY;
	const struct hb_scheduler_model *known = &gpu->models.known[model];
	struct serving_flight *flight = &gpu->flights[slot];
	*flight = (struct serving_flight){
		.program = &gpu->models.program[model][items],
		.lane = lane,
		.out_bytes = known->out_bytes * items,
		.used = true,
		.can_pause = batch->can_pause,
		.copies_in = known->in_bytes > 0,
	};
	lane->busy = true;
	int rc = flight->copies_in ? submit_copy(gpu, now_ns, flight, slot, HB_STAGE_IN, known->in_bytes * items) : 0;
	return rc ? rc : submit_run(gpu, now_ns, flight, slot);
}

static void pause_batch(void *self, int64_t now_ns, uint32_t slot, bool paused)
{
	struct serving_gpu *gpu = self;
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || !gpu->flights[slot].used)
		return;
	gpu->flights[slot].paused = paused;
	submit_run(gpu, now_ns, &gpu->flights[slot], slot);
}

/* Updates the batch of a completion. True: *event is to be reported. */
static bool handle_completion(struct serving_gpu *gpu, const struct hb_gpu_model_completion *done,
			      struct hb_scheduler_provider_event *event)
{
	uint32_t slot = (uint32_t)(done->cookie >> 8);
	enum hb_scheduler_stage stage = (enum hb_scheduler_stage)(done->cookie & 0xff);
	struct serving_flight *flight = &gpu->flights[slot];
	if (stage == HB_STAGE_RUN) {
		flight->steps--;
		submit_run(gpu, done->end_ns, flight, slot);
		if (flight->steps || flight->next < flight->program->n)
			return false;
		if (flight->out_bytes <= 0)
			stage = HB_STAGE_OUT;
	}
	*event = (struct hb_scheduler_provider_event){
		.at_ns = done->end_ns, .slot = slot, .stage = stage + 1, .complete = true};
	if (event->stage == HB_STAGES) {
		flight->used = false;
		flight->lane->busy = false;
	}
	return true;
}

static bool poll_events(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct serving_gpu *gpu = self;
	struct hb_gpu_model_completion done;
	for (;;) {
		while (hb_gpu_model_pop(gpu->model, &done))
			if (handle_completion(gpu, &done, event))
				return true;
		int64_t next = hb_gpu_model_next_ns(gpu->model);
		if (next > now_ns) {
			hb_gpu_model_advance(gpu->model, now_ns);
			return false;
		}
		hb_gpu_model_advance(gpu->model, next);
	}
}

static int64_t next_event_ns(void *self)
{
	return hb_gpu_model_next_ns(((struct serving_gpu *)self)->model);
}

int64_t hb_serving_gpu_busy_ns(const void *self)
{
	return hb_gpu_model_busy_ns(((const struct serving_gpu *)self)->model);
}

const struct hb_scheduler_provider_ops hb_serving_gpu_ops = {
	.name = "trace",
	.models = count_models,
	.model = describe_model,
	.profile = profile_batch,
	.start = start_batch,
	.pause = pause_batch,
	.poll = poll_events,
	.next_ns = next_event_ns,
	.close = close_gpu,
};
