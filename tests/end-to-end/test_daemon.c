/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the daemon over its socket, with small clients instead of CUDA programs:
 * tenants register, end, are killed, and outlive the daemon; nothing leaks.
 */
#include "base/clock.h"
#include "gate/gate.h"
#include "one_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static json_t *tenant_at(json_t *root, size_t i)
{
	return json_array_get(json_object_get(root, "tenants"), i);
}

/* --- registering --------------------------------------------------------------------- */

static void a_process_joins_the_tenant_of_its_token(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	wish.slo_ns = 10000000;
	wish.memory_bytes = 1 << 20;
	wish.totals[0] = UINT64_C(141) << 30;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(daemon_tenants(&daemon_), 1);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(daemon_tenants(&daemon_), 1);
	assert_int_equal(member.slot, 0);
	assert_int_equal(member.n_gpus, 1);
	assert_int_equal(member.page->priority, HB_PAGE_HIGH);
	assert_int_equal(member.page->slo_ns, 10000000);
	assert_int_equal(member.page->gpus[0].limit_bytes, 1 << 20);
	assert_memory_equal(member.page->gpus[0].uuid, wish.uuids[0], HB_UUID_BYTES);
	assert_int_equal(hb_gate_state(gate_of(&member, 0)), HB_GATE_OPEN);
	assert_int_equal(member.page->gpus[0].total_bytes, UINT64_C(141) << 30);
	assert_int_equal(member.gpus[0]->total_bytes, 0); /* the driver's figure only; there is no driver */
	assert_true(member.page->heartbeat_ns > 0);
	/* Registering twice is the same as once. */
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(member.slot, 0);
	hb_membership_fini(&member);
}

