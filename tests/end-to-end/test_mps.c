/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPS server for low priority, over the simulated one: started for the
 * first tenant, kept from high priority, started again after its death, found
 * again by the next daemon, taken along at the end; and life without it.
 */
#include "daemon_harness.h"
#include "simcuda/sim_rm_abi.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct daemon daemon_;
static char environment[4096];

static int set_up(void **state)
{
	daemon_ = (struct daemon){.simulated = true};
	daemon_start(&daemon_, HBD, "mps: true\n");
	/* Everything simulated belongs to this daemon's folder. */
	return daemon_.pid > 0 ? 0 : -1;
}

static struct hb_tenant_options simulated(unsigned seed, enum hb_page_priority priority)
{
	struct hb_tenant_options wish = wish_of(seed, priority);
	wish.flags = HB_REGISTER_SIMULATED;
	sim_gpu_uuid(0, wish.uuids[0]);
	return wish;
}

static const char *variable(const char *name)
{
	size_t length = strlen(name);
	for (const char *line = environment; *line; line += strlen(line) + 1)
		if (strncmp(line, name, length) == 0 && line[length] == '=')
			return line + length + 1;
	return "";
}

static void expect_inside(void)
{
	char pipe_dir[128];
	snprintf(pipe_dir, sizeof pipe_dir, "%s/sim-mps", daemon_.dir);
	assert_string_equal(variable("CUDA_MPS_PIPE_DIRECTORY"), pipe_dir);
	assert_string_equal(variable("HB_MPS"), "1");
}

static void expect_outside(void)
{
	assert_int_equal(access(variable("CUDA_MPS_PIPE_DIRECTORY"), F_OK), -1);
	assert_string_equal(variable("HB_MPS"), "");
}

static void expect_state(const char *expected)
{
	json_t *root = daemon_status(&daemon_);
	json_t *mps = json_object_get(json_object_get(root, "daemon"), "mps");
	assert_string_equal(json_string_value(json_object_get(mps, "state")), expected);
	json_decref(root);
}

/* The server as a member, 0 = it has not registered. */
static pid_t server_pid(void)
{
	pid_t pid = 0;
	json_t *root = daemon_status(&daemon_), *tenant;
	size_t i;
	json_array_foreach(json_object_get(root, "tenants"), i,
			   tenant) if (strcmp(json_string_value(json_object_get(tenant, "priority")), "mps server") ==
				       0) pid = (pid_t)json_integer_value(json_object_get(tenant, "pid"));
	json_decref(root);
	return pid;
}

static pid_t control_pid(void)
{
	char path[128];
	int pid = 0;
	snprintf(path, sizeof path, "%s/sim-mps/nvidia-cuda-mps-control.pid", daemon_.dir);
	FILE *file = fopen(path, "r");
	if (!file || fscanf(file, "%d", &pid) != 1)
		pid = 0;
	if (file)
		fclose(file);
	return pid;
}

/* By pidfd, as the daemon itself: what has ended for us has ended for it. */
static bool ends_within(pid_t pid, int limit_ms)
{
	struct pollfd ready = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	if (ready.fd < 0)
		return true;
	bool ended = poll(&ready, 1, limit_ms) == 1;
	close(ready.fd);
	return ended;
}

static bool alive(pid_t pid)
{
	return !ends_within(pid, 0);
}

static void expect_end(pid_t pid)
{
	assert_true(ends_within(pid, 20000));
}

/* The tenants of a test are this process, so the daemon leaves the server to them. */
static int tear_down(void **state)
{
	pid_t control = control_pid();
	daemon_end(&daemon_, SIGTERM);
	if (control > 0 && alive(control)) {
		kill(control, SIGTERM);
		expect_end(control);
	}
	daemon_clean(&daemon_);
	return 0;
}

static void low_tenants_live_in_the_server(void **state)
{
	assert_int_equal(create_with(&daemon_, simulated(1, HB_PAGE_LOW), environment, sizeof environment), 0);
	expect_inside();
	expect_state("ready");
	assert_int_equal(create_with(&daemon_, simulated(2, HB_PAGE_LOW), environment, sizeof environment), 0);
	expect_inside();
	assert_true(server_pid() > 0);
}

static void expect_smallest_slices(void)
{
	json_t *root = daemon_status(&daemon_), *tenant, *use, *entry;
	size_t i, j, k, seen = 0;
	json_array_foreach(json_object_get(root, "tenants"), i, tenant)
		json_array_foreach(json_object_get(tenant, "gpus"), j, use)
			json_array_foreach(json_object_get(use, "mechanisms"), k, entry)
	{
		assert_true(json_is_true(json_object_get(entry, "enforced")));
		assert_non_null(strstr(json_string_value(json_object_get(entry, "why")), "1 us on"));
		seen++;
	}
	assert_int_equal(seen, 2);
	json_decref(root);
}

