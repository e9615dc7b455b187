/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills the daemon and its clients with SIGKILL at each of their fault points, once
 * each. The surviving processes continue, the next daemon serves them, and memory
 * accounts return to zero.
 */
#include "base/fault_point.h"
#include "daemon_harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum area { DAEMON, CLIENT, RUN, SHIM };

struct point {
	enum area area;
	const char *name;
};

static const struct point points[] = {
#define HB_FAULT_POINT(area, name) {area, #name},
#include "base/fault_points.def"
#undef HB_FAULT_POINT
};

static struct daemon daemon_;

static int worker(void *argument)
{
	const struct hb_tenant_options *wish = argument;
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int result = join(&daemon_, wish, &member);
	if (result == 0) {
		member.page->gpus[0].used_bytes += 100;
		member.page->processes[member.slot].memory[0].used_bytes += 100;
	}
	return result;
}

static int leader(void *argument)
{
	return create(&daemon_, *(const struct hb_tenant_options *)argument);
}

/* Makes every request to a daemon that may be dead. None of them may hang or crash. */
static void live_through(const struct hb_tenant_options *wish, struct hb_membership *member)
{
	struct hb_error error;
	char *text = NULL;
	int status;
	create(&daemon_, *wish);
	join(&daemon_, wish, member);
	pid_t first = child_start(worker, (void *)(uintptr_t)wish, &status);
	struct hb_tenant_options other = wish_of(77, HB_PAGE_HIGH);
	pid_t second = child_start(leader, &other, &status);
	int fd = hb_client_open(daemon_.socket, 20000, &error);
	if (fd >= 0) {
		struct hb_msg_set change = {.tenant = member->tenant, .fields = HB_SET_MEMORY, .memory_bytes = 1 << 20};
		if (hb_client_status(fd, &text, &error) == 0)
			free(text);
		hb_client_set(fd, &change, &error);
	}
	child_kill(first);
	child_kill(second);
	/* The daemon notices these deaths (at some fault points it dies then) before it answers this request. */
	if (fd >= 0) {
		if (hb_client_status(fd, &text, &error) == 0)
			free(text);
		close(fd);
	}
}

static void expect_empty(struct hb_membership *member, const struct hb_tenant_options *wish)
{
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	if (member->page)
		assert_int_equal(member->page->gpus[0].used_bytes, 0);
	hb_client_bye(fd, wish->token, &error);
	hb_client_bye(fd, wish->token, &error);
	close(fd);
	assert_int_equal(daemon_tenants(&daemon_), 0);
	json_t *root = daemon_status(&daemon_), *gpu;
	size_t i;
	json_array_foreach(json_object_get(root, "gpus"), i, gpu)
		assert_int_equal(json_integer_value(json_object_get(gpu, "low_memory")), 0);
	json_decref(root);
}

static void daemon_dies_at(const char *name)
{
	struct hb_tenant_options wish = wish_of(5, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	setenv("HB_FAULT", name, 1);
	daemon_start(&daemon_, HBD_FAULTS, NULL);
	unsetenv("HB_FAULT");
	live_through(&wish, &member);
	/* If the fault point was not reached, nothing was tested. */
	int status = daemon_end(&daemon_, SIGTERM);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the daemon did not reach fault point %s", name);

	daemon_start_again(&daemon_, HBD_FAULTS);
	assert_true(daemon_.pid > 0);
	/* A client that has a page registers again with it; one that has none registers anew. */
	if (!member.page)
		assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	live_through(&wish, &member);
	expect_empty(&member, &wish);
	hb_membership_fini(&member);
	daemon_clean(&daemon_);
}

static int fail_at(void *argument)
{
	struct hb_tenant_options wish = wish_of(6, HB_PAGE_LOW);
	setenv("HB_FAULT", argument, 1);
	leader(&wish);
	return worker(&wish);
}

static void client_dies_at(const char *name)
{
	struct hb_tenant_options wish = wish_of(6, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int status;
	daemon_start(&daemon_, HBD_FAULTS, NULL);
	live_through(&wish, &member);
	size_t before = daemon_fds(&daemon_);
	pid_t child = child_start(fail_at, (void *)(uintptr_t)name, &status);
	if (status != -ECHILD)
		fail_msg("the client did not reach fault point %s", name);
	child_kill(child);
	assert_int_equal(daemon_fds(&daemon_), before);
	expect_empty(&member, &wish);
	hb_membership_fini(&member);
	daemon_clean(&daemon_);
}

static void survivors_continue_after_a_kill_at_each_fault_point(void **state)
{
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		if (points[i].area > CLIENT)
			continue; /* fault points of real programs: test_stack_faults.py */
		print_message("  %s\n", points[i].name);
		if (points[i].area == DAEMON)
			daemon_dies_at(points[i].name);
		else
			client_dies_at(points[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_continue_after_a_kill_at_each_fault_point)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
