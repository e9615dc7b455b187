/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper thread: drains completions when no thread of the application waits,
 * runs host functions, and polls the memory words on which stream waits and
 * takeover kernels depend.
 */
#include "simcuda/sim_queue.h"

#include "simcuda/sim_futex.h"

#include <signal.h>
#include <stdlib.h>

#define NAP_NS (20 * HB_NS_PER_US) /* between polls of words for which streams or takeover kernels wait */

/* A host function or wait at which its stream is paused, or a takeover kernel. */
struct waiting_item {
	struct waiting_item *next;
	struct sim_item item;
	uint32_t slot;
	const volatile uint32_t *stop_word;
};

static struct {
	pthread_mutex_t lock;
	struct waiting_item *list, **tail;
} hands = {.lock = PTHREAD_MUTEX_INITIALIZER};

void sim_hand_add(const struct sim_item *item, uint32_t slot, const volatile uint32_t *stop_word)
{
	struct waiting_item *hand = calloc(1, sizeof *hand);
	if (!hand)
		abort(); /* otherwise the stream would be paused forever without a message */
	hand->item = *item;
	hand->slot = slot;
	hand->stop_word = stop_word;
	pthread_mutex_lock(&hands.lock);
	*hands.tail = hand;
	hands.tail = &hand->next;
	pthread_mutex_unlock(&hands.lock);
	atomic_fetch_add(&sim.share->hand_word, 1);
	sim_futex_wake(&sim.share->hand_word, 1);
}

void sim_watch_takeover(CUstream stream, uint64_t seq, const volatile uint32_t *word)
{
	struct sim_item item = {stream, seq, NULL};
	atomic_fetch_add(&stream->users, 1);
	sim_hand_add(&item, 0, word);
}

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

/*
 * Returns whether the takeover kernel's word is set, or the kernel has ended with
 * another one's word. The word belongs to the application and is valid until the
 * kernel is known to be done, which is recorded only under sim.drain.
 */
static bool is_takeover_over(const struct waiting_item *hand)
{
	pthread_mutex_lock(&sim.drain);
	bool over = atomic_load(&hand->item.stream->done_seq) >= hand->item.seq ||
		    __atomic_load_n(hand->stop_word, __ATOMIC_ACQUIRE);
	pthread_mutex_unlock(&sim.drain);
	return over;
}

static void tell_broker(const struct waiting_item *hand, enum sim_op op)
{
	struct sim_entry entry = {.op = op, .stream = hand->item.stream->id, .seq = hand->item.seq};
	sim_push(&entry);
}

/*
 * Returns false if the item cannot run yet. The item counts as done before the
 * broker is notified, because later items may complete and be counted right after.
 */
static bool hand_run(struct waiting_item *hand)
{
	if (hand->stop_word) {
		if (!is_takeover_over(hand))
			return false;
		tell_broker(hand, SIM_OP_RELEASE);
		sim_stream_unuse(hand->item.stream);
		return true;
	}
	if (hand->item.task->kind == SIM_TASK_WAIT_VALUE) {
		if (!value_is_there(hand->item.task))
			return false;
	} else {
		sim_task_run(hand->item.task, 0);
	}
	sim_task_free(hand->item.task);
	pthread_mutex_lock(&sim.drain);
	sim_item_done(&hand->item, hand->slot);
	pthread_mutex_unlock(&sim.drain);
	tell_broker(hand, SIM_OP_HAND_DONE);
	sim_stream_unuse(hand->item.stream);
	sim_wake_waiters(0);
	return true;
}

/* Runs all items that can run. Returns true if some remain. */
static bool hands_run(void)
{
	pthread_mutex_lock(&hands.lock);
	struct waiting_item *list = hands.list;
	hands.list = NULL;
	hands.tail = &hands.list;
	pthread_mutex_unlock(&hands.lock);
	struct waiting_item *left = NULL, **left_tail = &left;
	while (list) {
		struct waiting_item *hand = list;
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
	pthread_mutex_lock(&hands.lock);
	*left_tail = hands.list;
	if (!hands.list)
		hands.tail = left_tail;
	hands.list = left;
	pthread_mutex_unlock(&hands.lock);
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
		if (sim_something_done())
			continue;
		sim_futex_wait(&sim.share->hand_word, seen, left ? NAP_NS : CHECK_NS);
		if (!left && !sim_broker_alive())
			atomic_store(&sim.lost, true);
	}
	return NULL;
}

int sim_helper_start(void)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
	sigset_t signals, before;
	pthread_t thread;
	hands.tail = &hands.list;
	/* Signals belong to the application: the helper thread blocks all except its own faults. */
	sigfillset(&signals);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&signals, faults[i]);
	pthread_sigmask(SIG_SETMASK, &signals, &before);
	int result = pthread_create(&thread, NULL, helper, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result == 0)
		pthread_detach(thread);
	return -result;
}
