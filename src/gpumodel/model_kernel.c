/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel from its start to its end: its stream starts it, model_sm.c places it,
 * and it ends when its last blocks end or when it is dropped. Part of the GPU model (model_internal.h).
 */
#include "gpumodel/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t new_kernel(struct hb_gpu_model *model)
{
	if (model->free_kernel == UINT32_MAX) {
		uint32_t capacity = model->kernel_capacity ? 2 * model->kernel_capacity : 64;
		struct model_kernel *kernels = realloc(model->kernels, capacity * sizeof *kernels);
		if (!kernels)
			return UINT32_MAX;
		model->kernels = kernels;
		for (uint32_t i = capacity; i-- > model->kernel_capacity;) {
			kernels[i] = (struct model_kernel){.next_free = model->free_kernel};
			model->free_kernel = i;
		}
		model->kernel_capacity = capacity;
	}
	uint32_t id = model->free_kernel;
	uint32_t generation = model->kernels[id].generation;
	model->free_kernel = model->kernels[id].next_free;
	model->kernels[id] = (struct model_kernel){.used = true, .generation = generation + 1, .start_ns = -1};
	return id;
}

static struct model_context *find_context(struct hb_gpu_model *model, const struct model_kernel *kernel)
{
	return &model->contexts[model->clients[model->streams[kernel->stream].client].context];
}

static int activate_kernel(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	if (context->n_active == context->active_capacity) {
		uint32_t capacity = context->active_capacity ? 2 * context->active_capacity : 16;
		uint32_t *active = realloc(context->active, capacity * sizeof *active);
		if (!active)
			return -ENOMEM;
		context->active = active;
		context->active_capacity = capacity;
	}
	uint32_t at = context->n_active++;
	/* The newest kernel goes behind all others of its priority. */
	while (at > 0 && model->kernels[context->active[at - 1]].priority > model->kernels[id].priority) {
		context->active[at] = context->active[at - 1];
		at--;
	}
	context->active[at] = id;
	return 0;
}

int hb_gpu_model_kernel_start(struct hb_gpu_model *model, uint32_t stream_id, const struct hb_gpu_model_work *work)
{
	struct model_stream *stream = &model->streams[stream_id];
	const struct model_client *client = &model->clients[stream->client];
	struct model_context *context = &model->contexts[client->context];
	uint32_t id = new_kernel(model);
	if (id == UINT32_MAX)
		return -ENOMEM;
	struct model_kernel *kernel = &model->kernels[id];
	kernel->work = work;
	kernel->stream = stream_id;
	kernel->priority = stream->priority;
	kernel->hold = work->kind == HB_GPU_MODEL_TAKEOVER;
	kernel->released = kernel->hold && work->duration_ns == MODEL_RELEASED_NS;
	kernel->sms = model->sms;
	if (client->sm_limit && client->sm_limit < kernel->sms)
		kernel->sms = client->sm_limit;
	kernel->rank = model->rank_spread;
	if (work->sm_limit && work->sm_limit < kernel->sms) {
		kernel->sms = work->sm_limit;
		if (!work->sm_spread)
			kernel->rank = model->rank_gpc[(model->sms - kernel->sms) % HB_GPC_ROOM_SMS];
	}
	hb_gpu_model_shape_kernel(model, kernel);
	stream->kernel = id;
	stream->state = STREAM_RUNNING;
	int result = activate_kernel(model, context, id);
	if (result < 0)
		return result;
	hb_gpu_model_place(model, context);
	return 0;
}

static void forget_kernel(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	for (uint32_t i = 0; i < context->n_active; i++)
		if (context->active[i] == id) {
			context->n_active--;
			memmove(&context->active[i], &context->active[i + 1],
				(context->n_active - i) * sizeof *context->active);
			break;
		}
	context->n_started -= kernel->start_ns >= 0;
	if (context->n_started == 0)
		context->placed = false;
	kernel->used = false;
	kernel->generation++;
	kernel->next_free = model->free_kernel;
	model->free_kernel = id;
}

static void finish_kernel(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	uint32_t stream = model->kernels[id].stream;
	int64_t start = model->kernels[id].start_ns;
	hb_gpu_model_note_power(model, &model->clients[model->streams[stream].client], &model->kernels[id]);
	forget_kernel(model, context, id);
	hb_gpu_model_stream_finished(model, stream, start);
}

/* Returns whether another cohort ends at the same moment: the room of all of them is given out together. */
static bool another_ends_now(const struct hb_gpu_model *model, const struct model_context *context)
{
	const struct model_event *next = context->heap.events;
	return context->heap.count && next->kind == EVENT_COHORT && next->at_ns <= model_own_ns(model, context) &&
	       model->cohorts[next->object].generation == next->generation;
}

static void end_cohort(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	struct model_cohort *cohort = &model->cohorts[id];
	uint32_t kernel_id = cohort->kernel;
	struct model_kernel *kernel = &model->kernels[kernel_id];
	kernel->blocks_running -= cohort->blocks;
	hb_gpu_model_drop_cohort(model, context, id);
	if (kernel->blocks_left == 0 && kernel->blocks_running == 0)
		finish_kernel(model, context, kernel_id);
	if (!another_ends_now(model, context))
		hb_gpu_model_place(model, context);
}

void hb_gpu_model_kernel_event(struct hb_gpu_model *model, struct model_context *context,
			       const struct model_event *event)
{
	if (event->kind == EVENT_SOLO_END) {
		if (model->kernels[event->object].generation != event->generation)
			return;
		finish_kernel(model, context, event->object);
		hb_gpu_model_place(model, context);
		return;
	}
	if (model->cohorts[event->object].generation == event->generation)
		end_cohort(model, context, event->object);
}

/* Drops the cohorts of a kernel that is removed, which frees their SMs. */
static void drop_cohorts(struct hb_gpu_model *model, struct model_context *context, uint32_t kernel_id)
{
	for (uint32_t i = 0; i < context->heap.count; i++) {
		struct model_event *event = &context->heap.events[i];
		if (event->kind != EVENT_COHORT || model->cohorts[event->object].generation != event->generation ||
		    model->cohorts[event->object].kernel != kernel_id)
			continue;
		hb_gpu_model_drop_cohort(model, context, event->object);
	}
	const struct model_kernel *kernel = &model->kernels[kernel_id];
	if (kernel->hold && kernel->start_ns >= 0 && kernel->work->duration_ns == 0)
		hb_gpu_model_drop_cohort(model, context, kernel->hold_cohort);
}

/* Ends a hold: now if it runs, else as soon as its context gets the GPU. */
void hb_gpu_model_hold_end(struct hb_gpu_model *model, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	struct model_context *context = find_context(model, kernel);
	kernel->released = true;
	if (kernel->start_ns < 0)
		return;
	hb_gpu_model_heap_push(&context->heap, model_own_ns(model, context), EVENT_COHORT, kernel->hold_cohort,
			       model->cohorts[kernel->hold_cohort].generation);
}

void hb_gpu_model_kernel_drop(struct hb_gpu_model *model, uint32_t id)
{
	struct model_context *context = find_context(model, &model->kernels[id]);
	drop_cohorts(model, context, id);
	forget_kernel(model, context, id);
	hb_gpu_model_place(model, context);
}