static void an_unknown_token_waits_until_older_processes_registered(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(join(&daemon_, &wish, &member), -EAGAIN);
	assert_null(member.page);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void wrong_kinds_of_gpu_and_engine_are_refused(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	wish.flags = HB_REGISTER_SIMULATED;
	assert_int_equal(create(&daemon_, wish), -EINVAL);
	wish.flags = 0;
	wish.engine = HB_ENGINE_SPATIAL;
	assert_int_equal(create(&daemon_, wish), -EOPNOTSUPP);
	wish.engine = HB_ENGINE_NONE;
	wish.flags = HB_REGISTER_SERVER;
	assert_int_equal(create(&daemon_, wish), -EPERM);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void a_tenant_can_add_gpus_later(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	wish.n_gpus = 2;
	memset(wish.uuids[1], 0x22, HB_UUID_BYTES);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(member.n_gpus, 2);
	assert_int_equal(member.page->n_gpus, 2);
	assert_int_equal(member.gpus[1]->uuid[0], 0x22);
	assert_int_equal(member.gpus[1]->tenants_high, 1);
	hb_membership_fini(&member);
}

/* --- killed processes ------------------------------------------------------------------------------ */

struct join_arguments {
	struct hb_tenant_options wish;
	uint64_t memory;
};

static int join_and_allocate(void *argument)
{
	struct join_arguments *arguments = argument;
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int result = join(&daemon_, &arguments->wish, &member);
	if (result == 0 && arguments->memory) {
		member.page->gpus[0].used_bytes += arguments->memory;
		member.page->processes[member.slot].memory[0].used_bytes += arguments->memory;
		member.page->processes[member.slot].counters[HB_COUNT_kernels] += 7;
	}
	return result;
}

static int create_only(void *argument)
{
	return create(&daemon_, ((struct join_arguments *)argument)->wish);
}

static void the_memory_of_a_killed_process_is_given_back(void **state)
{
	struct join_arguments arguments = {.wish = wish_of(1, HB_PAGE_LOW), .memory = 1000};
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int status;
	assert_int_equal(create(&daemon_, arguments.wish), 0);
	assert_int_equal(join(&daemon_, &arguments.wish, &member), 0);
	pid_t child = child_start(join_and_allocate, &arguments, &status);
	assert_int_equal(status, 0);
	assert_int_equal(member.page->gpus[0].used_bytes, 1000);
	child_kill(child);
	json_t *root = daemon_status(&daemon_);
	assert_int_equal(json_array_size(json_object_get(tenant_at(root, 0), "processes")), 1);
	/* Its counters are kept. */
	json_t *counters = json_object_get(tenant_at(root, 0), "counters");
	assert_int_equal(json_integer_value(json_object_get(counters, "kernels")), 7);
	json_decref(root);
	assert_int_equal(member.page->gpus[0].used_bytes, 0);
	assert_int_equal(member.gpus[0]->low_used_bytes, 0);
	hb_membership_fini(&member);
}

static void a_tenant_ends_with_its_last_process(void **state)
{
	struct join_arguments arguments = {.wish = wish_of(1, HB_PAGE_LOW)};
	int status;
	pid_t leader = child_start(create_only, &arguments, &status);
	assert_int_equal(status, 0);
	pid_t worker = child_start(join_and_allocate, &arguments, &status);
	assert_int_equal(status, 0);
	child_kill(leader);
	assert_int_equal(daemon_tenants(&daemon_), 1);
	child_kill(worker);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void a_process_can_leave_with_bye(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_error error;
	assert_int_equal(create(&daemon_, wish), 0);
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish.token, &error), 0);
	assert_int_equal(hb_client_bye(fd, wish.token, &error), -ESRCH);
	close(fd);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void two_hundred_tenants_register_and_end_without_leaks(void **state)
{
	enum { N = 200 };
	static pid_t children[N];
	struct join_arguments arguments = {.memory = 4096};
	int status;
	daemon_tenants(&daemon_);
	arguments.wish = wish_of(9999, HB_PAGE_HIGH);
	pid_t keeper = child_start(create_only, &arguments,
				   &status); /* the GPU's page exists from the first round on */
	size_t before = 0;
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++) {
			arguments.wish = wish_of(i, i % 10 ? HB_PAGE_LOW : HB_PAGE_HIGH);
			assert_int_equal(create(&daemon_, arguments.wish), 0);
			children[i] = child_start(join_and_allocate, &arguments, &status);
			assert_int_equal(status, 0);
		}
		assert_int_equal(daemon_tenants(&daemon_), N + 1);
		int fd = daemon_connect(&daemon_);
		for (unsigned i = 0; i < N; i++) {
			struct hb_error error;
			child_kill(children[i]);
			assert_int_equal(hb_client_bye(fd, wish_of(i, HB_PAGE_LOW).token, &error), 0);
		}
		close(fd);
		assert_int_equal(daemon_tenants(&daemon_), 1);
		size_t now = daemon_fds(&daemon_);
		if (round == 0)
			before = now;
		assert_int_equal(now, before);
	}
	child_kill(keeper);
	json_t *root = daemon_status(&daemon_);
	json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
	assert_int_equal(json_integer_value(json_object_get(gpu, "low_memory")), 0);
	assert_int_equal(json_integer_value(json_object_get(gpu, "low")), 0);
	json_decref(root);
}

static void tenants_beyond_the_table_are_refused(void **state)
{
	struct hb_error error;
	for (unsigned i = 0; i < 256; i++)
		assert_int_equal(create(&daemon_, wish_of(i, HB_PAGE_LOW)), 0);
	assert_int_equal(create(&daemon_, wish_of(256, HB_PAGE_LOW)), -EUSERS);
	/* A status of that size takes several messages. */
	assert_int_equal(daemon_tenants(&daemon_), 256);
	/* It lists them as they came, also the last one, which takes the first place of the table. */
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish_of(0, HB_PAGE_LOW).token, &error), 0);
	close(fd);
	assert_int_equal(create(&daemon_, wish_of(256, HB_PAGE_LOW)), 0);
	json_t *root = daemon_status(&daemon_);
	for (size_t i = 0; i < 256; i++)
		assert_int_equal(json_integer_value(json_object_get(tenant_at(root, i), "id")), i + 2);
	json_decref(root);
}

/* --- the end of the daemon ---------------------------------------------------------------- */

static void many_tenants_fit_into_the_default_descriptor_limit(void **state)
{
	struct rlimit before, narrow;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	narrow = before;
	narrow.rlim_cur = 60;
	daemon_end(&daemon_, SIGKILL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &narrow), 0);
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(create(&daemon_, wish_of(1000 + i, HB_PAGE_HIGH)), 0);
	assert_int_equal(daemon_tenants(&daemon_), 60);
}

