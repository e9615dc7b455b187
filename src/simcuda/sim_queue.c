/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submits work to the broker and receives completions. Any thread that waits also
 * drains: it runs the effects of completed items in the order of completion. When
 * no thread waits, the helper thread drains (sim_helper.c).
 */
#include "simcuda/sim_queue.h"

#include "base/clock.h"
#include "simcuda/sim_futex.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A stream id that may be reused, and its current sequence number. */
struct old_id {
	uint32_t id;
	uint64_t seq;
};

static struct {
	struct sim_item items[SIM_SLOTS];
	/* Free slots: taken under sim.submit, returned under sim.drain. */
	uint32_t free[SIM_SLOTS];
	_Atomic uint64_t free_head, free_tail;
	uint32_t next_stream;
	pthread_mutex_t ids_lock;
	struct old_id *old;
	size_t n_old, old_room;
} queue = {.ids_lock = PTHREAD_MUTEX_INITIALIZER};

/* --- submission ---------------------------------------------------------------------- */

static void ring_bell(void)
{
	/* Pairs with the broker: the broker sets broker_asleep, then reads the ring; this code writes the ring, then reads broker_asleep. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&sim.share->broker_asleep, memory_order_relaxed)) {
		uint64_t one = 1;
		if (write(sim.doorbell, &one, sizeof one) < 0)
			return; /* the doorbell is full, so it rings already */
	}
}

static void push_entry(struct sim_entry *entry)
{
	struct sim_share *share = sim.share;
	uint64_t head = atomic_load_explicit(&share->submit_head, memory_order_relaxed);
	while (head - atomic_load_explicit(&share->submit_tail, memory_order_acquire) >= SIM_RING) {
		ring_bell();
		if (atomic_load(&sim.lost) || !sim_broker_alive())
			return;
		sched_yield();
	}
	entry->at_ns = hb_clock_now_ns();
	share->submit[head % SIM_RING] = *entry;
	atomic_store_explicit(&share->submit_head, head + 1, memory_order_release);
}

void sim_push(struct sim_entry *entry)
{
	pthread_mutex_lock(&sim.submit);
	push_entry(entry);
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
}

static void wait_entry(CUstream stream, uint32_t other, uint64_t seq)
{
	struct sim_entry entry = {.op = SIM_OP_WAIT, .stream = stream->id};
	entry.u.wait.stream = other;
	entry.u.wait.seq = seq;
	push_entry(&entry);
}

static bool is_unfinished(CUstream stream)
{
	return stream->last_seq > atomic_load_explicit(&stream->done_seq, memory_order_acquire);
}

/* The legacy stream waits for all blocking streams, and they wait for it. */
static void order_default_streams(CUstream stream)
{
	CUcontext context = stream->context;
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (!stream->legacy) {
		CUstream legacy = context->legacy;
		if (legacy->last_seq > stream->legacy_seen && is_unfinished(legacy))
			wait_entry(stream, legacy->id, legacy->last_seq);
		stream->legacy_seen = legacy->last_seq;
		return;
	}
	for (CUstream other = context->streams; other; other = other->next) {
		if (other == stream || (other->flags & CU_STREAM_NON_BLOCKING) ||
		    other->last_seq == other->legacy_joined)
			continue;
		if (is_unfinished(other))
			wait_entry(stream, other->id, other->last_seq);
		other->legacy_joined = other->last_seq;
	}
}

/* Takes a free slot under sim.submit. Returns a negative value if there is none. */
static int take_slot(void)
{
	uint64_t tail = atomic_load_explicit(&queue.free_tail, memory_order_relaxed);
	if (tail == atomic_load_explicit(&queue.free_head, memory_order_acquire))
		return -EAGAIN;
	uint32_t slot = queue.free[tail % SIM_SLOTS];
	atomic_store_explicit(&queue.free_tail, tail + 1, memory_order_relaxed);
	return (int)slot;
}

static void drain_completions(uint32_t self);

/*
 * Takes a slot and locks sim.submit. Waits while all slots are used, as a real
 * driver does when its queue is full. It waits without the lock, which the thread
 * that frees a slot may need.
 */
