/* SPDX-License-Identifier: Apache-2.0 */
/* When the daemon reads the rings of requests (daemon/request_rings.h). */
#include "daemon/request_rings.h"

#include "base/clock.h"
#include "daemon/page_memory.h"
#include "unit.h"

#include <string.h>

#define MS HB_NS_PER_MS
#define REQUESTS 6

struct rig {
	struct hb_tenancy tenancy;
	struct hb_gpu gpu;
	struct hb_request_list list;
	int64_t now_ns;
};

static struct rig *make_rig(void)
{
	static struct rig rig;
	struct hb_core_config config;
	memset(&rig, 0, sizeof rig);
	rig.now_ns = hb_clock_now_ns();
	assert_int_equal(hb_page_new(1, &rig.tenancy.page, &rig.tenancy.page_fd), 0);
	rig.tenancy.rights.priority = HB_PAGE_HIGH;
	rig.tenancy.slots_end = 1;
	rig.tenancy.members[0].watch = (struct hb_pid_watch *)&rig; /* only whether it is NULL is looked at */
	rig.tenancy.gpus[0] = &rig.gpu;
	rig.tenancy.n_gpus = 1;
	hb_core_config_init(&config);
	rig.gpu.engine = HB_ENGINE_TEMPORAL;
	rig.gpu.core = hb_core_new(&config, 0, NULL);
	rig.gpu.n_low = 1;
	struct hb_event event = {.kind = HB_EVENT_TENANT_ADD,
				 .tenant_add = {.name = {"service"}, .priority = HB_PRIORITY_HIGH, .slo_ns = 8 * MS}};
	assert_int_equal(hb_core_post(rig.gpu.core, 0, &event), 0);
	return &rig;
}

static void free_rig(struct rig *rig)
{
	hb_request_list_free(&rig->list);
	hb_core_free(rig->gpu.core);
	hb_page_free(rig->tenancy.page, rig->tenancy.page_fd);
}

/* Requests of 2 ms that follow each other after this time. */
static void serve(struct rig *rig, int64_t gap_ns)
{
	for (int i = 1; i <= 64; i++) {
		struct hb_event event = {.kind = HB_EVENT_REQUEST_PAST};
		event.request_past.end_ns = i * (2 * MS + gap_ns);
		event.request_past.begin_ns = event.request_past.end_ns - 2 * MS;
		assert_int_equal(hb_core_post(rig->gpu.core, event.request_past.end_ns, &event), 0);
		struct hb_action action;
		while (hb_core_next_action(rig->gpu.core, &action))
			;
	}
}

/* Reads some requests that ended in the last 60 ms. Returns when the next reading is due, after this one. */
static int64_t read_requests(struct rig *rig)
{
	struct hb_page_requests *requests = &rig->tenancy.page->processes[0].requests;
	for (int i = 0; i < REQUESTS; i++) {
		struct hb_page_request *request = &requests->ring[i];
		atomic_store(&request->begin_ns, rig->now_ns - 2 * MS);
		atomic_store(&request->end_ns, rig->now_ns);
	}
	atomic_store(&requests->written, REQUESTS);
	rig->tenancy.rings_read_ns = rig->now_ns - 60 * MS;
	rig->tenancy.rings_next_ns = rig->now_ns;
	int64_t next_ns = hb_request_rings_read(&rig->tenancy, rig->now_ns, &rig->list);
	assert_int_equal(rig->list.n, REQUESTS);
	return next_ns - rig->now_ns;
}

static void several_requests_are_read_together(void **state)
{
	struct rig *rig = make_rig();
	serve(rig, 20 * MS);
	assert_int_equal(read_requests(rig), 60 * MS);
	free_rig(rig);
}

static void tokens_that_set_time_slices_are_read_one_by_one(void **state)
{
	struct rig *rig = make_rig();
	serve(rig, MS / 10);
	assert_int_equal(read_requests(rig), 10 * MS);
	free_rig(rig);
}

static void tokens_of_a_service_without_company_are_read_together(void **state)
{
	struct rig *rig = make_rig();
	serve(rig, MS / 10);
	rig->gpu.n_low = 0;
	assert_int_equal(read_requests(rig), 60 * MS);
	free_rig(rig);
}

static void tokens_in_the_spatial_engine_are_read_together(void **state)
{
	struct rig *rig = make_rig();
	serve(rig, MS / 10);
	rig->gpu.engine = HB_ENGINE_SPATIAL;
	assert_int_equal(read_requests(rig), 60 * MS);
	free_rig(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_requests_are_read_together),
		cmocka_unit_test(tokens_that_set_time_slices_are_read_one_by_one),
		cmocka_unit_test(tokens_of_a_service_without_company_are_read_together),
		cmocka_unit_test(tokens_in_the_spatial_engine_are_read_together),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