static void without_descriptors_the_daemon_waits_for_some(void **state)
{
	enum { N = 40 };
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n_open = daemon_fds(&daemon_);
	struct rlimit none = {n_open + 5, n_open + 5};
	int fds[N];
	strcpy(address.sun_path, daemon_.socket);
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_NOFILE, &none, NULL), 0);
	for (int i = 0; i < N; i++) {
		fds[i] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
	}
	usleep(100000); /* some wait now, unless the machine pauses */
	for (int i = 0; i < N; i++)
		close(fds[i]);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void processes_hand_their_page_to_the_next_daemon(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct join_arguments silent = {.wish = wish, .memory = 500};
	int status;
	wish.slo_ns = 5000000;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	pid_t worker = child_start(join_and_allocate, &silent, &status);
	struct hb_page *page = member.page;
	page->processes[member.slot].counters[HB_COUNT_graphs] = 42;
	uint32_t slot = member.slot;
	int64_t since_ns = page->daemon_since_ns;
	assert_true(since_ns && since_ns == member.gpus[0]->daemon_since_ns);

	daemon_end(&daemon_, SIGKILL);
	assert_int_equal(join(&daemon_, &wish, &member), -ECONNREFUSED);
	assert_ptr_equal(member.page, page);
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(join(&daemon_, &wish, &member), 0);

	assert_ptr_equal(member.page, page);
	assert_int_equal(member.slot, slot);
	assert_int_equal(page->processes[slot].counters[HB_COUNT_graphs], 42);
	assert_int_equal(page->daemon_pid, daemon_.pid);
	assert_true(page->daemon_since_ns > since_ns);
	assert_true(page->daemon_since_ns == member.gpus[0]->daemon_since_ns);
	/* The worker has not registered again; the daemon knows it nevertheless and notices its death. */
	json_t *root = daemon_status(&daemon_);
	assert_int_equal(json_array_size(json_object_get(tenant_at(root, 0), "processes")), 2);
	json_decref(root);
	assert_int_equal(page->gpus[0].used_bytes, 500);
	child_kill(worker);
	daemon_tenants(&daemon_);
	assert_int_equal(page->gpus[0].used_bytes, 0);
	hb_membership_fini(&member);
}

static void a_process_that_died_meanwhile_is_not_adopted(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct join_arguments silent = {.wish = wish, .memory = 500};
	int status;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	pid_t worker = child_start(join_and_allocate, &silent, &status);
	daemon_end(&daemon_, SIGKILL);
	child_kill(worker);
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	daemon_tenants(&daemon_);
	assert_int_equal(member.page->gpus[0].used_bytes, 0);
	assert_int_equal(member.gpus[0]->low_used_bytes, 0);
	hb_membership_fini(&member);
}

static void a_descriptor_that_the_application_reused_is_not_sent(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	daemon_end(&daemon_, SIGKILL);
	int null = open("/dev/null", O_RDONLY);
	assert_int_equal(dup2(null, member.page_fd), member.page_fd);
	close(null);
	daemon_start_again(&daemon_, HBD);
	/* Without its page the process is unknown; it continues unscheduled. */
	assert_int_equal(join(&daemon_, &wish, &member), -EAGAIN);
	assert_non_null(member.page);
	hb_membership_fini(&member);
}

static void another_page_for_the_same_token_is_refused(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	daemon_end(&daemon_, SIGKILL);
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), -EEXIST);
	hb_membership_fini(&member);
}

