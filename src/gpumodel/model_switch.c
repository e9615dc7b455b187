/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which context has the SMs: hardware time slices. Part of the GPU model
 * (model_internal.h). Measured behaviour, all on an H200:
 *
 *  - A context keeps the GPU while it has work on the SMs or queued. When it has
 *    had no work for yield_ns and another context has some, it loses the GPU.
 *  - With work in both contexts the GPU changes hands at the end of the slice.
 *    Slices are counted from the moment the context got the GPU, so the work of
 *    another context arrives at a random point of a slice.
 *  - A lone hold with nothing queued behind it does not keep the GPU; two do.
 *  - Instruction level: running blocks are saved and continue later. Block level:
 *    running blocks finish first. Wait for idle: running kernels finish first.
 */
#include "gpumodel/model_internal.h"

static bool is_lone_hold(const struct hb_gpu_model *model, const struct model_context *context)
{
	if (context->n_active != 1)
		return false;
	const struct model_kernel *kernel = &model->kernels[context->active[0]];
	return kernel->hold && !kernel->released && kernel->start_ns >= 0 && model->streams[kernel->stream].queued == 1;
}

static bool wants_gpu(const struct hb_gpu_model *model, int32_t index)
{
	const struct model_context *context = &model->contexts[index];
	if (!context->used)
		return false;
	return context->n_boundary > 0 || (context->n_active > 0 && !is_lone_hold(model, context));
}

static int32_t find_next_context(const struct hb_gpu_model *model)
{
	for (uint32_t step = 1; step <= model->n_contexts; step++) {
		int32_t index = (int32_t)(((uint32_t)(model->resident + 1) + step - 1) % model->n_contexts);
		if (index != model->resident && wants_gpu(model, index))
			return index;
	}
	return -1;
}

static void set_timer(struct hb_gpu_model *model, int64_t at_ns)
{
	if (model->timer_ns == at_ns)
		return;
	model->engine_generation++;
	model->timer_ns = at_ns;
	if (at_ns != HB_GPU_MODEL_NEVER)
		hb_gpu_model_heap_push(&model->heap, at_ns, EVENT_SWITCH, 0, model->engine_generation);
}

static void make_resident(struct hb_gpu_model *model, int32_t index)
{
	struct model_context *context = &model->contexts[index];
	model->resident = index;
	model->incoming = -1;
	model->engine = ENGINE_RUN;
	model->run_since_ns = model->now_ns;
	context->offset_ns = model->now_ns - context->frozen_own_ns;
	context->had_demand = true;
	hb_gpu_model_place(model, context);
}

static void begin_switch(struct hb_gpu_model *model, int32_t next)
{
	double cost = 0;
	if (model->resident >= 0) {
		struct model_context *out = &model->contexts[model->resident];
		out->frozen_own_ns = model_own_ns(model, out);
		cost = model->engine == ENGINE_DRAIN && out->params.preempt == HB_PREEMPT_BLOCK
			       ? model->spec.switch_block_ns
		       : out->n_started ? model->spec.switch_ns
					: model->spec.switch_idle_ns;
	}
	model->engine = ENGINE_SWITCH;
	model->incoming = next;
	model->switch_since_ns = model->now_ns;
	if (cost <= 0) {
		make_resident(model, next);
		return;
	}
	set_timer(model, model->now_ns + (int64_t)cost);
}

static bool are_blocks_running(const struct hb_gpu_model *model, const struct model_context *context)
{
	for (uint32_t i = 0; i < context->n_active; i++)
		if (model->kernels[context->active[i]].blocks_running || model->kernels[context->active[i]].solo)
			return true;
	return false;
}

static bool is_drained(const struct hb_gpu_model *model, const struct model_context *context)
{
	if (context->params.preempt == HB_PREEMPT_BLOCK)
		return !are_blocks_running(model, context);
	return context->n_started == 0;
}

/* Takes the GPU from the resident context, because its slice is over and another context waits. */
static void leave_at_slice_end(struct hb_gpu_model *model, int32_t next)
{
	struct model_context *context = &model->contexts[model->resident];
	if (context->params.preempt == HB_PREEMPT_INSTRUCTION) {
		begin_switch(model, next);
		return;
	}
	if (model->engine != ENGINE_DRAIN) {
		if (context->params.preempt == HB_PREEMPT_BLOCK)
			hb_gpu_model_spread(model, context);
		model->engine = ENGINE_DRAIN;
	}
	if (is_drained(model, context))
		begin_switch(model, next);
	else
		set_timer(model, HB_GPU_MODEL_NEVER);
}

static int64_t compute_slice_end_ns(const struct hb_gpu_model *model)
{
	const struct model_context *context = &model->contexts[model->resident];
	int64_t slice = context->params.slice_ns ? context->params.slice_ns : (int64_t)model->spec.slice_ns;
	int64_t elapsed = model->now_ns - model->run_since_ns;
	int64_t slices = (elapsed + slice - 1) / slice;
	return model->run_since_ns + (slices > 0 ? slices : 1) * slice;
}

void hb_gpu_model_engine_update(struct hb_gpu_model *model)
{
	if (model->engine == ENGINE_SWITCH)
		return;
	struct model_context *context = model->resident >= 0 ? &model->contexts[model->resident] : NULL;
	bool demand = context && wants_gpu(model, model->resident);
	if (context && context->had_demand && !demand)
		context->idle_since_ns = model->now_ns;
	if (context)
		context->had_demand = demand;
	int32_t next = find_next_context(model);
	if (next < 0) {
		if (context && model->engine == ENGINE_DRAIN) {
			model->engine = ENGINE_RUN;
			hb_gpu_model_place(model, context);
		}
		set_timer(model, HB_GPU_MODEL_NEVER);
		return;
	}
	if (!context) {
		begin_switch(model, next);
		return;
	}
	if (model->engine == ENGINE_DRAIN) {
		leave_at_slice_end(model, next);
		return;
	}
	int64_t at = demand ? compute_slice_end_ns(model) : context->idle_since_ns + (int64_t)model->spec.yield_ns;
	if (at > model->now_ns)
		set_timer(model, at);
	else if (demand)
		leave_at_slice_end(model, next);
	else
		begin_switch(model, next);
}

void hb_gpu_model_engine_event(struct hb_gpu_model *model, const struct model_event *event)
{
	if (event->generation != model->engine_generation)
		return;
	model->timer_ns = HB_GPU_MODEL_NEVER;
	if (model->engine != ENGINE_SWITCH)
		return; /* end of a slice or of the yield time: the update after this event decides */
	struct hb_gpu_model_switch change = {
		.start_ns = model->switch_since_ns,
		.end_ns = model->now_ns,
		.from_context = model->resident,
		.to_context = model->incoming,
	};
	hb_gpu_model_note_switch(model, &change);
	if (model->incoming >= 0)
		make_resident(model, model->incoming);
	else {
		model->resident = -1;
		model->engine = ENGINE_RUN;
	}
}

/* Removes all traces of a context from the engine, before the context is removed. */
void hb_gpu_model_engine_leave(struct hb_gpu_model *model, int32_t index)
{
	if (model->incoming == index) {
		model->incoming = -1;
	} else if (model->resident == index && model->engine == ENGINE_SWITCH) {
		/* the switch away from it continues; `from` only names the context */
	} else if (model->resident == index) {
		model->resident = -1;
		model->engine = ENGINE_RUN;
	}
}