static int lock_with_slot(void)
{
	for (;;) {
		pthread_mutex_lock(&sim.submit);
		int slot = take_slot();
		if (slot >= 0)
			return slot;
		pthread_mutex_unlock(&sim.submit);
		if (atomic_load(&sim.lost) || !sim_broker_alive())
			return -EPIPE;
		atomic_fetch_add(&sim.share->waiters, 1);
		uint32_t seen = atomic_load(&sim.share->done_word);
		uint64_t freed = atomic_load(&queue.free_head);
		drain_completions(1);
		if (atomic_load(&queue.free_head) == freed)
			sim_futex_wait(&sim.share->done_word, seen, CHECK_NS / 100);
		atomic_fetch_sub(&sim.share->waiters, 1);
	}
}

/* Returns a slot to the pool, under sim.drain. */
static void free_slot(uint32_t slot)
{
	uint64_t head = atomic_load_explicit(&queue.free_head, memory_order_relaxed);
	queue.free[head % SIM_SLOTS] = slot;
	atomic_store_explicit(&queue.free_head, head + 1, memory_order_release);
}

static enum sim_op op_of(const struct sim_task *task)
{
	switch (task->kind) {
	case SIM_TASK_KERNEL:
	case SIM_TASK_SET:
		return SIM_OP_WORK;
	case SIM_TASK_COPY:
		return task->u.copy.on_gpu ? SIM_OP_WORK : SIM_OP_MARK;
	case SIM_TASK_HOST:
	case SIM_TASK_CALLBACK:
	case SIM_TASK_WAIT_VALUE:
		return SIM_OP_HAND;
	case SIM_TASK_GRAPH: /* has no work for the GPU; otherwise sim_submit_graph() submits it */
		return task->u.graph.host ? SIM_OP_HAND : SIM_OP_MARK;
	default:
		return SIM_OP_MARK;
	}
}

static CUresult submit_entry(CUstream stream, struct sim_entry *entry, struct sim_task *task, uint64_t *seq)
{
	int slot = lock_with_slot();
	if (slot < 0) {
		sim_task_free(task);
		return CUDA_ERROR_UNKNOWN;
	}
	order_default_streams(stream);
	entry->stream = stream->id;
	entry->seq = ++stream->last_seq;
	entry->slot = (uint32_t)slot;
	entry->flags = task && sim_task_has_effect(task) ? SIM_FLAG_EFFECT : 0;
	queue.items[slot] = (struct sim_item){stream, entry->seq, task};
	atomic_fetch_add_explicit(&stream->users, 1, memory_order_relaxed);
	if (task && task->kind == SIM_TASK_EVENT) {
		CUevent event = task->u.event.event;
		event->stream_id = stream->id;
		event->stream_seq = entry->seq;
	}
	if (seq)
		*seq = entry->seq;
	push_entry(entry);
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
	return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream stream, const struct sim_work *work, struct sim_task *task, uint64_t *seq)
{
	struct sim_entry entry = {.op = task ? op_of(task) : SIM_OP_WORK};
	if (work)
		entry.u.work = *work;
	return submit_entry(stream, &entry, task, seq);
}

CUresult sim_submit_graph(CUstream stream, uint32_t graph, struct sim_task *task)
{
	struct sim_entry entry = {.op = SIM_OP_GRAPH_LAUNCH};
	entry.u.graph = graph;
	return submit_entry(stream, &entry, task, NULL);
}

void sim_submit_wait(CUstream stream, uint32_t other, uint64_t seq)
{
	pthread_mutex_lock(&sim.submit);
	wait_entry(stream, other, seq);
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
}

void sim_upload_piece(uint32_t graph, const struct sim_work *work)
{
	struct sim_entry entry = {.op = SIM_OP_GRAPH_ADD, .stream = graph};
	entry.u.work = *work;
	pthread_mutex_lock(&sim.submit);
	push_entry(&entry);
	pthread_mutex_unlock(&sim.submit);
}