static void a_second_daemon_does_not_take_the_socket(void **state)
{
	int status;
	pid_t second = fork();
	if (second == 0) {
		close(STDERR_FILENO);
		execl(HBD, "hbd", "--foreground", "--socket", daemon_.socket, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_int_equal(daemon_tenants(&daemon_), 0);
}

static void the_daemon_ends_cleanly_and_removes_its_socket(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(daemon_end(&daemon_, SIGTERM), 0);
	assert_int_equal(access(daemon_.socket, F_OK), -1);
}

/* With too few descriptors at the start, the daemon either ends with a message or serves. It never crashes. */
/* Returns whether the daemon served a client. If it could not, it must have ended by itself and with an error. */
static bool start_with_descriptors(rlim_t n)
{
	const struct rlimit few = {n, n};
	struct hb_error error;
	int status = 0, fd = -ENOENT;
	bool asked_to_end = false;
	pid_t starting = fork();
	assert_true(starting >= 0);
	if (starting == 0) {
		close(STDERR_FILENO);
		close_range(STDERR_FILENO + 1, ~0u, 0);
		setrlimit(RLIMIT_NOFILE, &few);
		execl(HBD, "hbd", "--foreground", "--socket", daemon_.socket, (char *)NULL);
		_exit(127);
	}
	while (waitpid(starting, &status, WNOHANG) == 0) {
		if (fd < 0)
			fd = hb_client_open(daemon_.socket, 1000, &error);
		if (fd >= 0 || fd == -ETIMEDOUT) { /* it listens, but may have no descriptor left for a connection */
			kill(starting, SIGTERM);
			asked_to_end = true;
		}
		usleep(1000);
	}
	if (fd >= 0)
		close(fd);
	/* A second SIGTERM may arrive after the daemon has restored the default action. */
	if (asked_to_end)
		assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGTERM);
	else
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 127);
	return fd >= 0;
}

static void without_descriptors_the_daemon_does_not_start(void **state)
{
	daemon_end(&daemon_, SIGTERM);
	/* With fewer descriptors libuv itself aborts. */
	assert_false(start_with_descriptors(7));
	for (rlim_t n = 8; n < 18; n++)
		start_with_descriptors(n);
	assert_true(start_with_descriptors(64));
}

/* --- gates ------------------------------------------------------------------------------------ */

static void the_turn_of_a_dead_process_passes_on(void **state)
{
	struct hb_tenant_options other = wish_of(2, HB_PAGE_LOW);
	struct join_arguments holder = {.wish = wish_of(1, HB_PAGE_LOW)};
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int status;
	pid_t leader = child_start(create_only, &holder, &status);
	pid_t child = child_start(join_and_allocate, &holder, &status);
	assert_int_equal(create(&daemon_, other), 0);
	assert_int_equal(join(&daemon_, &other, &member), 0);
	hb_gate_wait_begin(gate_of(&member, 0));
	child_kill(child);
	child_kill(leader);
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (hb_gate_state(gate_of(&member, 0)) != HB_GATE_OPEN && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(gate_of(&member, 0)), HB_GATE_OPEN);
	hb_membership_fini(&member);
}

/* --- changing a tenant ---------------------------------------------------------------------------------- */

static void priority_and_slo_can_be_changed(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_error error = {""};
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	int fd = daemon_connect(&daemon_);
	struct hb_msg_set change = {.tenant = member.tenant,
				    .fields = HB_SET_ALL_FIELDS,
				    .priority = HB_PAGE_HIGH,
				    .slo_ns = 7000000,
				    .memory_bytes = 4096,
				    .pcie_weight = 3,
				    .weight = 2};
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	assert_int_equal(member.page->priority, HB_PAGE_HIGH);
	assert_int_equal(member.page->slo_ns, 7000000);
	assert_int_equal(member.page->gpus[0].limit_bytes, 4096);
	assert_int_equal(member.gpus[0]->tenants_high, 1);
	assert_int_equal(member.gpus[0]->tenants_low, 0);
	change.tenant = 999;
	assert_int_equal(hb_client_set(fd, &change, &error), -ESRCH);
	close(fd);
	hb_membership_fini(&member);
}

static void expect_low_used(const struct hb_gpu_page *page, uint64_t bytes)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (page->low_used_bytes != bytes && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(page->low_used_bytes, bytes);
}

static void memory_counts_with_the_present_priority_of_its_tenant(void **state)
{
	struct join_arguments arguments = {.wish = wish_of(1, HB_PAGE_LOW), .memory = 1000};
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_error error = {""};
	int status;
	assert_int_equal(create(&daemon_, arguments.wish), 0);
	assert_int_equal(join(&daemon_, &arguments.wish, &member), 0);
	pid_t child = child_start(join_and_allocate, &arguments, &status);
	assert_int_equal(status, 0);
	expect_low_used(member.gpus[0], 1000);
	int fd = daemon_connect(&daemon_);
	struct hb_msg_set change = {.tenant = member.tenant, .fields = HB_SET_PRIORITY, .priority = HB_PAGE_HIGH};
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	expect_low_used(member.gpus[0], 0);
	change.priority = HB_PAGE_LOW;
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	expect_low_used(member.gpus[0], 1000);
	close(fd);
	child_kill(child);
	hb_membership_fini(&member);
}

