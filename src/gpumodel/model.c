/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of the GPU model: objects, queues and the loop that advances time. model.h says what the model
 * promises, model_internal.h how its files divide the work.
 */
#include "gpumodel/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hb_gpu_model *hb_gpu_model_new(const struct hb_gpu_spec *spec)
{
	struct hb_gpu_model *model = calloc(1, sizeof *model);
	if (!model)
		return NULL;
	model->spec = *spec;
	model->sms = (uint32_t)spec->sm_count;
	hb_gpu_model_rank_sms(model);
	model->free_kernel = model->free_cohort = UINT32_MAX;
	model->resident = model->incoming = -1;
	model->timer_ns = HB_GPU_MODEL_NEVER;
	model->copies[0].client = model->copies[1].client = -1;
	return model;
}

static void free_entries(struct model_entry *entry)
{
	while (entry) {
		struct model_entry *next = entry->next;
		free(entry);
		entry = next;
	}
}

void hb_gpu_model_free(struct hb_gpu_model *model)
{
	if (!model)
		return;
	for (uint32_t i = 0; i < model->n_contexts; i++) {
		hb_gpu_model_heap_fini(&model->contexts[i].heap);
		free(model->contexts[i].active);
	}
	for (uint32_t i = 0; i < model->n_streams; i++)
		free_entries(model->streams[i].head);
	free_entries(model->free_entries);
	hb_gpu_model_heap_fini(&model->heap);
	free(model->contexts);
	free(model->clients);
	free(model->streams);
	free(model->kernels);
	free(model->cohorts);
	free(model->copies[0].jobs);
	free(model->copies[1].jobs);
	free(model->done);
	free(model->switches);
	free(model);
}

