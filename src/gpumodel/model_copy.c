/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy engines, one a direction. Part of the GPU model (model_internal.h).
 * An engine serves one client at a time, in order of arrival within a client,
 * and turns to the next client at the end of the copy slice of the one it
 * serves. Measured: a slice bounds how long the other clients wait, whatever
 * the size of the copies, and turning to another client is cheap (copy_switch_ns).
 */
#include "gpumodel/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct copy_engine *find_engine(struct hb_gpu_model *model, enum hb_gpu_model_kind kind)
{
	return &model->copies[kind == HB_GPU_MODEL_COPY_D2H];
}

static int32_t find_client(const struct hb_gpu_model *model, const struct copy_job *job)
{
	return model->streams[job->stream].client;
}

static int64_t find_slice_ns(const struct hb_gpu_model *model, int32_t client)
{
	const struct model_context *context = &model->contexts[model->clients[client].context];
	int64_t least = (int64_t)model->spec.copy_turn_min_ns;
	int64_t slice = model->clients[client].copy_slice_ns;
	if (!slice)
		slice = context->params.copy_slice_ns;
	if (!slice)
		slice = (int64_t)model->spec.copy_slice_ns;
	return slice > least ? slice : least;
}

/*
 * Returns the index of the first job of the client that is served next, in order of arrival; n_jobs = all jobs are the
 * present client's.
 */
static uint32_t find_next_client_job(const struct hb_gpu_model *model, const struct copy_engine *engine)
{
	uint32_t best = engine->n_jobs;
	for (uint32_t i = 0; i < engine->n_jobs; i++) {
		int32_t client = find_client(model, &engine->jobs[i]);
		if (client == engine->client)
			continue;
		bool after = client > engine->client;
		if (best == engine->n_jobs) {
			best = i;
			continue;
		}
		int32_t other = find_client(model, &engine->jobs[best]);
		bool other_after = other > engine->client;
		if (after != other_after ? after : client < other)
			best = i;
	}
	return best;
}

static uint32_t find_first_job(const struct hb_gpu_model *model, const struct copy_engine *engine, int32_t client)
{
	for (uint32_t i = 0; i < engine->n_jobs; i++)
		if (find_client(model, &engine->jobs[i]) == client)
			return i;
	return engine->n_jobs;
}

/* Serves a job from now_ns on (after the cost of turning). */
static void serve_job(struct hb_gpu_model *model, struct copy_engine *engine, uint32_t job)
{
	int32_t client = find_client(model, &engine->jobs[job]);
	int64_t turn = engine->client >= 0 && engine->client != client ? (int64_t)model->spec.copy_switch_ns : 0;
	if (engine->client != client)
		engine->turn_ns = model->now_ns + turn;
	engine->client = client;
	engine->job = job;
	engine->since_ns = model->now_ns + turn;
	if (engine->jobs[job].start_ns < 0)
		engine->jobs[job].start_ns = engine->since_ns;
}

/* Sets the engine's timer to its next decision: the end of the job, or of the slice if another client waits. */
static void set_engine_timer(struct hb_gpu_model *model, struct copy_engine *engine)
{
	engine->generation++;
	if (engine->n_jobs == 0 || engine->client < 0)
		return;
	int64_t at = engine->since_ns + engine->jobs[engine->job].left_ns;
	if (find_next_client_job(model, engine) < engine->n_jobs) {
		int64_t slice = find_slice_ns(model, engine->client);
		int64_t elapsed = model->now_ns > engine->turn_ns ? model->now_ns - engine->turn_ns : 0;
		int64_t end = engine->turn_ns + (elapsed / slice + 1) * slice;
		at = end < at ? end : at;
	}
	hb_gpu_model_heap_push(&model->heap, at, EVENT_COPY, (uint32_t)(engine - model->copies), engine->generation);
}

/*
 * Returns the time from the launch of a copy to its arrival in the engine's queue; it is longer while the engine serves
 * other clients only.
 */