static void the_servers_group_has_the_smallest_slice(void **state)
{
	assert_int_equal(create(&daemon_, simulated(1, HB_PAGE_LOW)), 0);
	expect_smallest_slices();
}

static void high_tenants_stay_outside(void **state)
{
	assert_int_equal(create_with(&daemon_, simulated(1, HB_PAGE_HIGH), environment, sizeof environment), 0);
	expect_outside();
	expect_state("not started");
	assert_int_equal(create(&daemon_, simulated(2, HB_PAGE_LOW)), 0);
	assert_int_equal(create_with(&daemon_, simulated(3, HB_PAGE_HIGH), environment, sizeof environment), 0);
	expect_outside();
}

static void turns_can_be_asked_for(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	wish.engine = HB_ENGINE_TURNS;
	assert_int_equal(create_with(&daemon_, wish, environment, sizeof environment), 0);
	expect_outside();
	expect_state("not started");
}

static void a_tenant_in_the_server_cannot_become_high(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_error error = {""};
	assert_int_equal(create(&daemon_, wish), 0);
	wish.flags |= HB_REGISTER_MPS;
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	struct hb_msg_set change = {.tenant = member.tenant, .fields = HB_SET_PRIORITY, .priority = HB_PAGE_HIGH};
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_set(fd, &change, &error), -EBUSY);
	assert_non_null(strstr(error.text, "MPS server"));
	close(fd);
	/* The server's group carries the slice; its own would only be in the way. */
	assert_int_equal(member.page->gpus[0].slice_us[HB_GROUP_COMPUTE], 0);
	hb_membership_fini(&member);
}

static void a_dead_server_is_replaced_for_the_next_tenant(void **state)
{
	assert_int_equal(create(&daemon_, simulated(1, HB_PAGE_LOW)), 0);
	pid_t first = server_pid();
	assert_true(first > 0);
	kill(first, SIGKILL);
	expect_end(first);
	expect_state("failed");
	assert_int_equal(create_with(&daemon_, simulated(2, HB_PAGE_LOW), environment, sizeof environment), 0);
	expect_inside();
	expect_state("ready");
	assert_int_not_equal(server_pid(), first);
}

static void the_server_outlives_the_daemon_and_is_found_again(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	wish.flags |= HB_REGISTER_MPS;
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	pid_t control = control_pid();
	daemon_end(&daemon_, SIGKILL);
	assert_true(alive(control));
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	/* A clean end under a living tenant leaves it, too. */
	assert_int_equal(daemon_end(&daemon_, SIGTERM), 0);
	assert_true(alive(control));
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(create_with(&daemon_, simulated(2, HB_PAGE_LOW), environment, sizeof environment), 0);
	expect_inside();
	assert_int_equal(control_pid(), control);
	hb_membership_fini(&member);
}

