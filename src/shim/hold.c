/* SPDX-License-Identifier: Apache-2.0 */
/* Holding calls back (hold.h). */
#include "shim/hold.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AGAIN_NS (20 * HB_NS_PER_US)
#define NAP_NS (50 * HB_NS_PER_MS) /* a held thread reads the word again at least this often */

enum hold_word { HOLD_OPEN, HOLD_HELD, HOLD_BROKEN, HOLD_PARKED };

/* A record belongs to one thread at a time. It is never freed, because the moving thread may read it at any time. */
struct hold_thread {
	_Atomic(uint32_t) inside; /* calls in progress, one inside the other */
	atomic_bool in_use;
	struct hold_thread *next;
};

static _Atomic(uint32_t) word; /* enum hold_word; a futex word */
static _Atomic(struct hold_thread *) threads;
static atomic_bool unlisted; /* a thread without a record has made a held call, so nothing can be held any more */

static __thread struct hold_thread *self __attribute__((tls_model("initial-exec")));
static pthread_key_t ending;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static bool can_hold;
static void (*_Atomic wake_mover)(void);

static void end_thread(void *record)
{
	struct hold_thread *thread = record;
	self = NULL;
	atomic_store(&thread->inside, 0);
	atomic_store_explicit(&thread->in_use, false, memory_order_release);
}

static void prepare(void)
{
	can_hold = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
		   pthread_key_create(&ending, end_thread) == 0;
}

bool hb_hold_prepare(void (*wake)(void))
{
	pthread_once(&prepared, prepare);
	atomic_store(&wake_mover, wake);
	if (can_hold)
		atomic_fetch_or(&hb_shim_alert, HB_ALERT_ELASTIC);
	return can_hold;
}

/* ---- any thread ---- */

static struct hold_thread *take_unused(void)
{
	for (struct hold_thread *thread = atomic_load(&threads); thread; thread = thread->next) {
		bool in_use = false;
		if (atomic_compare_exchange_strong(&thread->in_use, &in_use, true))
			return thread;
	}
	return NULL;
}

/* Lists this thread, once. False: out of memory. */
static bool list_thread(void)
{
	struct hold_thread *thread = take_unused();
	if (!thread) {
		thread = calloc(1, sizeof(*thread));
		if (!thread)
			return false;
		atomic_store(&thread->in_use, true);
		thread->next = atomic_load(&threads);
		while (!atomic_compare_exchange_weak(&threads, &thread->next, thread))
			;
	}
	if (pthread_setspecific(ending, thread) != 0) {
		atomic_store(&thread->in_use, false);
		return false;
	}
	self = thread;
	return true;
}

static void sleep_while_held(void)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	uint32_t seen;
	while ((seen = atomic_load(&word)) == HOLD_HELD || seen == HOLD_PARKED) {
		if (seen == HOLD_PARKED)
			atomic_load (&wake_mover)();
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
	}
}

/* The moving thread reads `unlisted` after it has set the word, and this thread the word after `unlisted`. */
static enum hb_hold_entry enter_unlisted(void)
{
	atomic_store(&unlisted, true);
	sleep_while_held();
	return atomic_load(&word) == HOLD_BROKEN ? HB_HOLD_BROKEN : HB_HOLD_PASSED;
}

enum hb_hold_entry hb_hold_enter_elastic(void)
{
	if (!self && !list_thread())
		return enter_unlisted();
	uint32_t depth = atomic_load_explicit(&self->inside, memory_order_relaxed);
	for (;;) {
		atomic_store_explicit(&self->inside, depth + 1, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst); /* the moving thread's membarrier is the fence of the CPU */
		uint32_t seen = atomic_load_explicit(&word, memory_order_acquire);
		if (__builtin_expect(seen == HOLD_OPEN || depth, 1))
			return HB_HOLD_INSIDE;
		atomic_store_explicit(&self->inside, 0, memory_order_release);
		if (seen == HOLD_BROKEN)
			return HB_HOLD_BROKEN;
		sleep_while_held();
	}
}

void hb_hold_exit(void)
{
	if (!self) /* in a child that was forked inside a call */
		return;
	uint32_t depth = atomic_load_explicit(&self->inside, memory_order_relaxed);
	if (depth) /* 0 if that child has made another call since */
		atomic_store_explicit(&self->inside, depth - 1, memory_order_release);
}

/* ---- the moving thread ---- */

static bool is_any_inside(void)
{
	for (struct hold_thread *thread = atomic_load(&threads); thread; thread = thread->next)
		if (atomic_load_explicit(&thread->inside, memory_order_acquire))
			return true;
	return false;
}

bool hb_hold_begin(int64_t until_ns)
{
	uint32_t before = atomic_exchange(&word, HOLD_HELD);
	bool fenced = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
	bool inside = true;
	while (fenced && !atomic_load(&unlisted) && (inside = is_any_inside()) && hb_clock_now_ns() < until_ns)
		nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
	if (inside)
		hb_hold_end(before == HOLD_PARKED ? HB_HOLD_PARK : HB_HOLD_CONTINUE);
	return !inside;
}

void hb_hold_end(enum hb_hold_after after)
{
	static const enum hold_word words[] = {
		[HB_HOLD_CONTINUE] = HOLD_OPEN, [HB_HOLD_FAIL] = HOLD_BROKEN, [HB_HOLD_PARK] = HOLD_PARKED};
	atomic_store(&word, words[after]);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void hb_hold_leave_in_child(void)
{
	/* Records of the parent's threads are not freed: one of them may have held the allocator's lock at the fork. */
	atomic_store(&threads, NULL);
	self = NULL;
	if (can_hold)
		pthread_setspecific(ending, NULL);
	atomic_store(&word, HOLD_OPEN);
	atomic_store(&unlisted, false);
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_ELASTIC);
}
