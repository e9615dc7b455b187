/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on its way to the broker and completions on their way back. Any thread
 * that waits also drains: it runs the effects of what has completed, in the
 * order of completion. A helper thread drains when nobody waits, runs host
 * functions, and polls the memory words that waits and holds look at.
 */
#include "simcuda/sim_driver.h"

#include "base/clock.h"
#include "simcuda/sim_futex.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK_NS (100 * HB_NS_PER_MS) /* how often a waiter makes sure that the broker lives */
#define NAP_NS (20 * HB_NS_PER_US)    /* between looks at words that streams or holds wait for */

/* What a slot stands for until its completion. */
struct item {
	CUstream stream;
	uint64_t seq;
	struct sim_task *task;
};

/* A host function or wait that its stream stands at, or a hold: the helper's list. */
struct hand {
	struct hand *next;
	struct item item;
	uint32_t slot, stream_id; /* of a hold, whose stream may be gone before it */
	const volatile uint32_t *hold;
};

/* A stream id free for use again, and where its count stands. */
struct old_id {
	uint32_t id;
	uint64_t seq;
};

static struct {
	struct item items[SIM_SLOTS];
	/* Free slots: taken under sim.submit, put back under sim.drain. */
	uint32_t free[SIM_SLOTS];
	_Atomic uint64_t free_head, free_tail;
	pthread_mutex_t hands_lock;
	struct hand *hands, **hands_tail;
	bool helper_running;
	uint32_t next_stream;
	pthread_mutex_t ids_lock;
	struct old_id *old;
	size_t n_old, old_room;
} queue = {.hands_lock = PTHREAD_MUTEX_INITIALIZER, .ids_lock = PTHREAD_MUTEX_INITIALIZER};

/* --- submission ---------------------------------------------------------------------- */

static void ring_bell(void)
{
	/* Pairs with the broker: it says "asleep", then looks at the ring; we write the ring, then look at "asleep". */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&sim.share->broker_asleep, memory_order_relaxed)) {
		uint64_t one = 1;
		if (write(sim.bell, &one, sizeof one) < 0)
			return; /* full: the bell rings already */
	}
}

static void push(struct sim_entry *entry)
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

static void wait_entry(CUstream stream, uint32_t other, uint64_t seq)
{
	struct sim_entry entry = {.op = SIM_OP_WAIT, .stream = stream->id};
	entry.u.wait.stream = other;
	entry.u.wait.seq = seq;
	push(&entry);
}

static bool unfinished(CUstream stream)
{
	return stream->last_seq > atomic_load_explicit(&stream->done_seq, memory_order_acquire);
}

/* The legacy stream waits for all blocking streams before it, and they wait for it. */
static void order_default_streams(CUstream stream)
{
	CUcontext context = stream->context;
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (!stream->legacy) {
		CUstream legacy = context->legacy;
		if (legacy->last_seq > stream->legacy_seen && unfinished(legacy))
			wait_entry(stream, legacy->id, legacy->last_seq);
		stream->legacy_seen = legacy->last_seq;
		return;
	}
	for (CUstream other = context->streams; other; other = other->next) {
		if (other == stream || (other->flags & CU_STREAM_NON_BLOCKING) ||
		    other->last_seq == other->legacy_joined)
			continue;
		if (unfinished(other))
			wait_entry(stream, other->id, other->last_seq);
		other->legacy_joined = other->last_seq;
	}
}

/* Under sim.submit; negative: none free. */
static int take_slot(void)
{
	uint64_t tail = atomic_load_explicit(&queue.free_tail, memory_order_relaxed);
	if (tail == atomic_load_explicit(&queue.free_head, memory_order_acquire))
		return -EAGAIN;
	uint32_t slot = queue.free[tail % SIM_SLOTS];
	atomic_store_explicit(&queue.free_tail, tail + 1, memory_order_relaxed);
	return (int)slot;
}

static void drain(uint32_t self);

