/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that processes report through their rings: they are counted and
 * judged, misses get a cause, objectives are learned, and a ring of invalid
 * entries does no harm. Small clients write the rings instead of the shim.
 */
#include "base/clock.h"
#include "daemon_harness.h"
#include "gate/gate.h"

#include <string.h>
#include <unistd.h>

#define SLO_NS (10 * HB_NS_PER_MS)

static struct daemon daemon_;
static struct hb_membership high, low, other;

static void register_as(unsigned seed, enum hb_page_priority priority, int64_t slo_ns, struct hb_membership *member)
{
	struct hb_tenant_options wish = wish_of(seed, priority);
	wish.slo_ns = slo_ns;
	*member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, member), 0);
}

static int set_up(void **state)
{
	daemon_start(&daemon_, HBD, NULL);
	register_as(1, HB_PAGE_HIGH, SLO_NS, &high);
	register_as(2, HB_PAGE_LOW, 0, &low);
	register_as(3, HB_PAGE_HIGH, 0, &other);
	return 0;
}

static int tear_down(void **state)
{
	hb_membership_fini(&high);
	hb_membership_fini(&low);
	hb_membership_fini(&other);
	daemon_clean(&daemon_);
	return 0;
}

static struct hb_page_requests *signs_of(const struct hb_membership *member)
{
	return &member->page->processes[member->slot].requests;
}

static void tell(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags)
{
	struct hb_page_requests *signs = signs_of(&high);
	struct hb_page_request *request = &signs->ring[signs->written % HB_PAGE_REQUESTS];
	request->begin_ns = begin_ns;
	request->end_ns = end_ns;
	request->deadline_ns = deadline_ns;
	request->flags = flags;
	signs->written++;
}

/* Reports a request that has just ended and did not wait for the one before it. */
static void tell_latency(int64_t latency_ns, uint32_t flags)
{
	static int64_t last_end_ns;
	int64_t now_ns = hb_clock_now_ns();
	while (now_ns - latency_ns <= last_end_ns)
		now_ns = hb_clock_now_ns();
	last_end_ns = now_ns;
	tell(now_ns - latency_ns, now_ns, 0, flags);
}

static json_int_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Returns the status of the tenant of `high`, once `n` requests are counted or lost. The status belongs to *root. */
static json_t *use_after(json_int_t requests, json_t **root)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	for (;;) {
		*root = daemon_status(&daemon_);
		json_t *tenant = json_array_get(json_object_get(*root, "tenants"), 0);
		json_t *use = json_array_get(json_object_get(tenant, "gpus"), 0);
		json_t *counts = json_object_get(use, "scheduling");
		if (number(counts, "requests_ended") + number(counts, "requests_lost") >= requests ||
		    hb_clock_now_ns() > limit_ns)
			return use;
		json_decref(*root);
	}
}

static json_int_t counted(json_int_t requests, const char *what)
{
	json_t *root, *use = use_after(requests, &root);
	json_int_t value = number(json_object_get(use, "scheduling"), what);
	json_decref(root);
	return value;
}

static void requests_are_judged_by_the_objective(void **state)
{
	json_t *root, *use;
	tell_latency(SLO_NS / 2, 0);
	tell_latency(SLO_NS - 1, 0);
	tell_latency(2 * SLO_NS, 0);
	int64_t now_ns = hb_clock_now_ns();
	tell(now_ns - 2 * SLO_NS, now_ns, now_ns + 1, HB_REQUEST_REPORTED); /* its own deadline counts */
	use = use_after(4, &root);
	assert_int_equal(number(use, "requests"), 4);
	assert_int_equal(number(use, "attainment_ppm"), 750000);
	assert_int_equal(number(use, "slo_ns"), SLO_NS);
	json_t *latency = json_object_get(use, "latency");
	assert_int_equal(number(latency, "count"), 4);
	assert_in_range(number(latency, "p50_ns"), SLO_NS / 2, SLO_NS + SLO_NS / 10);
	assert_in_range(number(latency, "p99_ns"), 2 * SLO_NS - SLO_NS / 5, 2 * SLO_NS + SLO_NS / 5);
	json_decref(root);
}

/* --- causes of misses --- */

static void a_miss_alone_is_the_tenants_own_jitter(void **state)
{
	tell_latency(2 * SLO_NS, 0);
	assert_int_equal(counted(1, "missed_alone"), 1);
}

