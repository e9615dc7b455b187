/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The takeover thread: takes the GPU over and lets it go as the plan of
 * shim_foresight.c says (the rule: decide/takeover_steps.h). It exists in HP
 * processes only. It sleeps until the plan's next moment and is called earlier
 * when the plan changes. While the GPU is held it checks every 100 us whether a
 * call that might wait for the takeover kernels lasts too long. It makes driver
 * calls in relaxed capture mode only, and no context is current between them.
 */
#include "base/clock.h"
#include "base/thread.h"
#include "decide/defaults.h"
#include "nvidia/takeover_kernel.h"
#include "shim/shim_foresight.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AWAKE INT64_MIN

static _Atomic(uint32_t) doorbell; /* futex word; a change wakes the thread */
static _Atomic(int64_t) wake_ns;   /* time at which the thread will run by itself; 0 = there is no thread */

void hb_takeover_thread_call(int64_t at_ns)
{
	int64_t planned_ns = atomic_load(&wake_ns);
	if (planned_ns != AWAKE && at_ns >= planned_ns)
		return;
	atomic_fetch_add(&doorbell, 1);
	/* Read again: a thread that is still awake checks the doorbell before it sleeps. */
	if (atomic_load(&wake_ns) != AWAKE)
		syscall(SYS_futex, &doorbell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void relax_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

static void sleep_until(int64_t at_ns, uint32_t seen)
{
	struct timespec at = {.tv_sec = at_ns / HB_NS_PER_S, .tv_nsec = at_ns % HB_NS_PER_S};
	syscall(SYS_futex, &doorbell, FUTEX_WAIT_BITSET_PRIVATE, seen, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* since_ns of the plan's last takeover that was carried out, by this thread or by the thread that reported the sign. */
static _Atomic(int64_t) acted_ns = INT64_MIN;
static _Atomic(int64_t) held_since_ns; /* start of the takeover that is on the GPU; 0 = none */

/* Adds up the time of a takeover that a launch, a wide call or this thread has ended. */
static void account_takeover(int64_t now_ns)
{
	int64_t since_ns = atomic_load(&held_since_ns);
	if (since_ns && !hb_takeover_is_held() && atomic_compare_exchange_strong(&held_since_ns, &since_ns, 0))
		hb_shim_count(HB_COUNT_takeover_time, (uint64_t)(now_ns - since_ns));
}

/* True: the caller, and no other thread, carries out this takeover. */
static bool claim_takeover(const struct hb_takeover_plan *plan)
{
	int64_t acted = atomic_load(&acted_ns);
	return acted != plan->since_ns && atomic_compare_exchange_strong(&acted_ns, &acted, plan->since_ns);
}

static void note_takeover(void)
{
	atomic_store(&held_since_ns, hb_clock_now_ns());
	hb_shim_count(HB_COUNT_takeovers, 1);
}

void hb_takeover_thread_save_waking(const struct hb_takeover_plan *plan)
{
	/* Before the thread has slept for the first time no context may be prepared for a takeover. */
	if (atomic_load(&wake_ns) == 0 || !claim_takeover(plan))
		return;
	account_takeover(hb_clock_now_ns());
	if (hb_takeover_try_fire() == HB_TAKEOVER_FIRED)
		note_takeover();
	else
		atomic_store(&acted_ns, INT64_MIN); /* leaves it to the takeover thread */
}

void hb_takeover_thread_note_kept(const struct hb_takeover_plan *plan)
{
	if (!claim_takeover(plan))
		return;
	account_takeover(hb_clock_now_ns());
	note_takeover();
	hb_shim_count(HB_COUNT_takeovers_kept, 1);
}

static void take_gpu(const struct hb_takeover_plan *plan)
{
	if (!claim_takeover(plan))
		return;
	account_takeover(hb_clock_now_ns());
	if (hb_takeover_fire())
		note_takeover();
	else
		hb_shim_count(HB_COUNT_takeovers_not_possible, 1);
}

/* Follows the plan and returns when to run again: at once after a takeover, because a launch may have come meanwhile. */
static int64_t follow_plan(const struct hb_takeover_plan *plan, int64_t now_ns, bool prepared)
{
	bool acted = plan->since_ns == atomic_load(&acted_ns);
	enum hb_takeover_step step = hb_takeover_next_step(plan, now_ns, acted, hb_takeover_is_lingering(now_ns),
							   hb_takeover_is_doubtful(now_ns));
	if (step == HB_TAKEOVER_TAKE) {
		take_gpu(plan);
		return now_ns;
	}
	if (step == HB_TAKEOVER_LET_GO)
		hb_takeover_release_now();
	account_takeover(now_ns);
	return hb_takeover_wake_ns(plan, now_ns, atomic_load(&held_since_ns) != 0, prepared);
}

/* Sleeps until a little before the time, because a sleeping CPU wakes late, and spins for the rest. */
static void sleep_exactly(int64_t at_ns, uint32_t seen)
{
	int64_t early_ns = at_ns > HB_DEFAULT_TAKEOVER_EARLY_NS ? at_ns - HB_DEFAULT_TAKEOVER_EARLY_NS : 0;
	sleep_until(at_ns == INT64_MAX ? at_ns : early_ns, seen);
	while (at_ns != INT64_MAX && atomic_load(&doorbell) == seen && hb_clock_now_ns() < at_ns)
		relax_cpu();
}

/*
 * The driver loads its compiler when it first needs it. At exit() the compiler's own handlers run before those that were
 * registered earlier, and a compilation that still runs then crashes the process (seen with driver 580). So the compiler is
 * loaded here, and the handler that waits for this thread is registered once more, after it. Between the two calls exit() can
 * still begin; that takes microseconds, a compilation takes milliseconds.
 */
static bool load_compiler(void)
{
	static bool is_loaded; /* a forked child inherits the library and the handler */
	if (is_loaded)
		return true;
	dlopen(HB_PTX_COMPILER, RTLD_NOW | RTLD_LOCAL); /* without it the driver says why our kernel cannot be loaded */
	is_loaded = atexit(hb_takeover_stop) == 0;
	return is_loaded;
}

static void *run_thread(void *unused)
{
	bool prepared = false;
	prctl(PR_SET_NAME, "hb-takeover");
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (!load_compiler())
		return NULL;
	hb_takeover_enter_thread();
	for (;;) {
		uint32_t seen = atomic_load(&doorbell);
		atomic_store(&wake_ns, AWAKE);
		bool held = atomic_load(&held_since_ns) != 0;
		if (!held)
			prepared = hb_takeover_prepare();
		int64_t now_ns = hb_clock_now_ns();
		struct hb_takeover_plan plan = hb_shim_foresight_step(now_ns);
		int64_t next_ns = follow_plan(&plan, now_ns, prepared);
		atomic_store(&wake_ns, next_ns);
		if (hb_takeover_wakes_exactly(&plan, next_ns))
			sleep_exactly(next_ns, seen);
		else
			sleep_until(next_ns, seen);
	}
	return NULL;
}

bool hb_takeover_thread_start(void)
{
	static bool has_exit_handler; /* a forked child inherits the handler */
	if (!has_exit_handler && atexit(hb_takeover_stop) != 0)
		return false;
	has_exit_handler = true;
	return hb_thread_start(NULL, 0, run_thread, NULL) == 0;
}

void hb_takeover_thread_leave_in_child(void)
{
	atomic_store(&doorbell, 0);
	atomic_store(&wake_ns, 0);
	atomic_store(&acted_ns, INT64_MIN);
	atomic_store(&held_since_ns, 0);
}
