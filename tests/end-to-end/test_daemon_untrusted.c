/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants write arbitrary bytes to the pages that they share with the daemon: the
 * daemon continues and serves the other tenants.
 */
#include "base/clock.h"
#include "daemon/gpu_record.h"
#include "daemon/process.h"
#include "daemon/user_budget.h"
#include "gate/gate.h"
#include "one_daemon.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define TOTAL (100 * MIB) /* of the GPU, as the bystander reports it */

static int ask_memory(const struct hb_tenant_options *wish, uint64_t bytes)
{
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	int result = hb_client_ask_memory(fd, wish->token, wish->uuids[0], bytes, &error);
	close(fd);
	return result;
}

/* An LP tenant beside a hostile one can still allocate its part, passes its gate, and hears from the daemon. */
static void expect_served(const struct hb_tenant_options *wish, struct hb_membership *bystander)
{
	int64_t limit_ns = hb_clock_now_ns() + 60 * HB_NS_PER_S;
	struct hb_gate *gate = gate_of(bystander, 0);
	assert_int_equal(ask_memory(wish, TOTAL / 2), 0);
	assert_true(bystander->page->gpus[0].low_lease_bytes >= TOTAL / 2);
	assert_int_equal(bystander->page->gpus[0].total_bytes, TOTAL);
	hb_gate_wait_begin(gate);
	while (hb_gate_try(gate) != HB_GATE_GO && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(hb_gate_state(gate), HB_GATE_OPEN);
	hb_gate_wait_end(gate);
	hb_gate_completed(gate, 1);
	assert_true(hb_clock_now_ns() - bystander->page->heartbeat_ns < HB_PAGE_SILENT_NS);
	assert_int_equal(bystander->page->state, HB_PAGE_ACTIVE);
}

static void overwritten_pages_do_not_harm_others(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW), other = wish_of(2, HB_PAGE_HIGH),
				 low = wish_of(3, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE, bystander = HB_MEMBERSHIP_NONE, third = HB_MEMBERSHIP_NONE;
	low.totals[0] = TOTAL;
	wish.totals[0] = 1;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(create(&daemon_, other), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(join(&daemon_, &other, &bystander), 0);
	assert_int_equal(create(&daemon_, low), 0);
	assert_int_equal(join(&daemon_, &low, &third), 0);
	for (int pattern = 0; pattern < 3; pattern++) {
		memset(member.page, pattern == 0 ? 0xff : pattern == 1 ? 0x80 : 0x01, sizeof *member.page);
		assert_int_equal(daemon_tenants(&daemon_), 3);
		assert_int_equal(join(&daemon_, &wish, &member), 0);
		member.page->gpus[0].used_bytes = UINT64_MAX / 2;
		ask_memory(&low, 1);
		/* No report is larger than 2^50, so sums of them cannot overflow. */
		assert_true(third.gpus[0]->low_used_bytes <= UINT64_C(2) << 50);
		expect_served(&low, &third);
	}
	assert_int_equal(bystander.gpus[0]->tenants_high, 1);
	assert_int_equal(bystander.gpus[0]->tenants_low, 2);
	assert_int_equal(bystander.page->priority, HB_PAGE_HIGH);
	assert_int_equal(bystander.page->state, HB_PAGE_ACTIVE);
	hb_membership_fini(&member);
	hb_membership_fini(&bystander);
	hb_membership_fini(&third);
}

static int join_only(void *argument)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	return join(&daemon_, argument, &member);
}

/* Leaves once as a process and once as the leader. */
static void leave(const struct hb_tenant_options *wish)
{
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish->token, &error), 0);
	assert_int_equal(hb_client_bye(fd, wish->token, &error), 0);
	close(fd);
}

/* The daemon does not read from the page which slots are free. */
static void an_overwritten_slot_is_not_given_to_another_process(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	int status;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	for (int i = 0; i < 3; i++) {
		member.page->processes[member.slot].state = HB_PAGE_FREE;
		pid_t child = child_start(join_only, &wish, &status);
		assert_int_equal(status, 0);
		child_kill(child);
	}
	assert_int_equal(member.page->processes[member.slot].pid, (uint32_t)getpid());
	leave(&wish);
	assert_int_equal(daemon_tenants(&daemon_), 0);
	hb_membership_fini(&member);
}

