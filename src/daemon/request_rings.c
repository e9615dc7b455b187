/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that tenants' processes tell by the rings of their slots (struct
 * hb_page_signs), brought into the cores of the GPUs they ran on. Called by
 * daemon.c after the GPUs have been looked at, so that the cores know who else
 * had work. A ring is the process's own memory: whatever lies in it is checked,
 * and what cannot be is dropped; nobody but its tenant is judged by it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "core/tenant.h"
#include "daemon/daemon.h"

#define RING ((uint64_t)HB_PAGE_REQUESTS)

/* A ring is read when it is about a third full, as far as the last readings tell. */
#define READ_AT 6
#define PAUSE_LEAST_NS (2 * HB_NS_PER_MS)
#define PAUSE_MOST_NS (HB_TICK_MS * HB_NS_PER_MS)
/* A ring is read by so much of its pause early where somebody is awake anyway, so that readings fall together. */
#define EARLY_SHARE 4

struct request {
	int64_t begin_ns, end_ns, deadline_ns;
	uint32_t flags, harm_us;
};

static struct request copy(const struct hb_page_request *from)
{
	return (struct request){
		.begin_ns = atomic_load_explicit(&from->begin_ns, memory_order_relaxed),
		.end_ns = atomic_load_explicit(&from->end_ns, memory_order_relaxed),
		.deadline_ns = atomic_load_explicit(&from->deadline_ns, memory_order_relaxed),
		.flags = atomic_load_explicit(&from->flags, memory_order_relaxed),
		.harm_us = atomic_load_explicit(&from->harm_us, memory_order_relaxed),
	};
}

/* Nothing that a shim would write: from before its tenant was, from the future, or backwards. */
static bool is_sound(const struct hb_tenancy *tenancy, const struct request *request, int64_t now_ns)
{
	return request->begin_ns > 0 && request->begin_ns <= request->end_ns && request->end_ns <= now_ns &&
	       request->end_ns >= tenancy->since_ns && request->deadline_ns >= 0 &&
	       request->deadline_ns < HB_TIME_LIMIT_NS;
}

/* Which of the tenant's GPUs launched something since the last request; one at least. */
static void post(struct hb_tenancy *tenancy, const struct request *request, uint32_t lost, int64_t now_ns)
{
	struct hb_event event = {.kind = HB_EVENT_REQUEST_PAST, .tenant = tenancy->index};
	event.request_past.begin_ns = request->begin_ns;
	event.request_past.end_ns = request->end_ns;
	event.request_past.deadline_ns = request->deadline_ns;
	event.request_past.held = request->flags & HB_REQUEST_TAKEOVER;
	event.request_past.lost = lost;
	event.request_past.measured = request->flags & HB_REQUEST_MEASURED;
	event.request_past.harm_ns = event.request_past.measured ? request->harm_us * HB_NS_PER_US : 0;
	bool posted = false;
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		if (hb_device_worked_since(tenancy->devices[i], tenancy, request->begin_ns)) {
			hb_device_post(tenancy->devices[i], now_ns, &event);
			posted = true;
		}
	if (!posted && tenancy->n_devices)
		hb_device_post(tenancy->devices[0], now_ns, &event);
}

/*
 * The oldest entry may be overwritten while it is read (the writer fills it
 * before it raises `written`), so an entry counts only if after the copy there
 * still is room for one more.
 */
static bool read_entry(struct hb_page_requests *signs, uint64_t i, struct request *request)
{
	*request = copy(&signs->ring[i % RING]);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&signs->written, memory_order_relaxed) - i < RING;
}

/*
 * Who else is at work is looked at after the request was seen, never before: work that began before the request ended
 * is then known when it is judged.
 */
static void look_around(struct hb_tenancy *tenancy, int64_t now_ns)
{
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		hb_device_run(tenancy->devices[i], now_ns);
}

/*
 * How many requests have come since the last time. The clock is read after `written`: the caller's reading may be old on a
 * machine that pauses, and a request that ended since would pass for one from the future.
 */