void sim_upload_free(uint32_t graph)
{
	struct sim_entry entry = {.op = SIM_OP_GRAPH_FREE, .stream = graph};
	pthread_mutex_lock(&sim.submit);
	push_entry(&entry);
	pthread_mutex_unlock(&sim.submit);
}

/* An id is reused only when all its work is done, and continues to count, so that old waits stay valid. */
CUresult sim_stream_start(CUstream stream)
{
	struct sim_entry entry = {.op = SIM_OP_STREAM_ADD};
	pthread_mutex_lock(&queue.ids_lock);
	if (queue.n_old) {
		stream->id = queue.old[--queue.n_old].id;
		stream->last_seq = queue.old[queue.n_old].seq;
	} else {
		stream->id = queue.next_stream++;
	}
	pthread_mutex_unlock(&queue.ids_lock);
	pthread_mutex_lock(&sim.submit);
	atomic_store(&stream->users, 1);
	atomic_store(&stream->done_seq, stream->last_seq);
	stream->legacy_joined = stream->last_seq;
	entry.stream = stream->id;
	entry.seq = stream->last_seq;
	entry.u.add.context = stream->context->index;
	entry.u.add.priority = stream->priority;
	stream->next = stream->context->streams;
	stream->context->streams = stream;
	push_entry(&entry);
	pthread_mutex_unlock(&sim.submit);
	return CUDA_SUCCESS;
}

static void keep_id(uint32_t id, uint64_t seq)
{
	pthread_mutex_lock(&queue.ids_lock);
	if (queue.n_old == queue.old_room) {
		size_t room = queue.old_room ? queue.old_room * 2 : 64;
		struct old_id *bigger = realloc(queue.old, room * sizeof *bigger);
		if (bigger) {
			queue.old = bigger;
			queue.old_room = room;
		}
	}
	if (queue.n_old < queue.old_room) /* otherwise the id is not reused, which does no harm */
		queue.old[queue.n_old++] = (struct old_id){id, seq};
	pthread_mutex_unlock(&queue.ids_lock);
}