static void a_page_with_the_same_gpu_twice_is_refused(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW), stranger = wish_of(2, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	memcpy(member.page->gpus[1].uuid, member.page->gpus[0].uuid, HB_UUID_BYTES);
	member.page->n_gpus = 2;
	assert_int_equal(join(&daemon_, &stranger, &member), -EPROTO);
	member.page->n_gpus = 1;
	assert_int_equal(create(&daemon_, wish_of(3, HB_PAGE_LOW)), 0);
	assert_int_equal(daemon_tenants(&daemon_), 2);
	hb_membership_fini(&member);
}

static void fill_uuids(struct hb_tenant_options *wish, unsigned seed)
{
	wish->n_gpus = HB_PAGE_GPUS;
	for (unsigned i = 0; i < HB_PAGE_GPUS; i++) {
		memset(wish->uuids[i], (int)(1 + seed * HB_PAGE_GPUS + i), HB_UUID_BYTES);
		wish->totals[i] = 1;
	}
}

/* Programs report the UUIDs of GPUs, so they may be invented: GPUs without tenants are replaced by new ones. */
static void invented_gpus_do_not_fill_the_table_for_ever(void **state)
{
	const unsigned full = HB_GPUS_MAX / HB_PAGE_GPUS; /* tenants that fill the table */
	struct hb_tenant_options liars[2 * HB_GPUS_MAX / HB_PAGE_GPUS], honest = wish_of(9, HB_PAGE_HIGH);
	for (unsigned i = 0; i < 2 * full; i++) {
		struct hb_membership member = HB_MEMBERSHIP_NONE;
		liars[i] = wish_of(100 + i, HB_PAGE_LOW);
		fill_uuids(&liars[i], i);
		assert_int_equal(create(&daemon_, liars[i]), 0);
		/* Twice as many as the table holds; tenants end before the table is full. */
		assert_int_equal(join(&daemon_, &liars[i], &member), 0);
		hb_membership_fini(&member);
		if (i >= full - 1)
			leave(&liars[i - (full - 1)]);
	}
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	memset(honest.uuids[0], 0xee, HB_UUID_BYTES);
	honest.totals[0] = TOTAL;
	assert_int_equal(create(&daemon_, honest), 0);
	assert_int_equal(join(&daemon_, &honest, &member), 0);
	assert_int_equal(member.gpus[0]->uuid[0], 0xee);
	assert_int_equal(member.page->gpus[0].total_bytes, TOTAL);
	assert_int_equal(member.gpus[0]->total_bytes, 0); /* a tenant's report does not count for others */
	assert_int_equal(member.gpus[0]->tenants_high, 1);
	/* GPUs in use are not replaced. */
	struct hb_membership other = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, liars[0]), 0);
	assert_int_equal(join(&daemon_, &liars[0], &other), -EDQUOT);
	assert_int_equal(member.gpus[0]->tenants_high, 1);
	assert_int_equal(member.page->state, HB_PAGE_ACTIVE);
	hb_membership_fini(&other);
	hb_membership_fini(&member);
}

static int become_nobody(void *unused)
{
	(void)unused;
	int result = setresuid(65534, 65534, 65534);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with its parent */
	return result;
}

/* Starts a process of another user; 0 = not possible. */
static pid_t stranger_start(void)
{
	int status;
	uid_t uid;
	gid_t gid;
	if (geteuid() != 0)
		return hb_process_user(1, &uid, &gid) && uid != geteuid() ? 1 : 0;
	pid_t child = child_start(become_nobody, NULL, &status);
	assert_int_equal(status, 0);
	return child;
}

static size_t processes_of_first(void)
{
	json_t *root = daemon_status(&daemon_);
	json_t *tenant = json_array_get(json_object_get(root, "tenants"), 0);
	size_t n = json_array_size(json_object_get(tenant, "processes"));
	json_decref(root);
	return n;
}

static void a_page_cannot_adopt_another_users_process(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	pid_t stranger = stranger_start();
	if (!stranger)
		skip();
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	struct hb_page_process *made_up = &member.page->processes[member.slot + 1];
	made_up->pid = (uint32_t)stranger;
	made_up->start_ticks = hb_process_start_ticks(stranger);
	made_up->state = HB_PAGE_ACTIVE;
	daemon_end(&daemon_, SIGKILL);
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(processes_of_first(), 1);
	assert_int_equal(made_up->state, HB_PAGE_FREE);
	/* The tenant ends with the last of its own processes. */
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish.token, &error), 0);
	close(fd);
	assert_int_equal(daemon_tenants(&daemon_), 0);
	if (stranger > 1)
		child_kill(stranger);
	hb_membership_fini(&member);
}