/*
 * Locks sim.submit with a slot in hand. A full house is waited out, as a real
 * driver does when its queue is full, without the lock: what would empty it may need it.
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
		drain(1);
		if (atomic_load(&queue.free_head) == freed)
			sim_futex_wait(&sim.share->done_word, seen, CHECK_NS / 100);
		atomic_fetch_sub(&sim.share->waiters, 1);
	}
}

/* Back to the pool; under sim.drain. */
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
	case SIM_TASK_GRAPH: /* without work for the GPU; else it goes by sim_submit_graph() */
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
	queue.items[slot] = (struct item){stream, entry->seq, task};
	atomic_fetch_add_explicit(&stream->users, 1, memory_order_relaxed);
	if (task && task->kind == SIM_TASK_EVENT) {
		CUevent event = task->u.event.event;
		event->stream_id = stream->id;
		event->stream_seq = entry->seq;
	}
	if (seq)
		*seq = entry->seq;
	push(entry);
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
	struct sim_entry entry = {.op = SIM_OP_GRAPH_PIECE, .stream = graph};
	entry.u.work = *work;
	pthread_mutex_lock(&sim.submit);
	push(&entry);
	pthread_mutex_unlock(&sim.submit);
}

void sim_upload_free(uint32_t graph)
{
	struct sim_entry entry = {.op = SIM_OP_GRAPH_FREE, .stream = graph};
	pthread_mutex_lock(&sim.submit);
	push(&entry);
	pthread_mutex_unlock(&sim.submit);
}

/* Ids are used again only when all work under them is done, and go on counting, so that old waits stay true. */
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
	push(&entry);
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
	if (queue.n_old < queue.old_room) /* else the id is lost, which harms nobody */
		queue.old[queue.n_old++] = (struct old_id){id, seq};
	pthread_mutex_unlock(&queue.ids_lock);
}

static void stream_unuse(CUstream stream)
{
	if (atomic_fetch_sub_explicit(&stream->users, 1, memory_order_acq_rel) != 1)
		return;
	keep_id(stream->id, stream->last_seq);
	free(stream);
}

