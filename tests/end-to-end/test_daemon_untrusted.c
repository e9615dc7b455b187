/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon whose tenants write what they like to the pages that they share with
 * it: it goes on, and serves the others.
 */
#include "base/clock.h"
#include "daemon/process.h"
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

static void scribbled_pages_do_not_hurt_the_daemon(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW), other = wish_of(2, HB_PAGE_HIGH);
	struct hb_membership member = HB_MEMBERSHIP_NONE, bystander = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(create(&daemon_, other), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(join(&daemon_, &other, &bystander), 0);
	for (int pattern = 0; pattern < 3; pattern++) {
		memset(member.page, pattern == 0 ? 0xff : pattern == 1 ? 0x80 : 0x01, sizeof *member.page);
		assert_int_equal(daemon_tenants(&daemon_), 2);
		assert_int_equal(join(&daemon_, &wish, &member), 0);
	}
	assert_int_equal(bystander.page->priority, HB_PAGE_HIGH);
	assert_int_equal(bystander.page->state, HB_PAGE_ACTIVE);
	hb_membership_fini(&member);
	hb_membership_fini(&bystander);
}

static int join_only(void *argument)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	return join(&daemon_, argument, &member);
}

/* Once as its process, once as its leader. */
static void leave(const struct hb_tenant_options *wish)
{
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish->token, &error), 0);
	assert_int_equal(hb_client_bye(fd, wish->token, &error), 0);
	close(fd);
}

/* Which slots are free the daemon knows by itself. */
static void a_scribbled_slot_is_not_given_away_again(void **state)
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

static void a_page_with_a_gpu_twice_is_refused_and_hurts_nobody(void **state)
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
	for (unsigned i = 0; i < HB_PAGE_GPUS; i++)
		memset(wish->uuids[i], (int)(1 + seed * HB_PAGE_GPUS + i), HB_UUID_BYTES);
}

/* Which GPUs there are is what programs say: those that nobody uses any more make room for others. */
static void made_up_gpus_take_nobodys_place_for_good(void **state)
{
	struct hb_tenant_options liars[4], honest = wish_of(9, HB_PAGE_HIGH);
	for (unsigned i = 0; i < 4; i++) {
		struct hb_membership member = HB_MEMBERSHIP_NONE;
		liars[i] = wish_of(100 + i, HB_PAGE_LOW);
		fill_uuids(&liars[i], i);
		assert_int_equal(create(&daemon_, liars[i]), 0);
		/* Two tables full of them: the second one only when the first one has gone. */
		assert_int_equal(join(&daemon_, &liars[i], &member), 0);
		hb_membership_fini(&member);
		if (i >= 1)
			leave(&liars[i - 1]);
	}
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	memset(honest.uuids[0], 0xee, HB_UUID_BYTES);
	assert_int_equal(create(&daemon_, honest), 0);
	assert_int_equal(join(&daemon_, &honest, &member), 0);
	assert_int_equal(member.gpus[0]->uuid[0], 0xee);
	assert_int_equal(member.gpus[0]->tenants_high, 1);
	/* Of those in use none goes. */
	struct hb_membership other = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, liars[0]), 0);
	assert_int_equal(join(&daemon_, &liars[0], &other), -ENOSPC);
	assert_int_equal(member.gpus[0]->tenants_high, 1);
	assert_int_equal(member.page->state, HB_PAGE_ACTIVE);
	hb_membership_fini(&other);
	hb_membership_fini(&member);
}

static int become_nobody(void *unused)
{
	(void)unused;
	int result = setresuid(65534, 65534, 65534);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* forgotten with the user */
	return result;
}

/* A process of another user; 0 = there is none. */
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

static void a_page_that_names_somebody_elses_process_does_not_keep_it(void **state)
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
	/* The last of its own ends it. */
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

/* A page is the tenant's to write while the daemon reads it: whether the race is met or not, nothing happens. */
static void a_page_that_changes_while_it_is_read_does_no_harm(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	pthread_t thread;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	atomic_store(&flapping, true);
	assert_int_equal(pthread_create(&thread, NULL, flap, member.page), 0);
	for (unsigned i = 0; i < 200; i++) {
		struct hb_tenant_options stranger = wish_of(100 + i, HB_PAGE_LOW);
		struct hb_error error;
		int fd = daemon_connect(&daemon_);
		assert_true(fd >= 0);
		hb_client_register(fd, &stranger, &member, NULL, 0, &error);
		hb_client_bye(fd, stranger.token, &error);
		close(fd);
	}
	atomic_store(&flapping, false);
	pthread_join(thread, NULL);
	assert_int_equal(daemon_tenants(&daemon_), 1);
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

/* One line a second, however many are sent; in the background, where the log is a file. */
static void bad_messages_do_not_fill_the_log(void **state)
{
	enum { N = 200 };
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
	assert_in_range(told, 1, seconds + 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(scribbled_pages_do_not_hurt_the_daemon),
		TEST(a_scribbled_slot_is_not_given_away_again),
		TEST(a_page_with_a_gpu_twice_is_refused_and_hurts_nobody),
		TEST(made_up_gpus_take_nobodys_place_for_good),
		TEST(bad_messages_do_not_fill_the_log),
		TEST(a_page_that_names_somebody_elses_process_does_not_keep_it),
		TEST(a_page_that_changes_while_it_is_read_does_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