static void a_miss_beside_low_priority_is_caused_by_low_priority(void **state)
{
	hb_gate_bypass(gate_of(&low, 0), 1);
	tell_latency(2 * SLO_NS, 0);
	assert_int_equal(counted(1, "missed_low"), 1);
	/* Its work has ended, and a request that began later has the GPU alone. */
	hb_gate_completed(gate_of(&low, 0), 1);
	tell_latency(SLO_NS / 2, 0);
	counted(2, "requests_ended"); /* so the daemon has polled since */
	int64_t begin_ns = hb_clock_now_ns(), end_ns = begin_ns;
	while (end_ns - begin_ns <= SLO_NS)
		end_ns = hb_clock_now_ns();
	tell(begin_ns, end_ns, 0, 0);
	assert_int_equal(counted(3, "missed_low"), 1);
	assert_int_equal(counted(3, "missed_alone"), 1);
}

static void a_miss_by_a_switch_is_caused_by_the_switch_unless_taken_over(void **state)
{
	hb_gate_bypass(gate_of(&low, 0), 1);
	tell_latency(SLO_NS + 100 * HB_NS_PER_US, 0);
	assert_int_equal(counted(1, "missed_switch"), 1);
	tell_latency(SLO_NS + 100 * HB_NS_PER_US, HB_REQUEST_TAKEOVER);
	assert_int_equal(counted(2, "missed_switch"), 1);
	assert_int_equal(counted(2, "missed_low"), 1);
}

static void a_miss_beside_another_high_tenant_is_caused_by_that_tenant(void **state)
{
	hb_gate_bypass(gate_of(&other, 0), 1);
	tell_latency(2 * SLO_NS, 0);
	assert_int_equal(counted(1, "missed_high"), 1);
}

static void a_miss_behind_another_request_is_caused_by_the_queue(void **state)
{
	int64_t now_ns = hb_clock_now_ns();
	tell(now_ns - SLO_NS / 2, now_ns, 0, 0);
	tell(now_ns - SLO_NS / 4, now_ns, now_ns - 1, 0);
	assert_int_equal(counted(2, "missed_queue"), 1);
	assert_int_equal(counted(2, "requests_met"), 1);
}

/* --- running requests --- */

/* Reads a number of the tenant of `high` from the status. INT64_MAX = null. */
static int64_t now_of(const char *key)
{
	json_t *root = daemon_status(&daemon_);
	json_t *tenant = json_array_get(json_object_get(root, "tenants"), 0);
	json_t *value = json_object_get(json_array_get(json_object_get(tenant, "gpus"), 0), key);
	assert_non_null(value);
	int64_t number = json_is_integer(value) ? json_integer_value(value) : INT64_MAX;
	json_decref(root);
	return number;
}

static void a_running_request_has_slack(void **state)
{
	struct hb_page_requests *signs = signs_of(&high);
	assert_int_equal(now_of("running_ns"), INT64_MAX);
	assert_int_equal(now_of("slack_ns"), INT64_MAX);
	/* By the objective, which it has missed; by a deadline of its own, an hour from now. */
	signs->running_since_ns = hb_clock_now_ns() - 3 * SLO_NS;
	assert_true(now_of("running_ns") >= 3 * SLO_NS);
	assert_true(now_of("slack_ns") <= -2 * SLO_NS);
	signs->running_deadline_ns = hb_clock_now_ns() + 3600 * HB_NS_PER_S;
	assert_in_range(now_of("slack_ns"), 1800 * HB_NS_PER_S, 3600 * HB_NS_PER_S);
	signs->running_since_ns = 0;
	assert_int_equal(now_of("running_ns"), INT64_MAX);
}

static void slack_subtracts_the_predicted_remaining_time(void **state)
{
	struct hb_page_requests *signs = signs_of(&high);
	int64_t alone_ns = HB_NS_PER_S, deadline_ns = 3600 * HB_NS_PER_S;
	int64_t begin_ns = hb_clock_now_ns();
	while (hb_clock_now_ns() - begin_ns < alone_ns)
		usleep(10000);
	tell(begin_ns, hb_clock_now_ns(), 0, 0);
	counted(1, "requests_ended");
	int64_t now_ns = hb_clock_now_ns();
	signs->running_deadline_ns = now_ns + deadline_ns;
	signs->running_since_ns = now_ns;
	/* The request takes one second alone, of which a part is over. */
	assert_true(now_of("slack_ns") <= deadline_ns - alone_ns);
}

