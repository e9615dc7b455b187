/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits at a closed gate, out of the launch path. The thread sleeps on the gate's
 * wake word. It continues when the gate opens, when the daemon closes the page, or
 * when the daemon has been silent for HB_PAGE_SILENT_NS, so a tenant never hangs
 * because of Hummingbird. Makes no driver call that is illegal in a capture, and
 * none that can block.
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "shim/drain.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS \
	(50 * HB_NS_PER_MS) /* between two checks of the daemon's heartbeat while nothing changes the wake word */

bool hb_daemon_silent(const struct hb_place *place)
{
	int64_t heartbeat_ns = atomic_load_explicit(&place->page->heartbeat_ns, memory_order_relaxed);
	return hb_clock_now_ns() - heartbeat_ns > HB_PAGE_SILENT_NS;
}

/* No daemon will open this gate. */
static bool is_abandoned(const struct hb_place *place)
{
	return !place->page || atomic_load_explicit(&place->page->state, memory_order_acquire) != HB_PAGE_ACTIVE ||
	       atomic_load_explicit(&place->process->state, memory_order_acquire) != HB_PAGE_ACTIVE ||
	       hb_daemon_silent(place);
}

/* Sleeps until the wake word differs from `seen`, at most NAP_NS. The word is shared with the daemon, so not FUTEX_PRIVATE. */
static void sleep_until_wake(struct hb_gate *gate, uint32_t seen)
{
	struct timespec nap = {.tv_nsec = NAP_NS};
	syscall(SYS_futex, &gate->wake_word, FUTEX_WAIT, seen, &nap, NULL, 0);
}

void hb_gate_wake(struct hb_gate *gate)
{
	hb_gate_change_wake_word(gate);
	syscall(SYS_futex, &gate->wake_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Returns the page's index of the GPU that this gate of the process belongs to. */
static unsigned find_gpu_of(const struct hb_place *place, const struct hb_gate *gate)
{
	return (unsigned)(((const unsigned char *)gate - place->process->gates[0]) / HB_PAGE_GATE_BYTES);
}

static bool wait_for_gate(const struct hb_place *place, struct hb_gate *gate)
{
	uint32_t seen = hb_gate_wait_begin(gate);
	bool abandoned = false;
	if (hb_gate_state(gate) == HB_GATE_CLOSED) /* the daemon does not act on a depth that is used up */
		hb_gpu_ring(place, find_gpu_of(place, gate), HB_NEWS_WAITING);
	HB_FAULT(shim_gate_waiting);
	while (hb_gate_try(gate) != HB_GATE_GO) {
		abandoned = is_abandoned(place);
		if (abandoned) {
			hb_gate_bypass(gate, 1);
			break;
		}
		sleep_until_wake(gate, seen);
		seen = atomic_load(&gate->wake_word);
		hb_tenant_refresh();
	}
	HB_FAULT(shim_gate_passed);
	hb_gate_wait_end(gate);
	return abandoned;
}

void hb_gate_block(const struct hb_place *place, struct hb_gate *gate)
{
	int64_t begin_ns = hb_clock_now_ns();
	hb_drain_start_if_needed(place);
	bool abandoned = wait_for_gate(place, gate);
	hb_shim_count(HB_COUNT_gate_waits, 1);
	hb_shim_count(HB_COUNT_gate_wait, (uint64_t)(hb_clock_now_ns() - begin_ns));
	if (abandoned)
		hb_shim_count(HB_COUNT_gate_abandoned, 1);
}
