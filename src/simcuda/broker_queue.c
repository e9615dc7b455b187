/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders work and drives the models. Kernels and copies of a stream go to
 * the model as soon as no earlier item prevents it, so the model sees them queued
 * as a GPU does. Waits, marks and host functions are resolved here, at the exact
 * GPU time of the completion that they follow.
 */
#include "simcuda/broker.h"
#include "simcuda/sim_futex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void list_init(struct broker_list *list)
{
	list->head = NULL;
	list->tail = &list->head;
}

static void list_append(struct broker_list *list, struct broker_item *item)
{
	item->next = NULL;
	*list->tail = item;
	list->tail = &item->next;
}

static struct broker_item *list_take(struct broker_list *list)
{
	struct broker_item *item = list->head;
	list->head = item->next;
	if (!list->head)
		list->tail = &list->head;
	return item;
}

static void graph_unuse(struct broker_graph *graph)
{
	if (!graph || --graph->users)
		return;
	free(graph->work);
	free(graph);
}

static void item_free(struct broker_item *item)
{
	if (item->op == SIM_OP_WAIT)
		item->stream->client->n_unsettled--;
	graph_unuse(item->graph);
	free(item);
}

static void list_drop(struct broker_list *list)
{
	while (list->head)
		item_free(list_take(list));
}

static void post_completion(struct broker_client *client, const struct broker_item *item, int64_t start_ns,
			    int64_t end_ns)
{
	struct sim_share *share = client->share;
	uint64_t head = atomic_load_explicit(&share->done_head, memory_order_relaxed);
	struct sim_done *done = &share->done[head % SIM_SLOTS];
	done->start_ns = start_ns;
	done->end_ns = end_ns;
	done->slot = item->slot;
	done->flags = item->flags;
	atomic_store_explicit(&share->done_head, head + 1, memory_order_release);
	client->posted = true;
	client->posted_effect |= (item->flags & (SIM_FLAG_EFFECT | SIM_FLAG_HAND)) != 0;
}

static void finish_item(struct broker *broker, struct broker_item *item, int64_t start_ns, int64_t end_ns)
{
	struct broker_stream *stream = item->stream;
	stream->done = item->seq;
	stream->client->recheck = true;
	broker->gpu[stream->gpu].finished++;
	post_completion(stream->client, item, start_ns, end_ns);
	item_free(item);
}

static bool wait_is_over(const struct broker_client *client, const struct broker_item *item)
{
	const struct broker_stream *other = item->wait_stream < client->n_streams ? client->streams[item->wait_stream]
										  : NULL;
	return !other || other->done >= item->wait_seq;
}

static struct hb_gpu_model_work model_work(const struct sim_work *work)
{
	return (struct hb_gpu_model_work){
		.kind = (enum hb_gpu_model_kind)work->kind,
		.duration_ns = work->duration_ns,
		.blocks = work->blocks,
		.threads = work->threads,
		.registers = work->registers,
		.shared_bytes = work->shared_bytes,
		.cluster = work->cluster,
		.bytes = work->bytes,
		.memory_share = (double)work->memory_share,
		.sm_limit = work->sm_limit,
		.sm_spread = work->sm_spread != 0,
	};
}

/* Work that the model refuses (out of memory, impossible block) completes at once: the client checked it before. */
static void give_to_model(struct broker *broker, struct broker_stream *stream, struct broker_item *item, int64_t now_ns)
{
	struct broker_gpu *gpu = &broker->gpu[stream->gpu];
	uint64_t cookie = (uint64_t)(uintptr_t)item;
	bool was_idle = stream->running.head == NULL;
	int result = -EINVAL;
	if (item->op == SIM_OP_GRAPH_LAUNCH && item->graph->n) {
		result = hb_gpu_model_submit_graph(gpu->model, now_ns, stream->model_stream, item->graph->work,
						   item->graph->n, cookie);
	} else if (item->op == SIM_OP_WORK &&
		   !(item->work.kind == HB_GPU_MODEL_TAKEOVER && item->seq <= stream->released)) {
		struct hb_gpu_model_work work = model_work(&item->work);
		work.cookie = cookie;
		result = hb_gpu_model_submit(gpu->model, now_ns, stream->model_stream, &work);
	}
	gpu->submitted++;
	if (result < 0)
		item->op = SIM_OP_MARK;
	if (result < 0 && was_idle)
		finish_item(broker, item, now_ns, now_ns);
	else
		list_append(&stream->running, item);
}