void sim_stream_unuse(CUstream stream)
{
	if (atomic_fetch_sub_explicit(&stream->users, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_lock(&sim.submit);
	for (CUstream *at = &stream->context->streams; *at; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	pthread_mutex_unlock(&sim.submit);
	keep_id(stream->id, stream->last_seq);
	free(stream);
}

/* The handle is destroyed; the stream stays in its context until its work is done. */
void sim_stream_end(CUstream stream)
{
	struct sim_entry entry = {.op = SIM_OP_STREAM_REMOVE, .stream = stream->id};
	pthread_mutex_lock(&sim.submit);
	push_entry(&entry);
	stream->magic = SIM_MAGIC_DEAD;
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
	sim_stream_unuse(stream);
}

/* --- completion ---------------------------------------------------------------------- */

void sim_item_done(const struct sim_item *item, uint32_t slot)
{
	atomic_store_explicit(&item->stream->done_seq, item->seq, memory_order_release);
	free_slot(slot);
}

static bool drain_one(void)
{
	struct sim_share *share = sim.share;
	uint64_t tail = atomic_load_explicit(&share->done_tail, memory_order_relaxed);
	if (tail == atomic_load_explicit(&share->done_head, memory_order_acquire))
		return false;
	struct sim_done done = share->done[tail % SIM_SLOTS];
	/* The submitting thread wrote the item before the ring entry, which orders everything that returns through the broker. */
	(void)atomic_load_explicit(&share->submit_head, memory_order_acquire);
	atomic_store_explicit(&share->done_tail, tail + 1, memory_order_release);
	struct sim_item item = queue.items[done.slot % SIM_SLOTS];
	if (done.flags & SIM_FLAG_HAND) {
		sim_hand_add(&item, done.slot, NULL);
		return true;
	}
	if (item.task) {
		sim_task_run(item.task, done.end_ns);
		sim_task_free(item.task);
	}
	sim_item_done(&item, done.slot);
	sim_stream_unuse(item.stream);
	return true;
}

void sim_wake_waiters(uint32_t self)
{
	atomic_fetch_add(&sim.share->done_word, 1);
	if (atomic_load(&sim.share->waiters) > self)
		sim_futex_wake(&sim.share->done_word, INT_MAX);
}

bool sim_something_done(void)
{
	return atomic_load_explicit(&sim.share->done_tail, memory_order_relaxed) !=
	       atomic_load_explicit(&sim.share->done_head, memory_order_acquire);
}

static void drain_completions(uint32_t self)
{
	/* The draining thread checks again after it unlocks, so that completions which arrived meanwhile are not left over. */
	while (sim_something_done() && pthread_mutex_trylock(&sim.drain) == 0) {
		bool any = false;
		while (drain_one())
			any = true;
		pthread_mutex_unlock(&sim.drain);
		if (any && atomic_load(&sim.share->waiters) > self)
			sim_wake_waiters(self);
	}
}

void sim_drain(void)
{
	drain_completions(0);
}

struct queue_wait {
	CUstream stream;
	CUevent event;
	CUcontext context;
	uint64_t seq;
};

static bool wait_over(const struct queue_wait *wait)
{
	if (wait->stream)
		return atomic_load_explicit(&wait->stream->done_seq, memory_order_acquire) >= wait->seq;
	return atomic_load_explicit(&wait->event->done, memory_order_acquire) >= wait->seq;
}

/* Returns CUDA_SUCCESS while the context works. */
CUresult sim_context_trouble(CUcontext context)
{
	if (atomic_load(&context->error))
		return (CUresult)atomic_load(&context->error);
	if (atomic_load(&sim.lost) || !sim.share)
		return CUDA_ERROR_UNKNOWN;
	uint32_t state = atomic_load_explicit(&sim.share->context_state[context->index], memory_order_relaxed);
	if (state > SIM_CONTEXT_ALIVE) {
		atomic_store(&context->error, (CUresult)state);
		return (CUresult)state;
	}
	return CUDA_SUCCESS;
}

static CUresult wait_for(const struct queue_wait *wait)
{
	struct sim_share *share = sim.share;
	CUresult result = CUDA_SUCCESS;
	sim_drain();
	if (wait_over(wait))
		return sim_context_trouble(wait->context);
	atomic_fetch_add(&share->waiters, 1);
	for (;;) {
		uint32_t seen = atomic_load(&share->done_word);
		drain_completions(1);
		if (wait_over(wait) || (result = sim_context_trouble(wait->context)) != CUDA_SUCCESS)
			break;
		sim_futex_wait(&share->done_word, seen, CHECK_NS);
		if (!sim_broker_alive())
			atomic_store(&sim.lost, true);
	}
	atomic_fetch_sub(&share->waiters, 1);
	sim_drain();
	return result == CUDA_SUCCESS ? sim_context_trouble(wait->context) : result;
}

CUresult sim_wait_stream(CUstream stream, uint64_t seq)
{
	return wait_for(&(struct queue_wait){.stream = stream, .context = stream->context, .seq = seq});
}

CUresult sim_wait_event(CUevent event, uint64_t generation)
{
	return wait_for(&(struct queue_wait){.event = event, .context = event->context, .seq = generation});
}

/* Streams may be created and destroyed meanwhile, so each round waits for one unfinished stream. */
CUresult sim_wait_context(CUcontext context)
{
	for (;;) {
		CUstream found = NULL;
		uint64_t seq = 0;
		sim_drain();
		pthread_mutex_lock(&sim.submit);
		for (CUstream stream = context->streams; stream && !found; stream = stream->next)
			if (is_unfinished(stream)) {
				found = stream;
				seq = stream->last_seq;
				atomic_fetch_add(&stream->users, 1);
			}
		pthread_mutex_unlock(&sim.submit);
		if (!found)
			return sim_context_trouble(context);
		CUresult result = sim_wait_stream(found, seq);
		sim_stream_unuse(found);
		if (result != CUDA_SUCCESS)
			return result;
	}
}

int sim_queue_init(void)
{
	for (uint32_t i = 0; i < SIM_SLOTS; i++)
		queue.free[i] = i;
	atomic_store(&queue.free_tail, 0);
	atomic_store(&queue.free_head, SIM_SLOTS);
	return sim_helper_start();
}