static uint64_t read_ring(struct hb_tenancy *tenancy, uint32_t slot)
{
	struct hb_member *member = &tenancy->members[slot];
	struct hb_page_requests *signs = &tenancy->page->processes[slot].requests;
	uint64_t written = atomic_load_explicit(&signs->written, memory_order_acquire);
	uint64_t n = written - member->requests_read;
	if (n > UINT32_MAX / 2) /* backwards, or absurdly far: scribbled */
		n = 0;
	uint64_t first = n > RING ? written - RING : written - n;
	member->requests_lost += (uint32_t)(n - (written - first));
	if (!n)
		return 0;
	int64_t now_ns = hb_clock_now_ns();
	look_around(tenancy, now_ns);
	for (uint64_t i = first; i != written; i++) {
		struct request request;
		if (!read_entry(signs, i, &request) || !is_sound(tenancy, &request, now_ns)) {
			member->requests_lost++;
			continue;
		}
		post(tenancy, &request, member->requests_lost, now_ns);
		member->requests_lost = 0;
	}
	member->requests_read = written;
	return n;
}

/* Requests come in bursts, so the pause grows slowly: at most doubled each time. */
static void plan_next(struct hb_tenancy *tenancy, uint64_t most, int64_t now_ns)
{
	int64_t before_ns = tenancy->rings_next_ns - tenancy->rings_read_ns;
	int64_t pause_ns = PAUSE_MOST_NS;
	if (most)
		pause_ns = (now_ns - tenancy->rings_read_ns) * READ_AT / (int64_t)(most < 2 * RING ? most : 2 * RING);
	if (pause_ns > 2 * before_ns)
		pause_ns = 2 * before_ns;
	if (pause_ns < PAUSE_LEAST_NS)
		pause_ns = PAUSE_LEAST_NS;
	if (pause_ns > PAUSE_MOST_NS)
		pause_ns = PAUSE_MOST_NS;
	tenancy->rings_read_ns = now_ns;
	tenancy->rings_next_ns = now_ns + pause_ns;
}

int64_t hb_request_rings_read(struct hb_tenancy *tenancy, int64_t now_ns)
{
	uint64_t most = 0;
	if (hb_tenancy_is_server(tenancy))
		return HB_TIME_NEVER;
	int64_t early_ns = (tenancy->rings_next_ns - tenancy->rings_read_ns) / EARLY_SHARE;
	if (now_ns < tenancy->rings_next_ns - early_ns)
		return tenancy->rings_next_ns;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		uint64_t n = read_ring(tenancy, slot);
		most = n > most ? n : most;
	}
	plan_next(tenancy, most, now_ns);
	return tenancy->rings_next_ns;
}

/* --- what runs now --- */

static struct hb_request_running running_in(struct hb_page_requests *signs, const struct hb_tenant *tenant,
					    int64_t now_ns)
{
	int64_t since_ns = atomic_load_explicit(&signs->running_since_ns, memory_order_acquire);
	int64_t deadline_ns = atomic_load_explicit(&signs->running_deadline_ns, memory_order_relaxed);
	struct hb_request_running running = {.slack_ns = HB_TIME_NEVER};
	if (since_ns <= 0 || since_ns > now_ns || deadline_ns < 0 || deadline_ns >= HB_TIME_LIMIT_NS)
		return running;
	running.since_ns = since_ns;
	if (!deadline_ns && tenant->slo_ns)
		deadline_ns = since_ns + tenant->slo_ns;
	int64_t served_ns = now_ns - since_ns;
	int64_t left_ns = served_ns < tenant->alone_ns ? tenant->alone_ns - served_ns : 0;
	if (deadline_ns)
		running.slack_ns = deadline_ns - now_ns - left_ns;
	return running;
}

struct hb_request_running hb_request_running(const struct hb_tenancy *tenancy, const struct hb_tenant *tenant,
					     int64_t now_ns)
{
	struct hb_request_running least = {.slack_ns = HB_TIME_NEVER};
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		struct hb_request_running running = running_in(&tenancy->page->processes[slot].requests, tenant,
							       now_ns);
		if (running.since_ns && (!least.since_ns || running.slack_ns < least.slack_ns))
			least = running;
	}
	return least;
}
