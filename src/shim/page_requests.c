/* SPDX-License-Identifier: Apache-2.0 */
/* See page_requests.h. */
#include "shim/page_requests.h"

#include "shim/shim_tenant.h"

static const char *const texts[HB_N_TAKEOVER_FAULTS] = {
#define HB_TAKEOVER_FAULT(name, text) [HB_TAKEOVER_##name] = (text),
#include "hummingbird/takeover_faults.def"
#undef HB_TAKEOVER_FAULT
};

void hb_page_requests_post(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags)
{
	hb_page_requests_post_harm(begin_ns, end_ns, deadline_ns, flags, -1);
}

void hb_page_requests_post_harm(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags, int64_t harm_ns)
{
	uint32_t harm_us = harm_ns < 0 ? 0 : harm_ns / 1000 < UINT32_MAX ? (uint32_t)(harm_ns / 1000) : UINT32_MAX;
	struct hb_page_requests *signs = &hb_place()->process->requests;
	uint64_t n = atomic_load_explicit(&signs->written, memory_order_relaxed);
	struct hb_page_request *request = &signs->ring[n % HB_PAGE_REQUESTS];
	atomic_store_explicit(&request->begin_ns, begin_ns, memory_order_relaxed);
	atomic_store_explicit(&request->end_ns, end_ns, memory_order_relaxed);
	atomic_store_explicit(&request->deadline_ns, deadline_ns, memory_order_relaxed);
	atomic_store_explicit(&request->flags, flags | (harm_ns < 0 ? 0 : HB_REQUEST_MEASURED), memory_order_relaxed);
	atomic_store_explicit(&request->harm_us, harm_us, memory_order_relaxed);
	atomic_store_explicit(&signs->written, n + 1, memory_order_release);
	hb_shim_count(HB_COUNT_requests, 1);
	if (flags & HB_REQUEST_TAKEOVER)
		hb_shim_count(HB_COUNT_requests_with_takeover, 1);
}

/* Two requests that begin at the same time may swap their deadlines; the deadline is only displayed. */
void hb_page_requests_begin(int64_t begin_ns, int64_t deadline_ns)
{
	struct hb_page_requests *signs = &hb_place()->process->requests;
	int64_t none = 0;
	if (atomic_load_explicit(&signs->running_since_ns, memory_order_relaxed))
		return;
	atomic_store_explicit(&signs->running_deadline_ns, deadline_ns, memory_order_relaxed);
	atomic_compare_exchange_strong_explicit(&signs->running_since_ns, &none, begin_ns, memory_order_release,
						memory_order_relaxed);
}

void hb_page_requests_end(int64_t begin_ns)
{
	struct hb_page_requests *signs = &hb_place()->process->requests;
	atomic_compare_exchange_strong_explicit(&signs->running_since_ns, &begin_ns, 0, memory_order_relaxed,
						memory_order_relaxed);
}

void hb_takeover_set_fault(enum hb_takeover_fault fault)
{
	uint32_t none = HB_TAKEOVER_WORKS;
	atomic_compare_exchange_strong(&hb_place()->process->requests.takeover_fault, &none, (uint32_t)fault);
}

bool hb_takeover_has_fault(void)
{
	return atomic_load_explicit(&hb_place()->process->requests.takeover_fault, memory_order_relaxed) !=
	       HB_TAKEOVER_WORKS;
}

const char *hb_takeover_fault_text(enum hb_takeover_fault fault)
{
	return texts[fault];
}