/* The stream leaves its context; it is freed here, or when the last of its work is done. */
void sim_stream_end(CUstream stream)
{
	struct sim_entry entry = {.op = SIM_OP_STREAM_REMOVE, .stream = stream->id};
	pthread_mutex_lock(&sim.submit);
	for (CUstream *at = &stream->context->streams; *at; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	push(&entry);
	stream->magic = SIM_MAGIC_DEAD;
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
	stream_unuse(stream);
}

/* --- completion ---------------------------------------------------------------------- */

/* Under sim.drain. */
static void item_done(struct item *item, uint32_t slot)
{
	atomic_store_explicit(&item->stream->done_seq, item->seq, memory_order_release);
	free_slot(slot);
	stream_unuse(item->stream);
}

static void hand_add(const struct item *item, uint32_t slot, const volatile uint32_t *hold)
{
	struct hand *hand = calloc(1, sizeof *hand);
	if (!hand)
		abort(); /* the stream would stand for ever, silently */
	hand->item = *item;
	hand->slot = slot;
	hand->stream_id = item->stream->id;
	hand->hold = hold;
	pthread_mutex_lock(&queue.hands_lock);
	*queue.hands_tail = hand;
	queue.hands_tail = &hand->next;
	pthread_mutex_unlock(&queue.hands_lock);
	atomic_fetch_add(&sim.share->hand_word, 1);
	sim_futex_wake(&sim.share->hand_word, 1);
}

void sim_watch_hold(CUstream stream, uint64_t seq, const volatile uint32_t *word)
{
	struct item item = {stream, seq, NULL};
	hand_add(&item, 0, word);
}

static bool drain_one(void)
{
	struct sim_share *share = sim.share;
	uint64_t tail = atomic_load_explicit(&share->done_tail, memory_order_relaxed);
	if (tail == atomic_load_explicit(&share->done_head, memory_order_acquire))
		return false;
	struct sim_done done = share->done[tail % SIM_SLOTS];
	/* Whoever wrote the item wrote the ring after it: what comes back through the broker is ordered by this. */
	(void)atomic_load_explicit(&share->submit_head, memory_order_acquire);
	atomic_store_explicit(&share->done_tail, tail + 1, memory_order_release);
	struct item item = queue.items[done.slot % SIM_SLOTS];
	if (done.flags & SIM_FLAG_HAND) {
		hand_add(&item, done.slot, NULL);
		return true;
	}
	if (item.task) {
		sim_task_run(item.task, done.end_ns);
		sim_task_free(item.task);
	}
	item_done(&item, done.slot);
	return true;
}

/* `self`: 1 when the caller counts among the waiters. */
static void wake_waiters(uint32_t self)
{
	atomic_fetch_add(&sim.share->done_word, 1);
	if (atomic_load(&sim.share->waiters) > self)
		sim_futex_wake(&sim.share->done_word, INT_MAX);
}

static bool something_done(void)
{
	return atomic_load_explicit(&sim.share->done_tail, memory_order_relaxed) !=
	       atomic_load_explicit(&sim.share->done_head, memory_order_acquire);
}

static void drain(uint32_t self)
{
	/* The one who drains looks again after letting go, so that nothing that came meanwhile is left to nobody. */
	while (something_done() && pthread_mutex_trylock(&sim.drain) == 0) {
		bool any = false;
		while (drain_one())
			any = true;
		pthread_mutex_unlock(&sim.drain);
		if (any && atomic_load(&sim.share->waiters) > self)
			wake_waiters(self);
	}
}

void sim_drain(void)
{
	drain(0);
}

struct wait {
	CUstream stream;
	CUevent event;
	CUcontext context;
	uint64_t seq;
};

static bool wait_over(const struct wait *wait)
{
	if (wait->stream)
		return atomic_load_explicit(&wait->stream->done_seq, memory_order_acquire) >= wait->seq;
	return atomic_load_explicit(&wait->event->done, memory_order_acquire) >= wait->seq;
}

/* CUDA_SUCCESS while the context works. */
CUresult sim_context_trouble(CUcontext context)
{
	if (atomic_load(&context->error))
		return (CUresult)atomic_load(&context->error);
	if (atomic_load(&sim.lost) || !sim.share)
		return CUDA_ERROR_UNKNOWN;
	if (atomic_load_explicit(&sim.share->context_state[context->index], memory_order_relaxed) == SIM_CONTEXT_LOST) {
		atomic_store(&context->error, CUDA_ERROR_MPS_RPC_FAILURE);
		return CUDA_ERROR_MPS_RPC_FAILURE;
	}
	return CUDA_SUCCESS;
}

static CUresult wait_for(const struct wait *wait)
{
	struct sim_share *share = sim.share;
	CUresult result = CUDA_SUCCESS;
	sim_drain();
	if (wait_over(wait))
		return sim_context_trouble(wait->context);
	atomic_fetch_add(&share->waiters, 1);
	for (;;) {
		uint32_t seen = atomic_load(&share->done_word);
		drain(1);
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
	return wait_for(&(struct wait){.stream = stream, .context = stream->context, .seq = seq});
}

CUresult sim_wait_event(CUevent event, uint64_t generation)
{
	return wait_for(&(struct wait){.event = event, .context = event->context, .seq = generation});
}

/* Streams may come and go meanwhile: each round waits for one that is unfinished now. */
CUresult sim_wait_context(CUcontext context)
{
	for (;;) {
		CUstream found = NULL;
		uint64_t seq = 0;
		sim_drain();
		pthread_mutex_lock(&sim.submit);
		for (CUstream stream = context->streams; stream && !found; stream = stream->next)
			if (unfinished(stream)) {
				found = stream;
				seq = stream->last_seq;
				atomic_fetch_add(&stream->users, 1);
			}
		pthread_mutex_unlock(&sim.submit);
		if (!found)
			return sim_context_trouble(context);
		CUresult result = sim_wait_stream(found, seq);
		stream_unuse(found);
		if (result != CUDA_SUCCESS)
			return result;
	}
}

/* --- the helper thread ----------------------------------------------------------------- */

static bool value_is_there(const struct sim_task *task)
{
	uint64_t mask = task->u.value.wide ? UINT64_MAX : UINT32_MAX, wanted = task->u.value.value & mask, now;
	if (task->u.value.wide)
		now = __atomic_load_n((uint64_t *)(uintptr_t)task->u.value.address, __ATOMIC_ACQUIRE);
	else
		now = __atomic_load_n((uint32_t *)(uintptr_t)task->u.value.address, __ATOMIC_ACQUIRE);
	switch (task->u.value.flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return task->u.value.wide ? (int64_t)(now - wanted) >= 0 : (int32_t)(uint32_t)(now - wanted) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == wanted;
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & wanted) != 0;
	default:
		return (~(now | wanted) & mask) != 0;
	}
}

/* False: its time has not come. */
static bool hand_run(struct hand *hand)
{
	struct sim_entry entry = {.op = SIM_OP_HAND_DONE, .seq = hand->item.seq};
	if (hand->hold) {
		if (!__atomic_load_n(hand->hold, __ATOMIC_ACQUIRE))
			return false;
		entry.op = SIM_OP_RELEASE;
	} else if (hand->item.task->kind == SIM_TASK_WAIT_VALUE) {
		if (!value_is_there(hand->item.task))
			return false;
	} else {
		sim_task_run(hand->item.task, 0);
	}
	entry.stream = hand->stream_id;
	pthread_mutex_lock(&sim.submit);
	push(&entry);
	pthread_mutex_unlock(&sim.submit);
	ring_bell();
	if (!hand->hold) {
		sim_task_free(hand->item.task);
		pthread_mutex_lock(&sim.drain);
		item_done(&hand->item, hand->slot);
		pthread_mutex_unlock(&sim.drain);
		wake_waiters(0);
	}
	return true;
}

/* Runs what can run; true if some are left. */
static bool hands_run(void)
{
	pthread_mutex_lock(&queue.hands_lock);
	struct hand *list = queue.hands;
	queue.hands = NULL;
	queue.hands_tail = &queue.hands;
	pthread_mutex_unlock(&queue.hands_lock);
	struct hand *left = NULL, **left_tail = &left;
	while (list) {
		struct hand *hand = list;
		list = hand->next;
		hand->next = NULL;
		if (hand_run(hand)) {
			free(hand);
		} else {
			*left_tail = hand;
			left_tail = &hand->next;
		}
	}
	if (!left)
		return false;
	pthread_mutex_lock(&queue.hands_lock);
	*left_tail = queue.hands;
	if (!queue.hands)
		queue.hands_tail = left_tail;
	queue.hands = left;
	pthread_mutex_unlock(&queue.hands_lock);
	return true;
}

static void *helper(void *argument)
{
	(void)argument;
	pthread_setname_np(pthread_self(), "hb-simcuda");
	while (!atomic_load(&sim.lost)) {
		uint32_t seen = atomic_load(&sim.share->hand_word);
		sim_drain();
		bool left = hands_run();
		if (something_done())
			continue;
		sim_futex_wait(&sim.share->hand_word, seen, left ? NAP_NS : CHECK_NS);
		if (!left && !sim_broker_alive())
			atomic_store(&sim.lost, true);
	}
	return NULL;
}

int sim_queue_init(void)
{
	for (uint32_t i = 0; i < SIM_SLOTS; i++)
		queue.free[i] = i;
	atomic_store(&queue.free_tail, 0);
	atomic_store(&queue.free_head, SIM_SLOTS);
	queue.hands_tail = &queue.hands;
	/* The application's signals are the application's: the helper takes none. */
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int result = pthread_create(&thread, NULL, helper, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result == 0)
		pthread_detach(thread);
	return -result;
}