/* Advances the stream as far as possible at now_ns. */
static void advance_stream(struct broker *broker, struct broker_stream *stream, int64_t now_ns)
{
	while (stream->queue.head) {
		struct broker_item *item = stream->queue.head;
		if (item->op == SIM_OP_WAIT) {
			if (!wait_is_over(stream->client, item))
				return;
			item_free(list_take(&stream->queue));
		} else if (item->op == SIM_OP_HAND) {
			if (stream->running.head || stream->standing)
				return;
			stream->standing = true;
			post_completion(stream->client, item, now_ns, now_ns);
			return;
		} else if (item->op == SIM_OP_MARK && !stream->running.head) {
			finish_item(broker, list_take(&stream->queue), now_ns, now_ns);
		} else if (item->op == SIM_OP_MARK) {
			list_append(&stream->running, list_take(&stream->queue));
		} else {
			give_to_model(broker, stream, list_take(&stream->queue), now_ns);
		}
	}
}

static void stream_free(struct broker *broker, struct broker_stream *stream, int64_t now_ns)
{
	stream->client->streams[stream->id] = NULL;
	stream->client->recheck = true;
	if (stream->model_stream >= 0)
		hb_gpu_model_remove_stream(broker->gpu[stream->gpu].model, now_ns, stream->model_stream);
	list_drop(&stream->queue);
	list_drop(&stream->running);
	if (stream->removing)
		stream->client->n_unsettled--;
	free(stream);
}

/* Advances streams that wait for other streams until none makes progress. */
static void settle_client(struct broker *broker, struct broker_client *client, int64_t now_ns)
{
	while (client->recheck && client->n_unsettled) {
		client->recheck = false;
		for (uint32_t i = 0; i < client->n_streams; i++) {
			struct broker_stream *stream = client->streams[i];
			if (!stream)
				continue;
			if (stream->queue.head && stream->queue.head->op == SIM_OP_WAIT)
				advance_stream(broker, stream, now_ns);
			if (stream->removing && !stream->queue.head && !stream->running.head)
				stream_free(broker, stream, now_ns);
		}
	}
}

static void complete_work(struct broker *broker, const struct hb_gpu_model_completion *completion)
{
	struct broker_item *item = (struct broker_item *)(uintptr_t)completion->cookie;
	struct broker_stream *stream = item->stream;
	if (stream->running.head != item)
		return; /* the model broke a stream's order: a bug of the model, which tests see as a hang of that stream */
	if (item->work.fault) {
		broker_note_fault(broker, stream->client, stream->context, item->work.fault);
		return;
	}
	finish_item(broker, list_take(&stream->running), completion->start_ns, completion->end_ns);
	while (stream->running.head && stream->running.head->op == SIM_OP_MARK)
		finish_item(broker, list_take(&stream->running), completion->end_ns, completion->end_ns);
	advance_stream(broker, stream, completion->end_ns > broker->now_ns ? completion->end_ns : broker->now_ns);
}

static void collect_completions(struct broker *broker, struct broker_gpu *gpu)
{
	struct hb_gpu_model_completion completion;
	struct hb_gpu_model_switch change;
	while (hb_gpu_model_pop(gpu->model, &completion)) {
		struct broker_client *client = ((struct broker_item *)(uintptr_t)completion.cookie)->stream->client;
		complete_work(broker, &completion);
		settle_client(broker, client, broker->now_ns);
	}
	while (hb_gpu_model_pop_switch(gpu->model, &change))
		gpu->switches++;
}

