/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the monotonic clock, or the stopped clock of tests; see clock.h. */
#include "base/clock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/*
 * Relaxed is enough: a thread that sees the flag late reads the kernel's clock
 * once more, as if it had asked a moment earlier. The release store below keeps
 * a thread that does see the flag from reading an older stopped time.
 */
static atomic_bool stopped;
static _Atomic int64_t stopped_ns;

int64_t hb_clock_now_ns(void)
{
	if (__builtin_expect(atomic_load_explicit(&stopped, memory_order_relaxed), 0))
		return atomic_load(&stopped_ns);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * HB_NS_PER_S + now.tv_nsec;
}

void hb_clock_stop(int64_t at_ns)
{
	atomic_store(&stopped_ns, at_ns);
	atomic_store_explicit(&stopped, true, memory_order_release);
}

void hb_clock_warp(int64_t by_ns)
{
	assert(atomic_load(&stopped) && by_ns >= 0);
	atomic_fetch_add(&stopped_ns, by_ns);
}

void hb_clock_resume(void)
{
	atomic_store(&stopped, false);
}