/* Returns a freed slot of an array of objects, or grows the array by one. */
static int new_slot(void **array, uint32_t *count, size_t size, size_t used_offset)
{
	for (uint32_t i = 0; i < *count; i++)
		if (!*(bool *)((char *)*array + i * size + used_offset))
			return (int)i;
	void *grown = realloc(*array, (*count + 1) * size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	memset((char *)grown + *count * size, 0, size);
	return (int)(*count)++;
}

int hb_gpu_model_add_context(struct hb_gpu_model *model, const struct hb_gpu_model_context *params)
{
	if (params->slice_ns < 0 || params->copy_slice_ns < 0)
		return -EINVAL;
	int id = new_slot((void **)&model->contexts, &model->n_contexts, sizeof *model->contexts,
			  offsetof(struct model_context, used));
	if (id < 0)
		return id;
	struct model_context *context = &model->contexts[id];
	struct model_heap heap = context->heap;
	uint32_t *active = context->active, capacity = context->active_capacity;
	*context = (struct model_context){
		.params = *params, .used = true, .heap = heap, .active = active, .active_capacity = capacity};
	context->heap.count = 0;
	return id;
}

static bool is_valid_context(const struct hb_gpu_model *model, int id)
{
	return id >= 0 && (uint32_t)id < model->n_contexts && model->contexts[id].used;
}

static bool is_valid_stream(const struct hb_gpu_model *model, int id)
{
	return id >= 0 && (uint32_t)id < model->n_streams && model->streams[id].used;
}

int hb_gpu_model_set_slice(struct hb_gpu_model *model, int id, int64_t slice_ns, int64_t copy_slice_ns)
{
	if (!is_valid_context(model, id) || slice_ns < 0 || copy_slice_ns < 0)
		return -EINVAL;
	model->contexts[id].params.slice_ns = slice_ns;
	model->contexts[id].params.copy_slice_ns = copy_slice_ns;
	hb_gpu_model_engine_update(model);
	return 0;
}

int hb_gpu_model_add_client(struct hb_gpu_model *model, int context, uint32_t sm_limit)
{
	if (!is_valid_context(model, context))
		return -EINVAL;
	int id = new_slot((void **)&model->clients, &model->n_clients, sizeof *model->clients,
			  offsetof(struct model_client, used));
	if (id < 0)
		return id;
	model->clients[id] = (struct model_client){.context = context, .sm_limit = sm_limit, .used = true};
	model->contexts[context].n_clients++;
	return id;
}

int hb_gpu_model_set_copy_slice(struct hb_gpu_model *model, int client, int64_t copy_slice_ns)
{
	if (client < 0 || (uint32_t)client >= model->n_clients || !model->clients[client].used || copy_slice_ns < 0)
		return -EINVAL;
	model->clients[client].copy_slice_ns = copy_slice_ns;
	return 0;
}

int hb_gpu_model_add_stream(struct hb_gpu_model *model, int client, int priority)
{
	if (client < 0 || (uint32_t)client >= model->n_clients || !model->clients[client].used)
		return -EINVAL;
	int id = new_slot((void **)&model->streams, &model->n_streams, sizeof *model->streams,
			  offsetof(struct model_stream, used));
	if (id < 0)
		return id;
	uint32_t generation = model->streams[id].generation;
	model->streams[id] = (struct model_stream){
		.client = client, .priority = priority, .used = true, .generation = generation + 1};
	return id;
}

static struct model_context *find_stream_context(const struct hb_gpu_model *model, const struct model_stream *stream)
{
	return &model->contexts[model->clients[stream->client].context];
}

static bool shares_server(const struct hb_gpu_model *model, const struct model_stream *stream)
{
	return find_stream_context(model, stream)->params.mps;
}

static void mark_busy(struct hb_gpu_model *model)
{
	bool busy = model->resident >= 0 && model->engine != ENGINE_SWITCH &&
		    model->contexts[model->resident].n_started > 0;
	if (busy == model->busy)
		return;
	if (busy) {
		model->busy_since_ns = model->now_ns;
		model->busy_context = model->resident;
	} else {
		model->busy_ns += model->now_ns - model->busy_since_ns;
		model->contexts[model->busy_context].busy_ns += model->now_ns - model->busy_since_ns;
	}
	model->busy = busy;
}

static bool is_copy(const struct hb_gpu_model_work *work)
{
	return work->kind == HB_GPU_MODEL_COPY_H2D || work->kind == HB_GPU_MODEL_COPY_D2H;
}

static const struct hb_gpu_model_work *find_next_piece(const struct model_stream *stream)
{
	return &stream->head->pieces[stream->head->next_piece];
}

void hb_gpu_model_remove_stream(struct hb_gpu_model *model, int64_t now_ns, int id)
{
	if (!is_valid_stream(model, id))
		return;
	hb_gpu_model_advance(model, now_ns);
	struct model_stream *stream = &model->streams[id];
	if (stream->state == STREAM_BOUNDARY)
		find_stream_context(model, stream)->n_boundary--;
	if (stream->state == STREAM_RUNNING) {
		if (is_copy(find_next_piece(stream)))
			hb_gpu_model_copy_drop(model, id);
		else
			hb_gpu_model_kernel_drop(model, stream->kernel);
	}
	free_entries(stream->head);
	*stream = (struct model_stream){.generation = stream->generation + 1};
	hb_gpu_model_engine_update(model);
	mark_busy(model);
}

void hb_gpu_model_remove_client(struct hb_gpu_model *model, int64_t now_ns, int id)
{
	if (id < 0 || (uint32_t)id >= model->n_clients || !model->clients[id].used)
		return;
	for (uint32_t i = 0; i < model->n_streams; i++)
		if (model->streams[i].used && model->streams[i].client == id)
			hb_gpu_model_remove_stream(model, now_ns, (int)i);
	model->contexts[model->clients[id].context].n_clients--;
	model->clients[id].used = false;
}

void hb_gpu_model_remove_context(struct hb_gpu_model *model, int64_t now_ns, int id)
{
	if (!is_valid_context(model, id))
		return;
	for (uint32_t i = 0; i < model->n_clients; i++)
		if (model->clients[i].used && model->clients[i].context == id)
			hb_gpu_model_remove_client(model, now_ns, (int)i);
	model->contexts[id].used = false;
	hb_gpu_model_engine_leave(model, id);
	hb_gpu_model_engine_update(model);
	mark_busy(model);
}

static bool is_valid_work(const struct hb_gpu_model *model, const struct hb_gpu_model_work *work)
{
	switch (work->kind) {
	case HB_GPU_MODEL_KERNEL:
		return work->duration_ns > 0 && work->blocks > 0 && work->threads > 0 &&
		       work->threads <= (uint32_t)model->spec.sm_threads;
	case HB_GPU_MODEL_TAKEOVER:
		return work->duration_ns >= 0;
	case HB_GPU_MODEL_COPY_H2D:
	case HB_GPU_MODEL_COPY_D2H:
		return true;
	}
	return false;
}

static struct model_entry *new_entry(struct hb_gpu_model *model)
{
	struct model_entry *entry = model->free_entries;
	if (entry)
		model->free_entries = entry->next;
	else
		entry = malloc(sizeof *entry);
	if (entry)
		*entry = (struct model_entry){.start_ns = -1, .n_pieces = 1};
	return entry;
}

static void start_piece(struct hb_gpu_model *model, uint32_t id)
{
	const struct hb_gpu_model_work *work = find_next_piece(&model->streams[id]);
	if (is_copy(work))
		model->failed |= hb_gpu_model_copy_start(model, id, work) < 0;
	else
		model->failed |= hb_gpu_model_kernel_start(model, id, work) < 0;
}

/* Returns whether another client of the stream's MPS server has a stream with at least `least` launches queued. */
static bool others_have_queued(const struct hb_gpu_model *model, const struct model_stream *stream, uint32_t at_least)
{
	if (!shares_server(model, stream))
		return false;
	const struct model_context *context = find_stream_context(model, stream);
	for (uint32_t i = 0; i < model->n_streams; i++) {
		const struct model_stream *other = &model->streams[i];
		if (other->used && other->client != stream->client && other->queued >= at_least &&
		    find_stream_context(model, other) == context)
			return true;
	}
	return false;
}

/* Schedules the arrival of the launch at the head of an idle stream. */
static void expect_head(struct hb_gpu_model *model, uint32_t id)
{
	struct model_stream *stream = &model->streams[id];
	int64_t at = stream->head->ready_ns > model->now_ns ? stream->head->ready_ns : model->now_ns;
	if (is_copy(find_next_piece(stream)))
		at += hb_gpu_model_copy_delay_ns(model, stream, find_next_piece(stream)->kind);
	stream->state = STREAM_ARRIVING;
	model->failed |= hb_gpu_model_heap_push(&model->heap, at, EVENT_ARRIVE, id, stream->generation) < 0;
}

static int submit_entry(struct hb_gpu_model *model, int64_t now_ns, int id, struct model_entry *entry,
			double latency_ns)
{
	struct model_stream *stream = &model->streams[id];
	if (!stream->queued && !is_copy(entry->pieces) && others_have_queued(model, stream, 1))
		latency_ns += model->spec.mps_wake_ns;
	entry->ready_ns = now_ns + (int64_t)latency_ns;
	entry->next = NULL;
	if (stream->tail)
		stream->tail->next = entry;
	else
		stream->head = entry;
	stream->tail = entry;
	stream->queued++;
	if (stream->queued == 1)
		expect_head(model, (uint32_t)id);
	else
		hb_gpu_model_engine_update(model); /* a hold that was alone has work behind it now */
	return model->failed ? -ENOMEM : 0;
}

int hb_gpu_model_submit(struct hb_gpu_model *model, int64_t now_ns, int stream, const struct hb_gpu_model_work *work)
{
	if (!is_valid_stream(model, stream) || now_ns < model->now_ns || !is_valid_work(model, work))
		return -EINVAL;
	hb_gpu_model_advance(model, now_ns);
	struct model_entry *entry = new_entry(model);
	if (!entry)
		return -ENOMEM;
	entry->single = *work;
	if (work->kind == HB_GPU_MODEL_TAKEOVER) {
		entry->single.blocks = 1;
		entry->single.threads = 32;
	}
	entry->pieces = &entry->single;
	entry->cookie = work->cookie;
	return submit_entry(model, now_ns, stream, entry, model->spec.launch_latency_ns);
}

int hb_gpu_model_submit_graph(struct hb_gpu_model *model, int64_t now_ns, int stream,
			      const struct hb_gpu_model_work *work, size_t n_work, uint64_t cookie)
{
	if (!is_valid_stream(model, stream) || now_ns < model->now_ns || n_work == 0 || n_work > UINT32_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n_work; i++)
		if (!is_valid_work(model, &work[i]) || work[i].kind == HB_GPU_MODEL_TAKEOVER)
			return -EINVAL;
	hb_gpu_model_advance(model, now_ns);
	struct model_entry *entry = new_entry(model);
	if (!entry)
		return -ENOMEM;
	entry->pieces = work;
	entry->n_pieces = (uint32_t)n_work;
	entry->cookie = cookie;
	entry->graph = true;
	return submit_entry(model, now_ns, stream, entry, model->spec.graph_launch_ns);
}

static int grow_ring(void **ring, size_t *capacity, size_t head, size_t count, size_t size)
{
	size_t larger = *capacity ? 2 * *capacity : 64;
	char *grown = malloc(larger * size);
	if (!grown)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		memcpy(grown + i * size, (char *)*ring + (head + i) % *capacity * size, size);
	free(*ring);
	*ring = grown;
	*capacity = larger;
	return 0;
}

static void note_done(struct hb_gpu_model *model, const struct hb_gpu_model_completion *completion)
{
	if (model->done_count == model->done_capacity) {
		if (grow_ring((void **)&model->done, &model->done_capacity, model->done_head, model->done_count,
			      sizeof *model->done) < 0) {
			model->failed = true;
			return;
		}
		model->done_head = 0;
	}
	model->done[(model->done_head + model->done_count++) % model->done_capacity] = *completion;
}

int hb_gpu_model_note_switch(struct hb_gpu_model *model, const struct hb_gpu_model_switch *change)
{
	if (model->switch_count == model->switch_capacity) {
		/* Only the newest switches are kept, because callers need not read them. */
		if (model->switch_capacity >= 4096) {
			model->switch_head = (model->switch_head + 1) % model->switch_capacity;
			model->switch_count--;
		} else if (grow_ring((void **)&model->switches, &model->switch_capacity, model->switch_head,
				     model->switch_count, sizeof *model->switches) < 0) {
			return -ENOMEM;
		} else {
			model->switch_head = 0;
		}
	}
	model->switches[(model->switch_head + model->switch_count++) % model->switch_capacity] = *change;
	return 0;
}

bool hb_gpu_model_pop(struct hb_gpu_model *model, struct hb_gpu_model_completion *completion)
{
	if (!model->done_count)
		return false;
	*completion = model->done[model->done_head];
	model->done_head = (model->done_head + 1) % model->done_capacity;
	model->done_count--;
	return true;
}

bool hb_gpu_model_pop_switch(struct hb_gpu_model *model, struct hb_gpu_model_switch *change)
{
	if (!model->switch_count)
		return false;
	*change = model->switches[model->switch_head];
	model->switch_head = (model->switch_head + 1) % model->switch_capacity;
	model->switch_count--;
	return true;
}

/*
 * Starts the stream's next piece after the boundary between two queued kernels, which passes in the context's own time.
 */
static void start_after_boundary(struct hb_gpu_model *model, uint32_t id, bool graph)
{
	struct model_stream *stream = &model->streams[id];
	struct model_context *context = find_stream_context(model, stream);
	double boundary = graph ? model->spec.graph_boundary_ns : model->spec.boundary_ns;
	if (shares_server(model, stream))
		boundary += graph ? model->spec.mps_graph_boundary_ns : model->spec.mps_boundary_ns;
	if (!graph)
		boundary += others_have_queued(model, stream, 2) ? model->spec.mps_turn_ns : 0;
	stream->state = STREAM_BOUNDARY;
	context->n_boundary++;
	model->failed |= hb_gpu_model_heap_push(&context->heap, model_own_ns(model, context) + (int64_t)boundary,
						EVENT_NEXT, id, stream->generation) < 0;
}

/* Called by the files that run pieces (kernels, copies) when a piece of the work at the stream's head has ended. */
void hb_gpu_model_stream_finished(struct hb_gpu_model *model, uint32_t id, int64_t start_ns)
{
	struct model_stream *stream = &model->streams[id];
	struct model_entry *entry = stream->head;
	enum hb_gpu_model_kind kind = entry->pieces[entry->next_piece].kind;
	bool graph = entry->graph;
	if (entry->start_ns < 0)
		entry->start_ns = start_ns;
	if (++entry->next_piece == entry->n_pieces) {
		struct hb_gpu_model_completion completion = {.cookie = entry->cookie,
							     .start_ns = entry->start_ns,
							     .end_ns = model->now_ns,
							     .stream = (int)id};
		stream->head = entry->next;
		if (!stream->head)
			stream->tail = NULL;
		stream->queued--;
		entry->next = model->free_entries;
		model->free_entries = entry;
		note_done(model, &completion);
		graph = false;
		entry = stream->head;
	}
	if (!entry) {
		stream->state = STREAM_EMPTY;
		return;
	}
	const struct hb_gpu_model_work *next = find_next_piece(stream);
	bool ready = entry->ready_ns <= model->now_ns;
	if (ready && is_copy(next) && next->kind == kind)
		start_piece(model, id); /* the copy engine continues without a pause */
	else if (ready && !is_copy(next) && kind != HB_GPU_MODEL_COPY_H2D && kind != HB_GPU_MODEL_COPY_D2H)
		start_after_boundary(model, id, graph);
	else
		expect_head(model, id);
}

void hb_gpu_model_release_takeovers(struct hb_gpu_model *model, int64_t now_ns, int id)
{
	if (!is_valid_stream(model, id))
		return;
	hb_gpu_model_advance(model, now_ns);
	struct model_stream *stream = &model->streams[id];
	for (struct model_entry *entry = stream->head; entry; entry = entry->next) {
		if (entry->single.kind != HB_GPU_MODEL_TAKEOVER || entry->graph)
			continue;
		entry->single.duration_ns = MODEL_RELEASED_NS;
		if (entry == stream->head && stream->state == STREAM_RUNNING)
			hb_gpu_model_hold_end(model, stream->kernel);
	}
	hb_gpu_model_engine_update(model);
}

static int64_t find_next_own_ns(const struct hb_gpu_model *model)
{
	if (model->resident < 0 || model->engine == ENGINE_SWITCH)
		return HB_GPU_MODEL_NEVER;
	const struct model_context *context = &model->contexts[model->resident];
	int64_t own = hb_gpu_model_heap_next(&context->heap);
	return own == HB_GPU_MODEL_NEVER ? own : own + context->offset_ns;
}

int64_t hb_gpu_model_next_ns(const struct hb_gpu_model *model)
{
	int64_t global = hb_gpu_model_heap_next(&model->heap);
	int64_t own = find_next_own_ns(model);
	return own < global ? own : global;
}

static void run_global(struct hb_gpu_model *model, const struct model_event *event)
{
	switch ((enum hb_gpu_model_event_kind)event->kind) {
	case EVENT_ARRIVE:
		if (model->streams[event->object].generation == event->generation)
			start_piece(model, event->object);
		break;
	case EVENT_SWITCH:
		hb_gpu_model_engine_event(model, event);
		break;
	case EVENT_COPY:
		hb_gpu_model_copy_event(model, event);
		break;
	case EVENT_NEXT:
	case EVENT_SOLO_END:
	case EVENT_COHORT:
		break; /* these events occur in the contexts' own heaps only */
	}
}

static void run_own(struct hb_gpu_model *model, struct model_context *context, const struct model_event *event)
{
	if (event->kind != EVENT_NEXT) {
		hb_gpu_model_kernel_event(model, context, event);
		return;
	}
	if (model->streams[event->object].generation != event->generation)
		return;
	context->n_boundary--;
	start_piece(model, event->object);
}

void hb_gpu_model_advance(struct hb_gpu_model *model, int64_t now_ns)
{
	for (;;) {
		struct model_event event;
		int64_t global = hb_gpu_model_heap_next(&model->heap);
		int64_t own = find_next_own_ns(model);
		if ((own < global ? own : global) > now_ns)
			break;
		if (own < global) {
			struct model_context *context = &model->contexts[model->resident];
			hb_gpu_model_heap_pop(&context->heap, INT64_MAX, &event);
			model->now_ns = own > model->now_ns ? own : model->now_ns;
			run_own(model, context, &event);
		} else {
			hb_gpu_model_heap_pop(&model->heap, INT64_MAX, &event);
			model->now_ns = global > model->now_ns ? global : model->now_ns;
			run_global(model, &event);
		}
		hb_gpu_model_engine_update(model);
		mark_busy(model);
	}
	if (now_ns > model->now_ns)
		model->now_ns = now_ns;
}

int64_t hb_gpu_model_busy_ns(const struct hb_gpu_model *model)
{
	return model->busy_ns + (model->busy ? model->now_ns - model->busy_since_ns : 0);
}

int64_t hb_gpu_model_context_busy_ns(const struct hb_gpu_model *model, int id)
{
	if (!is_valid_context(model, id))
		return 0;
	bool runs = model->busy && model->busy_context == id;
	return model->contexts[id].busy_ns + (runs ? model->now_ns - model->busy_since_ns : 0);
}

size_t hb_gpu_model_pending(const struct hb_gpu_model *model, int stream)
{
	return is_valid_stream(model, stream) ? model->streams[stream].queued : 0;
}
