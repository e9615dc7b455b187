/* SPDX-License-Identifier: Apache-2.0 */
/* Tests time slices and turns, with small clients instead of CUDA programs. */
#include "base/clock.h"
#include "gate/gate.h"
#include "one_daemon.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static void slices_follow_priority(void **state)
{
	struct hb_tenant_options high = wish_of(1, HB_PAGE_HIGH), low = wish_of(2, HB_PAGE_LOW);
	struct hb_membership a = HB_MEMBERSHIP_NONE, b = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, high), 0);
	assert_int_equal(create(&daemon_, low), 0);
	assert_int_equal(join(&daemon_, &high, &a), 0);
	assert_int_equal(join(&daemon_, &low, &b), 0);
	assert_int_equal(b.page->gpus[0].slice_us[HB_GROUP_COMPUTE], 1);
	assert_true(a.page->gpus[0].slice_us[HB_GROUP_COMPUTE] > 2000);
	assert_true(a.page->slice_sequence > 0);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

static void expect_slice(struct hb_page *page, uint32_t slice_us)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (page->gpus[0].slice_us[HB_GROUP_COMPUTE] != slice_us && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(page->gpus[0].slice_us[HB_GROUP_COMPUTE], slice_us);
}

static void a_tenant_with_two_compute_groups_gets_no_tiny_slice(void **state)
{
	/* Two contexts with work and tiny slices stop each other: see gpu_slices.c. */
	struct hb_tenant_options low = wish_of(2, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, low), 0);
	assert_int_equal(join(&daemon_, &low, &member), 0);
	for (size_t i = 0; i < 2; i++) {
		member.page->processes[member.slot].groups[i].group_class = HB_GROUP_COMPUTE;
		member.page->processes[member.slot].groups[i].state = HB_GROUP_SET;
	}
	expect_slice(member.page, 2048);
	hb_membership_fini(&member);
}

/* A launch of the second tenant was on its way when its gate closed, and arrives during the first tenant's turn. */
static void a_late_launch_gets_the_drivers_own_slice_until_it_ends(void **state)
{
	struct hb_tenant_options first = wish_of(2, HB_PAGE_LOW), second = wish_of(3, HB_PAGE_LOW);
	struct hb_membership a = HB_MEMBERSHIP_NONE, b = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, first), 0);
	assert_int_equal(create(&daemon_, second), 0);
	assert_int_equal(join(&daemon_, &first, &a), 0);
	assert_int_equal(join(&daemon_, &second, &b), 0);
	struct hb_gate *gate = (struct hb_gate *)b.page->processes[b.slot].gates[0];
	hb_gate_try(
		(struct hb_gate *)a.page->processes[a.slot].gates[0]); /* the tenant stays busy and keeps its turn */
	assert_int_equal(hb_gate_state(gate), HB_GATE_CLOSED);
	daemon_tenants(&daemon_);
	expect_slice(b.page, 1);
	hb_gate_bypass(gate, 1);
	expect_slice(b.page, 2048);
	assert_int_equal(a.page->gpus[0].slice_us[HB_GROUP_COMPUTE], 1);
	hb_gate_completed(gate, 1);
	expect_slice(b.page, 1);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

static void expect_news(const struct hb_gpu_page *page, uint32_t news)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (page->listening != news && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(page->listening, news);
}