static void its_folder_is_ours_alone_whoever_made_it_before(void **state)
{
	struct stat found;
	char path[128];
	snprintf(path, sizeof path, "%s/sim-mps", daemon_.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(create(&daemon_, simulated(1, HB_PAGE_LOW)), 0);
	expect_state("ready");
	assert_int_equal(stat(path, &found), 0);
	assert_int_equal(found.st_mode & 07777, 0700);
}

/* Until the daemon has asked the control program: it is registered, or the daemon says why not. */
static void wait_for_look(void)
{
	bool over = false;
	for (int i = 0; !over && i < 20000; i++) {
		json_t *root = daemon_status(&daemon_);
		json_t *mps = json_object_get(json_object_get(root, "daemon"), "mps");
		over = json_array_size(json_object_get(root, "tenants")) ||
		       *json_string_value(json_object_get(mps, "why"));
		json_decref(root);
		poll(NULL, 0, 1);
	}
	assert_true(over);
}

/* No program makes it come back by itself. */
static void the_next_daemon_takes_the_server_over_at_once(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	assert_int_equal(create(&daemon_, wish), 0);
	pid_t server = server_pid();
	assert_true(server > 0);
	daemon_end(&daemon_, SIGKILL);
	daemon_start_again(&daemon_, HBD);
	wait_for_look();
	assert_int_equal(server_pid(), server);
	expect_state("ready");
	expect_smallest_slices();
	/* It is watched like any other process. */
	kill(server, SIGKILL);
	expect_end(server);
	assert_int_equal(server_pid(), 0);
	expect_state("failed");
}

static void a_server_of_somebody_else_is_not_taken_over(void **state)
{
	char token[128];
	assert_int_equal(create(&daemon_, simulated(1, HB_PAGE_LOW)), 0);
	daemon_end(&daemon_, SIGKILL);
	snprintf(token, sizeof token, "%s/sim-mps.token", daemon_.dir);
	assert_int_equal(unlink(token), 0);
	daemon_start_again(&daemon_, HBD);
	wait_for_look();
	assert_int_equal(server_pid(), 0);
	expect_state("not started");
}

static int low_child(void *argument)
{
	return create(&daemon_, *(const struct hb_tenant_options *)argument);
}

static void what_was_started_is_stopped(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	int status;
	pid_t child = child_start(low_child, &wish, &status);
	assert_int_equal(status, 0);
	pid_t control = control_pid(), server = server_pid();
	assert_true(control > 0 && server > 0);
	child_kill(child);
	daemon_tenants(&daemon_);
	assert_int_equal(daemon_end(&daemon_, SIGTERM), 0);
	expect_end(server);
	expect_end(control);
}

static void one_that_a_dead_daemon_left_behind_is_stopped_too(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	int status;
	pid_t child = child_start(low_child, &wish, &status);
	pid_t control = control_pid();
	daemon_end(&daemon_, SIGKILL);
	child_kill(child);
	assert_true(alive(control));
	daemon_start_again(&daemon_, HBD);
	assert_int_equal(daemon_end(&daemon_, SIGTERM), 0);
	expect_end(control);
}

static void gpus_that_the_driver_does_not_list_are_refused(void **state)
{
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	memset(wish.uuids[0], 0xaa, HB_UUID_BYTES);
	assert_int_equal(join(&daemon_, &wish, &member), -ENODEV);
	sim_gpu_uuid(1, wish.uuids[0]);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(member.n_gpus, 1);
	hb_membership_fini(&member);
}

static void without_it_low_tenants_take_turns(void **state)
{
	daemon_clean(&daemon_);
	setenv("HB_SIM_NO_MPS", "1", 1);
	daemon_ = (struct daemon){.simulated = true};
	daemon_start(&daemon_, HBD, "mps: true\n");
	unsetenv("HB_SIM_NO_MPS");
	struct hb_tenant_options wish = simulated(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(create_with(&daemon_, wish, environment, sizeof environment), 0);
	expect_outside();
	expect_state("failed");
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	assert_int_equal(member.page->gpus[0].engine, HB_ENGINE_TURNS);
	assert_int_equal(member.page->gpus[0].slice_us[HB_GROUP_COMPUTE], 1);
	hb_membership_fini(&member);
}

/* As many more descriptors as given, while somebody asks for the server. */
static void ask_with_descriptors(unsigned seed, size_t more)
{
	struct rlimit before, few;
	size_t n_open = daemon_fds(&daemon_);
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_NOFILE, NULL, &before), 0);
	few = before;
	few.rlim_cur = n_open + more;
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_NOFILE, &few, NULL), 0);
	struct hb_tenant_options wish = simulated(seed, HB_PAGE_LOW);
	bool made = create(&daemon_, wish) == 0;
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_NOFILE, &before, NULL), 0);
	struct hb_error error;
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_bye(fd, wish.token, &error), made ? 0 : -ESRCH);
	close(fd);
}

/* Whichever descriptor is the one that cannot be had: a pipe to the control program, its end, a folder. */
static void without_descriptors_the_daemon_does_not_fall(void **state)
{
	for (size_t more = 0; more < 12 && server_pid() == 0; more++)
		ask_with_descriptors(100 + (unsigned)more, more);
	assert_int_equal(waitpid(daemon_.pid, NULL, WNOHANG), 0);
	assert_int_equal(create_with(&daemon_, simulated(1, HB_PAGE_LOW), environment, sizeof environment), 0);
	expect_inside();
}

static int prepare(void **state)
{
	static char gpu[64] = "/tmp/hb-test-gpu-XXXXXX";
	assert_non_null(mkdtemp(gpu));
	*state = gpu;
	return setenv("HB_SIM_GPU", gpu, 1);
}

static int clean(void **state)
{
	char command[96];
	snprintf(command, sizeof command, "rm -rf %s", (char *)*state);
	return system(command);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(low_tenants_live_in_the_server),
		TEST(the_servers_group_has_the_smallest_slice),
		TEST(high_tenants_stay_outside),
		TEST(turns_can_be_asked_for),
		TEST(a_tenant_in_the_server_cannot_become_high),
		TEST(a_dead_server_is_replaced_for_the_next_tenant),
		TEST(the_server_outlives_the_daemon_and_is_found_again),
		TEST(the_next_daemon_takes_the_server_over_at_once),
		TEST(a_server_of_somebody_else_is_not_taken_over),
		TEST(its_folder_is_ours_alone_whoever_made_it_before),
		TEST(what_was_started_is_stopped),
		TEST(one_that_a_dead_daemon_left_behind_is_stopped_too),
		TEST(gpus_that_the_driver_does_not_list_are_refused),
		TEST(without_it_low_tenants_take_turns),
		TEST(without_descriptors_the_daemon_does_not_fall),
	};
	return cmocka_run_group_tests(tests, prepare, clean);
}
