/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and posts the requests in the tenants' rings; see request_rings.h. */
#include "daemon/request_rings.h"

#include "base/clock.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_gates.h"

#include <stdlib.h>

#define RING ((uint64_t)HB_PAGE_REQUESTS)

/* The interval between readings is chosen so that a ring is about a third full: READ_AT of its HB_PAGE_REQUESTS entries. */
#define READ_AT 6
/* The same for tokens whose credit may set time slices, because the slices have to follow each token. */
#define READ_AT_TOKENS 1
#define PAUSE_LEAST_NS (2 * HB_NS_PER_MS)
#define PAUSE_MOST_NS (HB_TICK_MS * HB_NS_PER_MS)
/* If the daemon is awake anyway, a ring is read this share (1/4) of its interval early, so that readings coincide. */
#define EARLY_SHARE 4

/* --- reading ------------------------------------------------------------------------------ */

static struct hb_reported_request *append_request(struct hb_request_list *list)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct hb_reported_request *grown = realloc(list->requests, room * sizeof *grown);
		if (!grown)
			return NULL;
		list->requests = grown;
		list->room = room;
	}
	return &list->requests[list->n];
}

void hb_request_list_free(struct hb_request_list *list)
{
	free(list->requests);
	*list = (struct hb_request_list){.n = 0};
}

static void copy_entry(const struct hb_page_request *from, struct hb_reported_request *request)
{
	request->begin_ns = atomic_load_explicit(&from->begin_ns, memory_order_relaxed);
	request->end_ns = atomic_load_explicit(&from->end_ns, memory_order_relaxed);
	request->deadline_ns = atomic_load_explicit(&from->deadline_ns, memory_order_relaxed);
	request->flags = atomic_load_explicit(&from->flags, memory_order_relaxed);
	request->harm_us = atomic_load_explicit(&from->harm_us, memory_order_relaxed);
}

/* False for times that no shim writes: before the tenant registered, in the future, or in the wrong order. */
static bool is_valid(const struct hb_tenancy *tenancy, const struct hb_reported_request *request, int64_t now_ns)
{
	return request->begin_ns > 0 && request->begin_ns <= request->end_ns && request->end_ns <= now_ns &&
	       request->end_ns >= tenancy->since_ns && request->deadline_ns >= 0 &&
	       request->deadline_ns < HB_TIME_LIMIT_NS;
}

/*
 * The writer fills an entry before it raises `written`, so it may overwrite the oldest entry during the copy. The copy
 * counts only if there was still room for one more entry afterwards.
 */
static bool read_entry(struct hb_page_requests *requests, uint64_t i, struct hb_reported_request *request)
{
	copy_entry(&requests->ring[i % RING], request);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&requests->written, memory_order_relaxed) - i < RING;
}

/*
 * Returns how many requests were reported since the last reading. The clock is read after `written`: an older reading
 * would make a request that has just ended look like one from the future.
 */
static uint64_t read_ring(struct hb_tenancy *tenancy, uint32_t slot, struct hb_request_list *list)
{
	struct hb_member *member = &tenancy->members[slot];
	struct hb_page_requests *requests = &tenancy->page->processes[slot].requests;
	uint64_t written = atomic_load_explicit(&requests->written, memory_order_acquire);
	uint64_t n = written - member->requests_read;
	if (n > UINT32_MAX / 2) /* backwards, or absurdly far ahead: the process has overwritten the counter */
		n = 0;
	uint64_t first = n > RING ? written - RING : written - n;
	member->requests_lost += (uint32_t)(n - (written - first));
	if (!n)
		return 0;
	int64_t now_ns = hb_clock_now_ns();
	for (uint64_t i = first; i != written; i++) {
		struct hb_reported_request *request = append_request(list);
		if (!request || !read_entry(requests, i, request) || !is_valid(tenancy, request, now_ns)) {
			member->requests_lost++;
			continue;
		}
		request->tenancy = tenancy;
		request->lost = member->requests_lost;
		member->requests_lost = 0;
		list->n++;
	}
	member->requests_read = written;
	return n;
}