int64_t hb_gpu_model_copy_delay_ns(const struct hb_gpu_model *model, const struct model_stream *stream,
				   enum hb_gpu_model_kind kind)
{
	const struct copy_engine *engine = &model->copies[kind == HB_GPU_MODEL_COPY_D2H];
	bool others = engine->n_jobs > 0 && find_first_job(model, engine, stream->client) == engine->n_jobs;
	return (int64_t)(model->spec.copy_latency_ns + (others ? model->spec.copy_wake_ns : 0));
}

int hb_gpu_model_copy_start(struct hb_gpu_model *model, uint32_t stream, const struct hb_gpu_model_work *work)
{
	struct copy_engine *engine = find_engine(model, work->kind);
	if (engine->n_jobs == engine->capacity) {
		uint32_t capacity = engine->capacity ? 2 * engine->capacity : 16;
		struct copy_job *jobs = realloc(engine->jobs, capacity * sizeof *jobs);
		if (!jobs)
			return -ENOMEM;
		engine->jobs = jobs;
		engine->capacity = capacity;
	}
	double rate = work->kind == HB_GPU_MODEL_COPY_D2H ? model->spec.pcie_d2h_bytes_per_s
							  : model->spec.pcie_h2d_bytes_per_s;
	int64_t length = (int64_t)((double)work->bytes * 1e9 / rate);
	model->streams[stream].state = STREAM_RUNNING;
	uint32_t job = engine->n_jobs++;
	engine->jobs[job] = (struct copy_job){.stream = (int32_t)stream, .left_ns = length, .start_ns = -1};
	if (engine->deciding)
		return 0;
	if (engine->n_jobs == 1) {
		engine->client = -1;
		serve_job(model, engine, job);
	}
	set_engine_timer(model, engine);
	return 0;
}

static void remove_job(struct copy_engine *engine, uint32_t job)
{
	engine->n_jobs--;
	memmove(&engine->jobs[job], &engine->jobs[job + 1], (engine->n_jobs - job) * sizeof *engine->jobs);
	if (engine->job > job)
		engine->job--;
}

/* Chooses the job to serve after one has ended or was dropped. */
static void choose_next_job(struct hb_gpu_model *model, struct copy_engine *engine)
{
	uint32_t job = find_first_job(model, engine, engine->client);
	if (job == engine->n_jobs)
		job = find_next_client_job(model, engine);
	if (job < engine->n_jobs)
		serve_job(model, engine, job);
	else
		engine->client = -1;
}

void hb_gpu_model_copy_event(struct hb_gpu_model *model, const struct model_event *event)
{
	struct copy_engine *engine = &model->copies[event->object];
	if (event->generation != engine->generation || engine->n_jobs == 0)
		return;
	struct copy_job *job = &engine->jobs[engine->job];
	int64_t done = model->now_ns > engine->since_ns ? model->now_ns - engine->since_ns : 0;
	job->left_ns -= done;
	engine->since_ns = model->now_ns > engine->since_ns ? model->now_ns : engine->since_ns;
	if (job->left_ns <= 0) {
		uint32_t stream = (uint32_t)job->stream;
		int64_t start = job->start_ns;
		remove_job(engine, engine->job);
		engine->deciding = true;
		hb_gpu_model_stream_finished(model, stream, start);
		engine->deciding = false;
		choose_next_job(model, engine);
		set_engine_timer(model, engine);
		return;
	}
	uint32_t next = find_next_client_job(model, engine);
	if (next < engine->n_jobs)
		serve_job(model, engine, next);
	set_engine_timer(model, engine);
}

void hb_gpu_model_copy_drop(struct hb_gpu_model *model, int32_t stream)
{
	for (int direction = 0; direction < 2; direction++) {
		struct copy_engine *engine = &model->copies[direction];
		for (uint32_t i = 0; i < engine->n_jobs; i++) {
			if (engine->jobs[i].stream != stream)
				continue;
			bool served = i == engine->job;
			remove_job(engine, i);
			if (served)
				choose_next_job(model, engine);
			set_engine_timer(model, engine);
			break;
		}
	}
}