static void invalid_times_show_no_running_request(void **state)
{
	struct hb_page_requests *signs = signs_of(&high);
	static const int64_t nonsense[] = {-1, INT64_MIN, INT64_MAX};
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++) {
		signs->running_deadline_ns = 0;
		signs->running_since_ns = nonsense[i];
		assert_int_equal(now_of("running_ns"), INT64_MAX);
		signs->running_since_ns = hb_clock_now_ns();
		signs->running_deadline_ns = nonsense[i];
		assert_int_equal(now_of("slack_ns"), INT64_MAX);
	}
}

/* --- learned objectives --- */

static void auto_learns_the_objective_from_requests_alone_and_keeps_it(void **state)
{
	struct hb_error error = {""};
	struct hb_msg_set change = {.tenant = high.tenant, .fields = HB_SET_SLO, .slo_ns = -1};
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	for (int i = 1; i <= 100; i++) {
		tell_latency(3 * HB_NS_PER_MS, 0);
		if (i % 10 == 0)
			counted(i, "requests_ended");
	}
	json_t *root, *use = use_after(100, &root);
	json_int_t slo_ns = number(use, "slo_ns");
	assert_true(slo_ns >= 3 * HB_NS_PER_MS && slo_ns < 4 * HB_NS_PER_MS);
	json_decref(root);
	/* A change of another option keeps the learned objective. */
	change = (struct hb_msg_set){.tenant = high.tenant, .fields = HB_SET_MEMORY, .memory_bytes = 1 << 30};
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	use = use_after(100, &root);
	assert_int_equal(number(use, "slo_ns"), slo_ns);
	json_decref(root);
	close(fd);
}

/* --- invalid rings --- */

static void more_than_the_ring_holds_are_counted_as_lost(void **state)
{
	struct hb_page_requests *signs = signs_of(&high);
	int64_t now_ns = hb_clock_now_ns();
	for (int i = 0; i < HB_PAGE_REQUESTS; i++) {
		signs->ring[i].begin_ns = now_ns - 1000;
		signs->ring[i].end_ns = now_ns;
	}
	signs->written = 5 * HB_PAGE_REQUESTS;
	assert_int_equal(counted(5 * HB_PAGE_REQUESTS, "requests_ended"), HB_PAGE_REQUESTS - 1);
	assert_int_equal(counted(5 * HB_PAGE_REQUESTS, "requests_lost"), 4 * HB_PAGE_REQUESTS + 1);
}

static void invalid_requests_are_dropped_and_do_no_harm(void **state)
{
	int64_t now_ns = hb_clock_now_ns();
	struct hb_page_requests *signs = signs_of(&high);
	tell(now_ns, now_ns - 1, 0, 0);
	tell(-5, now_ns, 0, 0);
	tell(now_ns, INT64_MAX, 0, 0);
	tell(INT64_MIN, INT64_MAX, INT64_MIN, UINT32_MAX);
	tell(1, 2, 0, 0); /* before the tenant registered */
	tell(now_ns, now_ns, INT64_MAX, 0);
	tell_latency(1, UINT32_MAX);
	assert_int_equal(counted(7, "requests_ended"), 1);
	assert_int_equal(counted(7, "requests_lost"), 6);
	/* Backwards, and by more requests than possible: the daemon continues from there. */
	signs->written = 3;
	daemon_tenants(&daemon_);
	signs->written = UINT64_MAX - 7;
	daemon_tenants(&daemon_);
	memset(signs->ring, 0xff, sizeof signs->ring);
	assert_int_equal(daemon_tenants(&daemon_), 3);
	signs->written = 0;
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	json_int_t ended = counted(7, "requests_ended");
	while (counted(7, "requests_ended") == ended && hb_clock_now_ns() < limit_ns)
		tell_latency(1, 0);
	assert_true(counted(7, "requests_ended") > ended);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(requests_are_judged_by_the_objective),
		TEST(a_miss_alone_is_the_tenants_own_jitter),
		TEST(a_miss_beside_low_priority_is_caused_by_low_priority),
		TEST(a_miss_by_a_switch_is_caused_by_the_switch_unless_taken_over),
		TEST(a_miss_beside_another_high_tenant_is_caused_by_that_tenant),
		TEST(a_miss_behind_another_request_is_caused_by_the_queue),
		TEST(a_running_request_has_slack),
		TEST(slack_subtracts_the_predicted_remaining_time),
		TEST(invalid_times_show_no_running_request),
		TEST(auto_learns_the_objective_from_requests_alone_and_keeps_it),
		TEST(more_than_the_ring_holds_are_counted_as_lost),
		TEST(invalid_requests_are_dropped_and_do_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