static atomic_bool flapping;

static void *flap(void *argument)
{
	struct hb_page *page = argument;
	for (uint32_t i = 0; atomic_load(&flapping); i++)
		atomic_store_explicit(&page->n_gpus, i & 1 ? 2000 : 0, memory_order_relaxed);
	return NULL;
}

/* The tenant changes its page while the daemon reads it: the daemon survives any outcome of this race. */
static void a_page_that_changes_while_it_is_read_does_no_harm(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	pthread_t thread;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	unsigned taken = 0;
	struct hb_tenant_options low = wish_of(3, HB_PAGE_LOW);
	struct hb_membership bystander = HB_MEMBERSHIP_NONE;
	low.totals[0] = TOTAL;
	assert_int_equal(create(&daemon_, low), 0);
	assert_int_equal(join(&daemon_, &low, &bystander), 0);
	atomic_store(&flapping, true);
	assert_int_equal(pthread_create(&thread, NULL, flap, member.page), 0);
	for (unsigned i = 0; i < 200; i++) {
		struct hb_tenant_options stranger = wish_of(100 + i, HB_PAGE_LOW);
		struct hb_error error;
		int fd = daemon_connect(&daemon_);
		assert_true(fd >= 0);
		int result = hb_client_register(fd, &stranger, &member, NULL, 0, &error);
		assert_true(result == 0 || result == -EPROTO);
		assert_int_equal(hb_client_bye(fd, stranger.token, &error), result == 0 ? 0 : -ESRCH);
		taken += result == 0;
		close(fd);
	}
	atomic_store(&flapping, false);
	pthread_join(thread, NULL);
	assert_in_range(taken, 1, 200); /* half of the time the page was right */
	assert_int_equal(daemon_tenants(&daemon_), 2);
	expect_served(&low, &bystander);
	hb_membership_fini(&bystander);
	hb_membership_fini(&member);
}

/* --- the log --- */

static void send_nonsense(void)
{
	static const char nonsense[64] = {1};
	char byte;
	int fd = daemon_connect(&daemon_);
	assert_true(send(fd, nonsense, sizeof nonsense, 0) > 0);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

static long lines_with(const char *path, const char *text)
{
	char line[1024];
	long n = 0;
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		n += strstr(line, text) != NULL;
	fclose(file);
	return n;
}

/* A daemon in the background, whose log is a file, logs one line a second, however many bad messages arrive. */
static void bad_messages_do_not_fill_the_log(void **state)
{
	enum { N = 500 };
	char command[sizeof HBD + 256], log[128];
	daemon_end(&daemon_, SIGTERM);
	snprintf(command, sizeof command, "%s --socket %s --config %s/hummingbird.yaml", HBD, daemon_.socket,
		 daemon_.dir);
	assert_int_equal(system(command), 0);
	json_t *root = daemon_status(&daemon_);
	pid_t pid = (pid_t)json_integer_value(json_object_get(json_object_get(root, "daemon"), "pid"));
	json_decref(root);
	int pidfd = hb_process_open(pid);
	int64_t since_ns = hb_clock_now_ns();
	for (int i = 0; i < N; i++)
		send_nonsense();
	long seconds = (long)((hb_clock_now_ns() - since_ns) / HB_NS_PER_S);
	kill(pid, SIGTERM);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	assert_int_equal(poll(&end, 1, 20000), 1);
	close(pidfd);
	snprintf(log, sizeof log, "%s/hbd.log", daemon_.dir);
	long told = lines_with(log, "sent a bad message");
	assert_in_range(told, 1, HB_USER_LOG_LINES + seconds + 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(overwritten_pages_do_not_harm_others),
		TEST(an_overwritten_slot_is_not_given_to_another_process),
		TEST(a_page_with_the_same_gpu_twice_is_refused),
		TEST(invented_gpus_do_not_fill_the_table_for_ever),
		TEST(bad_messages_do_not_fill_the_log),
		TEST(a_page_cannot_adopt_another_users_process),
		TEST(a_page_that_changes_while_it_is_read_does_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
