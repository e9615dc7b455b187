/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process whose memory moved away because it was idle is parked: its next call that
 * gives work to a GPU waits until the daemon has ordered the memory home. Called by
 * the thread of elastic_thread.c with its lock held; hb_elastic_wake() by any thread.
 */
#include "base/clock.h"
#include "shim/elastic.h"
#include "shim/hold.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAKE_MOST_NS (3 * HB_NS_PER_S) /* calls wait for the daemon's order, at most this long */

static bool parked[HB_PAGE_GPUS]; /* by CUDA device */
static int64_t wakes_ns;          /* when a call began to wait; 0 = none does */
static bool lost;                 /* a move was broken: calls fail */
static atomic_bool is_wanted;     /* a call waits */

static bool is_parked(void)
{
	for (int device = 0; device < HB_PAGE_GPUS; device++)
		if (parked[device])
			return true;
	return false;
}

void hb_elastic_wake(void)
{
	const struct hb_place *place = hb_place();
	if (atomic_exchange(&is_wanted, true) || !place->page)
		return;
	atomic_fetch_add(&place->page->order_bell, 1);
	syscall(SYS_futex, &place->page->order_bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void hb_elastic_park(int device)
{
	parked[device] = true;
}

void hb_elastic_note_home(int device)
{
	if (wakes_ns)
		parked[device] = false;
}

void hb_elastic_end_hold(bool broken)
{
	lost |= broken;
	hb_hold_end(lost ? HB_HOLD_FAIL : is_parked() ? HB_HOLD_PARK : HB_HOLD_CONTINUE);
}

static void write_state(const struct hb_place *place, int device, enum hb_page_parked state)
{
	struct hb_page_elastic *record = hb_elastic_record(place, device);
	if (!record || atomic_load_explicit(&record->parked, memory_order_relaxed) == state)
		return;
	atomic_store_explicit(&record->parked, state, memory_order_release);
	if (state == HB_PARKED_WAITS)
		hb_gpu_ring(place, place->gpu_of_device[device], HB_NEWS_WAKES);
}

static void publish(const struct hb_place *place)
{
	for (int device = 0; place->page && device < HB_PAGE_GPUS; device++)
		if (hb_elastic_granules(device))
			write_state(place, device,
				    !parked[device] ? HB_PARKED_NOT
				    : wakes_ns      ? HB_PARKED_WAITS
						    : HB_PARKED_IDLE);
}

void hb_elastic_unpark(const struct hb_place *place)
{
	if (!is_parked() && !wakes_ns)
		return;
	memset(parked, 0, sizeof(parked));
	wakes_ns = 0;
	hb_elastic_end_hold(false);
	atomic_store(&is_wanted, false);
	publish(place);
}

void hb_elastic_serve_parked(const struct hb_place *place)
{
	if (!wakes_ns && atomic_load(&is_wanted))
		wakes_ns = hb_clock_now_ns();
	bool late = wakes_ns && (!place->page || hb_clock_now_ns() - wakes_ns > WAKE_MOST_NS);
	if (!is_parked() || late)
		hb_elastic_unpark(place);
	else
		publish(place);
}

void hb_elastic_park_leave_in_child(void)
{
	memset(parked, 0, sizeof(parked));
	wakes_ns = 0;
	lost = false;
	atomic_store(&is_wanted, false);
}