static void rules_apply_to_new_tenants(void **state)
{
	daemon_clean(&daemon_);
	daemon_start(&daemon_, HBD, "mps: false\nrules:\n  - {name: all, priority: low, memory: 1MiB}\n");
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(member.page->priority, HB_PAGE_LOW);
	assert_int_equal(member.page->gpus[0].limit_bytes, 1 << 20);
	json_t *root = daemon_status(&daemon_);
	const char *reduced = json_string_value(json_object_get(tenant_at(root, 0), "reduced"));
	assert_non_null(strstr(reduced, "rule 'all'"));
	json_decref(root);
	hb_membership_fini(&member);
}

/* --- bad clients --------------------------------------------------------------------------------- */

static void only_the_connection_that_breaks_the_protocol_is_closed(void **state)
{
	static union hb_msg message;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int other = daemon_connect(&daemon_), fd = daemon_connect(&daemon_);
	char byte, *text;
	struct hb_error error;
	memset(&message, 0xff, sizeof message);
	assert_true(send(fd, &message, 4096, 0) > 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	/* A request before the greeting. */
	strcpy(address.sun_path, daemon_.socket);
	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	hb_msg_init(&message, HB_MSG_STATUS);
	assert_true(send(fd, &message, message.header.size, 0) > 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	assert_int_equal(hb_client_status(other, &text, &error), 0);
	free(text);
	close(other);
}

static void a_full_table_closes_the_longest_silent_connection(void **state)
{
	enum { N = 300 };
	static int fds[N];
	struct hb_error error;
	char *text = NULL;
	for (int i = 0; i < N; i++)
		assert_true((fds[i] = daemon_connect(&daemon_)) >= 0);
	assert_int_equal(hb_client_status(fds[N - 1], &text, &error), 0);
	free(text);
	assert_true(hb_client_status(fds[0], &text, &error) < 0);
	for (int i = 0; i < N; i++)
		close(fds[i]);
}

static void only_its_user_can_use_the_socket(void **state)
{
	struct stat found;
	assert_int_equal(stat(daemon_.socket, &found), 0);
	assert_int_equal(found.st_mode & 0777, 0600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_joins_the_tenant_of_its_token),
		TEST(an_unknown_token_waits_until_older_processes_registered),
		TEST(wrong_kinds_of_gpu_and_engine_are_refused),
		TEST(a_tenant_can_add_gpus_later),
		TEST(the_memory_of_a_killed_process_is_given_back),
		TEST(a_tenant_ends_with_its_last_process),
		TEST(a_process_can_leave_with_bye),
		TEST(two_hundred_tenants_register_and_end_without_leaks),
		TEST(tenants_beyond_the_table_are_refused),
		TEST(many_tenants_fit_into_the_default_descriptor_limit),
		TEST(without_descriptors_the_daemon_waits_for_some),
		TEST(processes_hand_their_page_to_the_next_daemon),
		TEST(a_process_that_died_meanwhile_is_not_adopted),
		TEST(a_descriptor_that_the_application_reused_is_not_sent),
		TEST(another_page_for_the_same_token_is_refused),
		TEST(a_second_daemon_does_not_take_the_socket),
		TEST(the_daemon_ends_cleanly_and_removes_its_socket),
		TEST(without_descriptors_the_daemon_does_not_start),
		TEST(the_turn_of_a_dead_process_passes_on),
		TEST(priority_and_slo_can_be_changed),
		TEST(memory_counts_with_the_present_priority_of_its_tenant),
		TEST(rules_apply_to_new_tenants),
		TEST(only_the_connection_that_breaks_the_protocol_is_closed),
		TEST(a_full_table_closes_the_longest_silent_connection),
		TEST(only_its_user_can_use_the_socket),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
