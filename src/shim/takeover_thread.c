/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that holds the GPU when shim_foresight.c says so. It exists in HP tenants
 * only. It sleeps until the plan's next moment and is called earlier when the
 * plan changes; while something is held it looks every 100 us whether a call
 * that might wait for the hold takes too long. It makes driver calls in relaxed
 * capture mode only, with no context current in between.
 */
#include "base/clock.h"
#include "decide/defaults.h"
#include "shim/shim_foresight.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS (100 * HB_NS_PER_US) /* while held */
#define AWAKE INT64_MIN
#define NAP_NS (100 * HB_NS_PER_MS) /* while a context cannot be prepared yet */

static _Atomic(uint32_t) bell;
static _Atomic(int64_t) wake_ns; /* when it will look by itself; 0 = it does not run */

void hb_takeover_thread_call(int64_t at_ns)
{
	int64_t planned_ns = atomic_load(&wake_ns);
	if (planned_ns != AWAKE && at_ns >= planned_ns)
		return;
	atomic_fetch_add(&bell, 1);
	if (planned_ns != AWAKE) /* else it looks at the bell before it sleeps */
		syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void relax(void)
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
	syscall(SYS_futex, &bell, FUTEX_WAIT_BITSET_PRIVATE, seen, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

static _Atomic(int64_t) acted_ns =
	INT64_MIN;                     /* of the plan's last hold that was acted upon: by us or by the one who asked */
static _Atomic(int64_t) held_since_ns; /* really; 0 = nothing is held */

/* Somebody let it go: the launch, a wide call, or we. */
static void account(int64_t now_ns)
{
	int64_t since_ns = atomic_load(&held_since_ns);
	if (since_ns && !hb_takeover_is_held() && atomic_compare_exchange_strong(&held_since_ns, &since_ns, 0))
		hb_shim_count(HB_COUNT_hold_time, (uint64_t)(now_ns - since_ns));
}

/* True: this hold is the caller's to act upon, and nobody else's. */
static bool claim(const struct hb_shim_foresight_plan *plan)
{
	int64_t acted = atomic_load(&acted_ns);
	return acted != plan->hold_since_ns && atomic_compare_exchange_strong(&acted_ns, &acted, plan->hold_since_ns);
}

static void note_hold(void)
{
	atomic_store(&held_since_ns, hb_clock_now_ns());
	hb_shim_count(HB_COUNT_holds, 1);
}

void hb_takeover_thread_save_waking(const struct hb_shim_foresight_plan *plan)
{
	/* Until it runs and sleeps for the first time there may be nothing to hold with. */
	if (atomic_load(&wake_ns) == 0 || !claim(plan))
		return;
	account(hb_clock_now_ns());
	if (hb_takeover_try_fire() == HB_TAKEOVER_FIRED)
		note_hold();
	else
		atomic_store(&acted_ns, INT64_MIN); /* the thread may */
}

void hb_takeover_thread_note_kept(const struct hb_shim_foresight_plan *plan)
{
	if (!claim(plan))
		return;
	account(hb_clock_now_ns());
	note_hold();
	hb_shim_count(HB_COUNT_holds_kept, 1);
}

static void fire(const struct hb_shim_foresight_plan *plan)
{
	if (!claim(plan))
		return;
	account(hb_clock_now_ns());
	if (hb_takeover_fire())
		note_hold();
	else
		hb_shim_count(HB_COUNT_holds_not_possible, 1);
}

/*
 * Carries the plan out; returns when to look again: at once after a hold, whose launch may just have slipped by. A hold
 * that the plan has ended since a launch came is that launch's to let go.
 */
static int64_t carry_out(const struct hb_shim_foresight_plan *plan, int64_t now_ns, bool prepared)
{
	int64_t next_ns = plan->next_ns;
	if (plan->hold_until_ns > now_ns && plan->hold_since_ns != atomic_load(&acted_ns)) {
		fire(plan);
		return now_ns;
	}
	if ((plan->hold_until_ns <= now_ns && !hb_takeover_is_lingering(now_ns)) || hb_takeover_is_doubtful(now_ns))
		hb_takeover_release_now();
	account(now_ns);
	if (plan->hold_until_ns > now_ns && plan->hold_until_ns < next_ns)
		next_ns = plan->hold_until_ns;
	int64_t look_ns = atomic_load(&held_since_ns) ? now_ns + LOOK_NS : prepared ? INT64_MAX : now_ns + NAP_NS;
	return look_ns < next_ns ? look_ns : next_ns;
}

/* A sleeping CPU may take that long to come back; awake in time, the thread waits for the rest. */
static void sleep_precisely(int64_t at_ns, uint32_t seen)
{
	int64_t early_ns = at_ns > HB_DEFAULT_TAKEOVER_EARLY_NS ? at_ns - HB_DEFAULT_TAKEOVER_EARLY_NS : 0;
	sleep_until(at_ns == INT64_MAX ? at_ns : early_ns, seen);
	while (at_ns != INT64_MAX && atomic_load(&bell) == seen && hb_clock_now_ns() < at_ns)
		relax();
}

static void *run(void *unused)
{
	bool prepared = false;
	prctl(PR_SET_NAME, "hb-hold");
	prctl(PR_SET_TIMERSLACK, 1UL);
	hb_takeover_enter_thread();
	for (;;) {
		uint32_t seen = atomic_load(&bell);
		atomic_store(&wake_ns, AWAKE);
		bool held = atomic_load(&held_since_ns) != 0;
		if (!held)
			prepared = hb_takeover_prepare();
		int64_t now_ns = hb_clock_now_ns();
		struct hb_shim_foresight_plan plan = hb_shim_foresight_step(now_ns);
		int64_t next_ns = carry_out(&plan, now_ns, prepared);
		atomic_store(&wake_ns, next_ns);
		/* The moment to hold has to be met, others need not. */
		if (plan.hold_until_ns == 0 && next_ns == plan.next_ns)
			sleep_precisely(next_ns, seen);
		else
			sleep_until(next_ns, seen);
	}
	return NULL;
}

bool hb_takeover_thread_start(void)
{
	static bool ends_well; /* the handler is inherited by a forked child */
	pthread_t thread;
	sigset_t all, before;
	if (!ends_well && atexit(hb_takeover_stop) != 0)
		return false;
	ends_well = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the application's */
	bool running = pthread_create(&thread, NULL, run, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (running)
		pthread_detach(thread);
	return running;
}

void hb_takeover_thread_leave_in_child(void)
{
	atomic_store(&bell, 0);
	atomic_store(&wake_ns, 0);
	atomic_store(&acted_ns, INT64_MIN);
	atomic_store(&held_since_ns, 0);
}