static void ring(struct hb_page *page)
{
	atomic_fetch_add(&page->gpus[0].doorbell, 1);
	syscall(SYS_futex, &page->gpus[0].doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static struct hb_membership start_low(unsigned seed)
{
	struct hb_tenant_options wish = wish_of(seed, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	return member;
}

/* The page names the news that the daemon wants. A tenant that rings without a reason has no lasting effect. */
static void the_page_says_which_news_the_daemon_wants(void **state)
{
	struct hb_membership a = start_low(1);
	const struct hb_gpu_page *page = a.gpus[0];
	assert_int_equal(page->listening, 0); /* alone */
	struct hb_membership b = start_low(2);
	a.page->processes[a.slot].rings = b.page->processes[b.slot].rings = HB_PAGE_RINGS;
	expect_news(page, HB_NEWS_WAITING);
	struct hb_gate *open = gate_of(&a, 0), *closed = gate_of(&b, 0);
	if (hb_gate_try(open) != HB_GATE_GO) {
		open = gate_of(&b, 0);
		closed = gate_of(&a, 0);
		assert_int_equal(hb_gate_try(open), HB_GATE_GO);
	}
	struct hb_page *holder = open == gate_of(&a, 0) ? a.page : b.page, *waiter = holder == a.page ? b.page : a.page;
	hb_gate_wait_begin(closed);
	ring(waiter);
	expect_news(page, HB_NEWS_ENDED);
	for (int i = 0; i < 100000; i++)
		ring(waiter);
	expect_news(page, HB_NEWS_ENDED);
	hb_gate_completed(open, 1);
	ring(holder);
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (hb_gate_state(closed) != HB_GATE_OPEN && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(closed), HB_GATE_OPEN);
	hb_gate_wait_end(closed);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

/* Two LP tenants without MPS: one gate opens at a time, and the next only when the first has drained. */
static void low_tenants_take_turns(void **state)
{
	struct hb_membership a = start_low(1), b = start_low(2);
	struct hb_gate *first = gate_of(&a, 0), *second = gate_of(&b, 0);
	if (hb_gate_try(first) != HB_GATE_GO) {
		first = gate_of(&b, 0);
		second = gate_of(&a, 0);
		assert_int_equal(hb_gate_try(first), HB_GATE_GO);
	}
	assert_int_equal(hb_gate_try(second), HB_GATE_WAIT);
	uint32_t seen = hb_gate_wait_begin(second);
	/* The first has work in flight: its gate closes for the second, whose gate stays closed until the first has drained. */
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (hb_gate_state(first) != HB_GATE_CLOSED && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(first), HB_GATE_CLOSED);
	assert_int_equal(hb_gate_try(second), HB_GATE_WAIT);
	hb_gate_completed(first, 1);
	while (hb_gate_try(second) != HB_GATE_GO && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(second), HB_GATE_OPEN);
	assert_int_equal(hb_gate_try(first), HB_GATE_WAIT);
	assert_int_not_equal(second->wake_word, seen);
	hb_gate_wait_end(second);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

/* A tenant cannot keep the turn by writing to its page: after a while its work counts as a late launch. */
static void work_that_never_ends_delays_others_for_a_bounded_time(void **state)
{
	struct hb_membership a = start_low(1), b = start_low(2);
	struct hb_gate *liar = gate_of(&a, 0), *honest = gate_of(&b, 0);
	hb_gate_bypass(liar, 1000000);
	for (int turn = 0; turn < 4; turn++) {
		int64_t begin_ns = hb_clock_now_ns(), limit_ns = begin_ns + 60 * HB_NS_PER_S;
		hb_gate_wait_begin(honest);
		while (hb_gate_try(honest) != HB_GATE_GO && hb_clock_now_ns() < limit_ns)
			daemon_tenants(&daemon_);
		assert_int_equal(hb_gate_state(honest), HB_GATE_OPEN);
		hb_gate_wait_end(honest);
		hb_gate_completed(honest, 1);
		hb_gate_wait_begin(liar); /* wants the GPU all the time */
		while (hb_gate_state(liar) != HB_GATE_OPEN && hb_clock_now_ns() < limit_ns)
			daemon_tenants(&daemon_);
		assert_int_equal(hb_gate_state(liar), HB_GATE_OPEN);
	}
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

/* --- a process that executes another program: pid and pidfd stay the same --- */

static int work_and_execute_another(void *argument)
{
	const struct hb_tenant_options *wish = argument;
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	if (create(&daemon_, *wish) != 0 || join(&daemon_, wish, &member) != 0)
		return 1;
	hb_gate_bypass(gate_of(&member, 0), 1);
	member.page->gpus[0].used_bytes += 1000;
	member.page->processes[member.slot].memory[0].used_bytes += 1000;
	execlp("sleep", "sleep", "1000", (char *)NULL);
	return 2;
}

static void expect_open(struct hb_gate *gate)
{
	int64_t limit_ns = hb_clock_now_ns() + 60 * HB_NS_PER_S;
	while (hb_gate_state(gate) != HB_GATE_OPEN && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(gate), HB_GATE_OPEN);
}

/* No shim is left to report that its work has ended: its turn passes on, and its memory is given back. */
static void a_process_that_executes_another_program_leaves(void **state)
{
	struct hb_tenant_options wish = wish_of(2, HB_PAGE_LOW), gone = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int status;
	pid_t child = child_start(work_and_execute_another, &gone, &status);
	assert_int_equal(status, -ECHILD); /* the process has not reported an exit status */
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	hb_gate_wait_begin(gate_of(&member, 0));
	expect_open(gate_of(&member, 0));
	int64_t limit_ns = hb_clock_now_ns() + 60 * HB_NS_PER_S;
	while (member.gpus[0]->low_used_bytes && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(member.gpus[0]->low_used_bytes, 0);
	assert_int_equal(daemon_tenants(&daemon_),
			 2); /* the process still belongs to `hb run` and may use CUDA again */
	hb_gate_wait_end(gate_of(&member, 0));
	child_kill(child);
	hb_membership_fini(&member);
}

/* The next program uses CUDA, too: it registers without the slot and memory of the first one. */
static void the_next_program_of_a_process_registers_again(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership before = HB_MEMBERSHIP_NONE, after = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &before), 0);
	hb_gate_bypass(gate_of(&before, 0), 7);
	before.page->gpus[0].used_bytes += 1000;
	before.page->processes[before.slot].memory[0].used_bytes += 1000;
	before.page->processes[before.slot].counters[HB_COUNT_kernels] += 7;
	/* The same program registers again: nothing changes. */
	assert_int_equal(join(&daemon_, &wish, &before), 0);
	assert_int_equal(hb_gate_in_flight(gate_of(&before, 0)), 7);
	assert_int_equal(join(&daemon_, &wish, &after), 0);
	assert_int_equal(hb_gate_in_flight(gate_of(&after, 0)), 0);
	assert_int_equal(after.page->processes[after.slot].memory[0].used_bytes, 0);
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (after.page->gpus[0].used_bytes && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(after.page->gpus[0].used_bytes, 0);
	json_t *root = daemon_status(&daemon_);
	json_t *tenant = json_array_get(json_object_get(root, "tenants"), 0);
	assert_int_equal(json_array_size(json_object_get(tenant, "processes")), 1);
	json_t *counters = json_object_get(tenant, "counters");
	assert_int_equal(json_integer_value(json_object_get(counters, "kernels")), 7);
	json_decref(root);
	hb_membership_fini(&before);
	hb_membership_fini(&after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slices_follow_priority),
		TEST(a_tenant_with_two_compute_groups_gets_no_tiny_slice),
		TEST(a_late_launch_gets_the_drivers_own_slice_until_it_ends),
		TEST(low_tenants_take_turns),
		TEST(work_that_never_ends_delays_others_for_a_bounded_time),
		TEST(the_page_says_which_news_the_daemon_wants),
		TEST(a_process_that_executes_another_program_leaves),
		TEST(the_next_program_of_a_process_registers_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
