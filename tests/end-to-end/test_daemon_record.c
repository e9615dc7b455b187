/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches in a recording: the launches that a process writes to its ring
 * (page_trace.h) are in the text, and invalid entries do no harm. The test acts as
 * the process.
 */
#include "base/clock.h"
#include "daemon_harness.h"
#include "hummingbird/page_trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct daemon daemon_;
static struct hb_membership member;
static struct hb_trace_ring *ring;

static void expect_recording(bool on)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while ((member.page->recording != 0) != on && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(member.page->recording != 0, on);
}

static int record(uint32_t seconds, char **text)
{
	struct hb_error error = {""};
	int socket = daemon_connect(&daemon_);
	int result = hb_client_record(socket, seconds, text, &error);
	close(socket);
	return result;
}

static int set_up(void **state)
{
	struct hb_tenant_options low = wish_of(1, HB_PAGE_LOW);
	member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	daemon_start(&daemon_, HBD, NULL);
	assert_int_equal(create(&daemon_, low), 0);
	assert_int_equal(join(&daemon_, &low, &member), 0);
	off_t at = (off_t)(HB_TRACE_OFFSET + member.slot * sizeof *ring);
	ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, member.page_fd, at);
	assert_ptr_not_equal(ring, MAP_FAILED);
	expect_recording(false);
	assert_int_equal(record(600, NULL), 0);
	expect_recording(true);
	return 0;
}

static int tear_down(void **state)
{
	munmap(ring, sizeof *ring);
	hb_membership_fini(&member);
	daemon_clean(&daemon_);
	return 0;
}

static void note(int64_t at_ns, uint32_t name, uint32_t gpu)
{
	uint64_t i = ring->claimed++;
	struct hb_trace_launch *entry = &ring->launches[i % HB_TRACE_LAUNCHES];
	entry->at_ns = at_ns;
	atomic_store(&entry->what, hb_trace_what(i, name, gpu));
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;
	for (const char *at = text; (at = strstr(at, word)); at++)
		n++;
	return n;
}

static void launches_are_recorded_with_kernel_names(void **state)
{
	char *text = NULL;
	int64_t now_ns = hb_clock_now_ns();
	strcpy(ring->names[0], "gemm_128");
	strcpy(ring->names[1], "two words\n1 2 = x");
	for (int i = 0; i < 3; i++)
		note(now_ns, HB_TRACE_FIRST_NAME, 0);
	note(now_ns, HB_TRACE_FIRST_NAME + 1, 0);
	note(now_ns, HB_TRACE_GRAPH, 0);
	note(now_ns, HB_TRACE_OTHER, 0);
	assert_int_equal(record(0, &text), 0);
	assert_int_equal(count(text, " ~ launch #"), 6);
	assert_int_equal(count(text, " ~ name 0 gemm_128\n"), 1);
	assert_int_equal(count(text, " name 1 two_words_1_2_=_x\n"), 1);
	assert_int_equal(count(text, " name 2 graph\n") + count(text, " name 3 kernel\n"), 2);
	assert_int_equal(count(text, " 0\n"), 3);
	assert_null(strstr(text, "not in it"));
	expect_recording(false);
	free(text);
}

static void invalid_launches_count_as_missing(void **state)
{
	char *text = NULL;
	int64_t now_ns = hb_clock_now_ns();
	memset(ring->names, 'A', sizeof ring->names); /* without a NUL */
	note(now_ns, UINT16_MAX, 0);
	note(now_ns, HB_TRACE_FIRST_NAME + HB_TRACE_NAMES - 1, 0);
	note(now_ns, HB_TRACE_OTHER, 1);
	note(now_ns, HB_TRACE_OTHER, UINT32_MAX);
	note(now_ns + 3600 * HB_NS_PER_S, HB_TRACE_OTHER, 0);
	note(1, HB_TRACE_OTHER, 0);
	note(INT64_MIN, HB_TRACE_OTHER, 0);
	assert_int_equal(record(0, &text), 0);
	assert_int_equal(count(text, " ~ launch #"), 2);
	assert_non_null(strstr(text, "# 5 launches are missing\n"));
	free(text);
}

/* More launches than the ring holds, or a counter that goes backwards or far ahead: the daemon does bounded work and continues. */
static void an_overwritten_ring_does_no_harm(void **state)
{
	static const uint64_t values[] = {UINT64_MAX, 0, UINT64_MAX / 2, 1, 1000000, HB_TRACE_LAUNCHES, 5};
	char *text = NULL;
	for (int round = 0; round < 50; round++) {
		memset((void *)ring->launches, round % 2 ? 0xff : 0, sizeof ring->launches);
		ring->claimed = values[(size_t)round % (sizeof values / sizeof *values)];
		for (int i = 0; i < 20; i++)
			daemon_tenants(&daemon_);
	}
	assert_int_equal(record(0, &text), 0);
	assert_int_equal(count(text, " ~ launch #"), 0);
	assert_int_equal(daemon_tenants(&daemon_), 1);
	free(text);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(launches_are_recorded_with_kernel_names),
		TEST(invalid_launches_count_as_missing),
		TEST(an_overwritten_ring_does_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