/* Whether the credit of the tenant's tokens may set the time slices of a GPU (core/slo_slices.h). */
static bool may_set_slices(const struct hb_tenancy *tenancy)
{
	for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
		const struct hb_gpu *gpu = tenancy->gpus[i];
		if (gpu->engine != HB_ENGINE_TEMPORAL || !gpu->n_low)
			continue;
		const struct hb_tenant *tenant = hb_core_tenant(gpu->core, tenancy->index);
		if (tenant && tenant->paced)
			return true;
	}
	return false;
}

/* Requests arrive in bursts, so the interval at most doubles each time. */
static void plan_reading(struct hb_tenancy *tenancy, uint64_t most, int64_t now_ns)
{
	int64_t before_ns = tenancy->rings_next_ns - tenancy->rings_read_ns;
	int64_t pause_ns = PAUSE_MOST_NS, read_at = may_set_slices(tenancy) ? READ_AT_TOKENS : READ_AT;
	if (most)
		pause_ns = (now_ns - tenancy->rings_read_ns) * read_at / (int64_t)(most < 2 * RING ? most : 2 * RING);
	if (pause_ns > 2 * before_ns)
		pause_ns = 2 * before_ns;
	if (pause_ns < PAUSE_LEAST_NS)
		pause_ns = PAUSE_LEAST_NS;
	if (pause_ns > PAUSE_MOST_NS)
		pause_ns = PAUSE_MOST_NS;
	tenancy->rings_read_ns = now_ns;
	tenancy->rings_next_ns = now_ns + pause_ns;
}

int64_t hb_request_rings_read(struct hb_tenancy *tenancy, int64_t now_ns, struct hb_request_list *list)
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
		uint64_t n = read_ring(tenancy, slot, list);
		most = n > most ? n : most;
	}
	plan_reading(tenancy, most, now_ns);
	return tenancy->rings_next_ns;
}

/* --- posting ------------------------------------------------------------------------------ */

/* The request belongs to every GPU on which the tenant has launched something since it began, or else to the first one. */
static void post_request(const struct hb_reported_request *request, int64_t now_ns)
{
	const struct hb_tenancy *tenancy = request->tenancy;
	struct hb_event event = {.kind = HB_EVENT_REQUEST_PAST, .tenant = tenancy->index};
	event.request_past.begin_ns = request->begin_ns;
	event.request_past.end_ns = request->end_ns;
	event.request_past.deadline_ns = request->deadline_ns;
	event.request_past.held = request->flags & HB_REQUEST_TAKEOVER;
	event.request_past.lost = request->lost;
	event.request_past.kind = request->flags >> HB_REQUEST_KIND_SHIFT & HB_REQUEST_KIND_MASK;
	event.request_past.measured = request->flags & HB_REQUEST_MEASURED;
	event.request_past.harm_ns = event.request_past.measured ? request->harm_us * HB_NS_PER_US : 0;
	bool posted = false;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		if (hb_gpu_launched_since(tenancy->gpus[i], tenancy, request->begin_ns)) {
			hb_gpu_post(tenancy->gpus[i], now_ns, &event);
			posted = true;
		}
	if (!posted && tenancy->n_gpus)
		hb_gpu_post(tenancy->gpus[0], now_ns, &event);
}

void hb_request_list_post(struct hb_request_list *list, int64_t now_ns)
{
	for (size_t i = 0; i < list->n; i++)
		post_request(&list->requests[i], now_ns);
	list->n = 0;
}

/* --- running requests ---------------------------------------------------------------------- */

static struct hb_request_running running_in(struct hb_page_requests *requests, const struct hb_tenant *tenant,
					    int64_t now_ns)
{
	int64_t since_ns = atomic_load_explicit(&requests->running_since_ns, memory_order_acquire);
	int64_t deadline_ns = atomic_load_explicit(&requests->running_deadline_ns, memory_order_relaxed);
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