int64_t broker_next_ns(const struct broker *broker)
{
	int64_t next_ns = INT64_MAX;
	for (uint32_t i = 0; i < broker->n_gpus; i++) {
		int64_t at_ns = hb_gpu_model_next_ns(broker->gpu[i].model);
		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

/* Advances event by event, so that work behind a completion starts at the time of the completion. */
static void advance_models(struct broker *broker, int64_t to_ns)
{
	for (;;) {
		int64_t next_ns = broker_next_ns(broker);
		int64_t step_ns = next_ns < to_ns ? next_ns : to_ns;
		if (step_ns > broker->now_ns)
			broker->now_ns = step_ns;
		for (uint32_t i = 0; i < broker->n_gpus; i++) {
			hb_gpu_model_advance(broker->gpu[i].model, broker->now_ns);
			collect_completions(broker, &broker->gpu[i]);
		}
		if (next_ns > to_ns)
			return;
	}
}

static int grow_table(void *table, uint32_t *n, uint32_t id, size_t size)
{
	void **slot = table;
	if (id < *n)
		return 0;
	uint32_t room = *n ? *n : 16;
	while (room <= id)
		room *= 2;
	char *bigger = realloc(*slot, room * size);
	if (!bigger)
		return -ENOMEM;
	memset(bigger + *n * size, 0, (room - *n) * size);
	*slot = bigger;
	*n = room;
	return 0;
}

static void stream_add(struct broker *broker, struct broker_client *client, const struct sim_entry *entry)
{
	uint32_t context = entry->u.add.context;
	if (context >= SIM_CONTEXTS || !client->member[context].context || client->member[context].context->dead ||
	    client->share->context_state[context] != SIM_CONTEXT_ALIVE || entry->stream >= 1u << 24 ||
	    grow_table(&client->streams, &client->n_streams, entry->stream, sizeof(void *)) < 0)
		return;
	/* The client reuses an id when all its items have completed; only waits without a successor can remain. */
	if (client->streams[entry->stream])
		stream_free(broker, client->streams[entry->stream], broker->now_ns);
	struct broker_stream *stream = calloc(1, sizeof *stream);
	if (!stream)
		return;
	stream->client = client;
	stream->id = entry->stream;
	stream->done = stream->released = entry->seq; /* a reused id continues to count */
	stream->context = context;
	stream->gpu = client->member[context].context->gpu;
	stream->model_stream = hb_gpu_model_add_stream(broker->gpu[stream->gpu].model,
						       client->member[context].model_client, entry->u.add.priority);
	list_init(&stream->queue);
	list_init(&stream->running);
	client->streams[entry->stream] = stream;
}

static void graph_piece(struct broker_client *client, const struct sim_entry *entry)
{
	if (entry->stream >= 1u << 24 ||
	    grow_table(&client->graphs, &client->n_graphs, entry->stream, sizeof(void *)) < 0)
		return;
	struct broker_graph *graph = client->graphs[entry->stream];
	if (!graph) {
		graph = calloc(1, sizeof *graph);
		if (!graph)
			return;
		graph->users = 1;
		client->graphs[entry->stream] = graph;
	}
	if (graph->n == graph->room) {
		size_t room = graph->room ? graph->room * 2 : 16;
		struct hb_gpu_model_work *work = realloc(graph->work, room * sizeof *work);
		if (!work)
			return;
		graph->work = work;
		graph->room = room;
	}
	graph->work[graph->n++] = model_work(&entry->u.work);
}

static void graph_free(struct broker_client *client, uint32_t id)
{
	if (id >= client->n_graphs || !client->graphs[id])
		return;
	graph_unuse(client->graphs[id]);
	client->graphs[id] = NULL;
}

static void hand_done(struct broker *broker, struct broker_stream *stream)
{
	if (!stream->standing || !stream->queue.head || stream->queue.head->op != SIM_OP_HAND)
		return;
	struct broker_item *item = list_take(&stream->queue);
	stream->standing = false;
	stream->done = item->seq;
	stream->client->recheck = true;
	item_free(item);
	advance_stream(broker, stream, broker->now_ns);
}

static void enqueue_entry(struct broker *broker, struct broker_stream *stream, const struct sim_entry *entry)
{
	struct broker_client *client = stream->client;
	struct broker_item *item = calloc(1, sizeof *item);
	if (!item)
		return;
	item->stream = stream;
	item->op = entry->op;
	item->seq = entry->seq;
	item->slot = entry->slot % SIM_SLOTS;
	item->flags = entry->flags | (entry->op == SIM_OP_HAND ? SIM_FLAG_HAND : 0);
	if (entry->op == SIM_OP_WAIT) {
		client->n_unsettled++;
		item->wait_stream = entry->u.wait.stream;
		item->wait_seq = entry->u.wait.seq;
	} else if (entry->op == SIM_OP_WORK) {
		item->work = entry->u.work;
	} else if (entry->op == SIM_OP_GRAPH_LAUNCH) {
		item->graph = entry->u.graph < client->n_graphs ? client->graphs[entry->u.graph] : NULL;
		if (!item->graph)
			item->op = SIM_OP_MARK;
		else
			item->graph->users++;
	}
	bool alone = !stream->queue.head;
	list_append(&stream->queue, item);
	if (alone)
		advance_stream(broker, stream, broker->now_ns);
}

static void release_takeovers(struct broker *broker, struct broker_stream *stream, uint64_t seq)
{
	if (seq > stream->released)
		stream->released = seq;
	hb_gpu_model_release_takeovers(broker->gpu[stream->gpu].model, broker->now_ns, stream->model_stream);
}

static void take_entry(struct broker *broker, struct broker_client *client, const struct sim_entry *entry)
{
	if (entry->op == SIM_OP_STREAM_ADD) {
		stream_add(broker, client, entry);
	} else if (entry->op == SIM_OP_GRAPH_ADD) {
		graph_piece(client, entry);
	} else if (entry->op == SIM_OP_GRAPH_FREE) {
		graph_free(client, entry->stream);
	} else {
		struct broker_stream *stream = entry->stream < client->n_streams ? client->streams[entry->stream]
										 : NULL;
		if (!stream)
			return;
		if (entry->op == SIM_OP_HAND_DONE) {
			hand_done(broker, stream);
		} else if (entry->op == SIM_OP_RELEASE) {
			release_takeovers(broker, stream, entry->seq);
		} else if (entry->op == SIM_OP_STREAM_REMOVE) {
			client->n_unsettled += !stream->removing;
			stream->removing = client->recheck = true;
		} else {
			enqueue_entry(broker, stream, entry);
		}
	}
	settle_client(broker, client, broker->now_ns);
}

static const struct sim_entry *ring_head(const struct broker_client *client)
{
	struct sim_share *share = client->share;
	if (!share)
		return NULL;
	uint64_t tail = atomic_load_explicit(&share->submit_tail, memory_order_relaxed);
	if (tail == atomic_load_explicit(&share->submit_head, memory_order_acquire))
		return NULL;
	return &share->submit[tail % SIM_RING];
}

bool broker_rings_empty(const struct broker *broker)
{
	for (size_t i = 0; i < broker->n_clients; i++)
		if (ring_head(broker->clients[i]))
			return false;
	return true;
}

/* Takes the oldest entry of all clients. It is read once, into *entry, because the client may change it meanwhile. */
static struct broker_client *take_oldest(struct broker *broker, struct sim_entry *entry)
{
	struct broker_client *oldest = NULL;
	int64_t oldest_ns = INT64_MAX;
	for (size_t i = 0; i < broker->n_clients; i++) {
		const struct sim_entry *head = ring_head(broker->clients[i]);
		if (!head || head->at_ns >= oldest_ns)
			continue;
		oldest = broker->clients[i];
		oldest_ns = head->at_ns;
	}
	if (!oldest)
		return NULL;
	*entry = *ring_head(oldest);
	atomic_fetch_add_explicit(&oldest->share->submit_tail, 1, memory_order_release);
	return oldest;
}

void broker_run(struct broker *broker, int64_t now_ns)
{
	struct broker_client *client;
	struct sim_entry entry;
	while ((client = take_oldest(broker, &entry))) {
		int64_t at_ns = broker_gpu_time(broker, entry.at_ns);
		if (at_ns > now_ns)
			at_ns = now_ns;
		if (at_ns > broker->now_ns)
			advance_models(broker, at_ns);
		take_entry(broker, client, &entry);
	}
	if (now_ns >= broker->now_ns)
		advance_models(broker, now_ns);
}

void broker_drop_streams(struct broker *broker, struct broker_client *client, uint32_t context)
{
	for (uint32_t i = 0; i < client->n_streams; i++)
		if (client->streams[i] && (context == UINT32_MAX || client->streams[i]->context == context))
			stream_free(broker, client->streams[i], broker->now_ns);
	client->recheck = false;
}

void broker_drop_graphs(struct broker_client *client)
{
	for (uint32_t i = 0; i < client->n_graphs; i++)
		graph_free(client, i);
}

void broker_announce(struct broker *broker)
{
	for (size_t i = 0; i < broker->n_clients; i++) {
		struct broker_client *client = broker->clients[i];
		if (!client->posted)
			continue;
		struct sim_share *share = client->share;
		atomic_fetch_add(&share->done_word, 1);
		if (atomic_load(&share->waiters)) {
			sim_futex_wake(&share->done_word, INT32_MAX);
		} else if (client->posted_effect) {
			atomic_fetch_add(&share->hand_word, 1);
			sim_futex_wake(&share->hand_word, INT32_MAX);
		}
		client->posted = client->posted_effect = false;
	}
}
