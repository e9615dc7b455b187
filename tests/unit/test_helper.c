/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's helper process: the daemon gets facts and lets programs run through it, a daemon that was taken over can
 * do nothing else with it, and a helper that hangs or dies stops nothing.
 */
#include "daemon/end_processes.h"
#include "daemon/helper.h"
#include "daemon/page_memory.h"
#include "daemon/privileged.h"
#include "daemon/process.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDS_MS 60000 /* only ends a test that hangs */

static const unsigned char token[HB_TOKEN_BYTES] = {1, 2, 3}, other_token[HB_TOKEN_BYTES] = {4, 5, 6};

struct scene {
	char dir[32];
	struct hb_daemon_options options;
	struct hb_helper helper;
	uv_loop_t loop;
	struct hb_privileged *privileged;
	int status; /* of the last program; -1 = none has ended */
	char output[HB_COMMAND_OUTPUT_MAX];
};

static void begin_scene(struct scene *scene)
{
	*scene = (struct scene){.dir = "/tmp/hb-helper-XXXXXX", .status = -1};
	assert_non_null(mkdtemp(scene->dir));
	scene->options = (struct hb_daemon_options){.simulated = true, .ready_fd = -1};
	strcpy(scene->options.dir, scene->dir);
	snprintf(scene->options.socket, sizeof scene->options.socket, "%s/hbd.sock", scene->dir);
	assert_int_equal(hb_helper_start(&scene->options, &scene->helper), 0);
	scene->options.helper = &scene->helper;
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	assert_int_equal(hb_privileged_new(&scene->loop, &scene->options, &scene->privileged), 0);
}

static void end_scene(struct scene *scene)
{
	char path[64];
	hb_privileged_free(scene->privileged);
	uv_run(&scene->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
	waitpid(scene->helper.pid, NULL, 0);
	snprintf(path, sizeof path, "%s/sim-mps.token", scene->dir);
	unlink(path);
	assert_int_equal(rmdir(scene->dir), 0);
}

static void keep_result(void *argument, const struct hb_command_result *result)
{
	struct scene *scene = argument;
	scene->status = result->status;
	strcpy(scene->output, result->output);
}

static void run_until_result(struct scene *scene)
{
	while (scene->status < 0)
		uv_run(&scene->loop, UV_RUN_ONCE);
}

/* --- other processes --------------------------------------------------------------------------- */

/* Starts a process that waits, with one variable in its environment, and with a page if page_fd >= 0. */
static pid_t start_process(const char *variable, int page_fd)
{
	char text[80];
	char *arguments[] = {(char *)(uintptr_t) "sleep", (char *)(uintptr_t) "1000", NULL};
	char *environment[] = {text, NULL};
	int started[2];
	char byte;
	snprintf(text, sizeof text, "%s", variable);
	assert_int_equal(pipe2(started, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (page_fd >= 0)
			fcntl(page_fd, F_SETFD, 0);
		execve("/usr/bin/sleep", arguments, environment);
		_exit(1);
	}
	close(started[1]);
	assert_int_equal(read(started[0], &byte, 1), 0); /* it executes the program */
	close(started[0]);
	return pid;
}

static void name_token(char variable[64], const unsigned char bytes[HB_TOKEN_BYTES])
{
	strcpy(variable, "HB_TENANT=");
	hb_token_format(bytes, variable + strlen(variable));
}

/* Starts a process with a slot on a page. The number of the tenant is the same for all, as with several daemons. */
static pid_t start_with_page(uint64_t *inode)
{
	int fd;
	struct stat found;
	struct hb_page *page;
	assert_int_equal(hb_page_new(1, &page, &fd), 0);
	assert_int_equal(fstat(fd, &found), 0);
	*inode = found.st_ino;
	pid_t pid = start_process("A=", fd);
	hb_page_slot_take(page, 3, (uint32_t)pid, hb_process_start_ticks(pid));
	page->processes[3].state = HB_PAGE_ACTIVE;
	hb_page_free(page, fd);
	return pid;
}

static bool still_runs(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == 0;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- what a daemon asks -------------------------------------------------------------------------- */

static void facts_are_those_of_the_process(void **state)
{
	struct scene scene;
	char variable[64];
	name_token(variable, token);
	pid_t pid = start_process(variable, -1);
	begin_scene(&scene);
	assert_true(hb_process_image(pid) != 0);
	assert_true(hb_privileged_image(scene.privileged, pid) == hb_process_image(pid));
	assert_true(hb_privileged_began_with(scene.privileged, pid, token));
	assert_false(hb_privileged_began_with(scene.privileged, pid, other_token));
	assert_true(hb_privileged_signal_kills(scene.privileged, pid, SIGTERM));
	assert_false(hb_privileged_signal_kills(scene.privileged, pid, SIGCHLD));
	assert_false(hb_privileged_is_server(scene.privileged, pid));
	char program[256];
	assert_int_equal(hb_privileged_server_page(scene.privileged, pid, 1, program), -EPERM);
	end_process(pid);
	assert_int_equal(hb_privileged_image(scene.privileged, pid), 0);
	int fd = open(scene.options.socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	hb_privileged_remove_socket(scene.privileged);
	assert_int_equal(access(scene.options.socket, F_OK), -1);
	end_scene(&scene);
}

static void only_processes_of_the_tenant_are_ended(void **state)
{
	struct scene scene;
	char variable[64], other_variable[64];
	name_token(variable, token);
	name_token(other_variable, other_token);
	uint64_t inode, other_inode;
	pid_t with_token = start_process(variable, -1), with_page = start_with_page(&inode);
	pid_t foreign[] = {start_process("A=", -1), start_process(other_variable, -1), start_with_page(&other_inode)};
	struct hb_privileged_request request = {.kind = HB_PRIVILEGED_END_PROCESSES, .page = inode};
	memcpy(request.token, token, sizeof token);
	begin_scene(&scene);
	/* The user is another one: nothing happens. */
	request.uid = getuid() + 1;
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), 0);
	run_until_result(&scene);
	assert_int_equal(scene.status, 0);
	assert_string_equal(scene.output, "0\n");
	assert_true(still_runs(with_token) && still_runs(with_page));
	request.uid = getuid();
	scene.status = -1;
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), 0);
	run_until_result(&scene);
	assert_string_equal(scene.output, "2\n");
	assert_int_equal(waitpid(with_token, NULL, 0), with_token);
	assert_int_equal(waitpid(with_page, NULL, 0), with_page);
	for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
		assert_true(still_runs(foreign[i]));
		end_process(foreign[i]);
	}
	end_scene(&scene);
}

static void a_program_that_cannot_be_started_is_reported(void **state)
{
	struct scene scene;
	begin_scene(&scene);
	/* The daemon made no token, with which a server could register. */
	const struct hb_privileged_request request = {.kind = HB_PRIVILEGED_LIST_SERVERS};
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), 0);
	run_until_result(&scene);
	assert_int_equal(scene.status, 127);
	assert_string_equal(scene.output, strerror(ENOENT));
	end_scene(&scene);
}

/* --- a daemon that was taken over ------------------------------------------------------------------ */

/* Sends bytes in place of a request. The helper must end with status 1, and neither of the processes. */
static void attack(const void *packet, size_t size, bool on_facts)
{
	struct hb_daemon_options options = {.simulated = true, .ready_fd = -1, .dir = "/nonexistent"};
	struct hb_helper helper;
	struct pollfd end = {.events = POLLIN};
	int status;
	char byte;
	strcpy(options.socket, "/nonexistent/hbd.sock");
	assert_int_equal(hb_helper_start(&options, &helper), 0);
	int fd = on_facts ? helper.facts_fd : helper.programs_fd;
	assert_int_equal(send(fd, packet, size, MSG_NOSIGNAL), (ssize_t)size);
	end.fd = fd;
	assert_int_equal(poll(&end, 1, ENDS_MS), 1);
	assert_true(recv(fd, &byte, 1, 0) <= 0); /* no answer: its end was closed */
	assert_int_equal(waitpid(helper.pid, &status, 0), helper.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	close(helper.facts_fd);
	close(helper.programs_fd);
}

static void a_request_that_breaks_a_rule_ends_the_helper(void **state)
{
	pid_t foreign = start_process("A=", -1);
	static const char text[] = "terminate_client 1 1\nquit\n", path[] = "/bin/sh";
	const struct hb_privileged_request good = {
		.magic = HB_PRIVILEGED_MAGIC, .kind = HB_PRIVILEGED_IMAGE, .number = 1, .pid = (int32_t)foreign};
	struct hb_privileged_request bad[] = {good, good, good, good, good};
	bad[0].kind = HB_PRIVILEGED_END_PROCESSES; /* a pid is no way to say what is to be ended */
	bad[1].kind = HB_PRIVILEGED_N_KINDS;
	bad[2].uid = 1000;
	bad[3].kind = HB_PRIVILEGED_TERMINATE_CLIENT;
	bad[3].pid = -1;
	bad[3].client = -1;
	bad[4].kind = HB_PRIVILEGED_START_SERVER;
	bad[4].pid = 0;
	bad[4].uid = UINT32_MAX;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		attack(&bad[i], sizeof bad[i], false);
		attack(&bad[i], sizeof bad[i], true);
	}
	struct hb_privileged_request two[2] = {good, good};
	attack(two, sizeof two, true);
	attack(&good, sizeof good - 1, true);
	attack(&good, sizeof good, false);
	attack(text, sizeof text, false);
	attack(path, sizeof path, true);
	assert_true(still_runs(foreign));
	end_process(foreign);
}

/* --- a helper that hangs or dies -------------------------------------------------------------------- */

static void a_helper_that_hangs_is_not_asked_until_it_answers(void **state)
{
	struct scene scene;
	char variable[64];
	name_token(variable, token);
	pid_t pid = start_process(variable, -1);
	begin_scene(&scene);
	kill(scene.helper.pid, SIGSTOP);
	assert_false(hb_privileged_began_with(scene.privileged, pid, token));
	assert_int_equal(hb_privileged_image(scene.privileged, pid), 0);
	kill(scene.helper.pid, SIGCONT);
	while (!hb_privileged_began_with(scene.privileged, pid, token))
		poll(NULL, 0, 1);
	/* The answers are those to the questions. */
	assert_false(hb_privileged_began_with(scene.privileged, pid, other_token));
	assert_true(hb_privileged_image(scene.privileged, pid) == hb_process_image(pid));
	end_process(pid);
	end_scene(&scene);
}

static void a_helper_that_dies_ends_what_waits_for_it(void **state)
{
	struct scene scene;
	begin_scene(&scene);
	kill(scene.helper.pid, SIGSTOP);
	const struct hb_privileged_request request = {.kind = HB_PRIVILEGED_QUIT};
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), 0);
	kill(scene.helper.pid, SIGKILL);
	run_until_result(&scene);
	assert_int_equal(scene.status, 127);
	assert_non_null(strstr(scene.output, "helper process has ended"));
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), -EPIPE);
	assert_int_equal(hb_privileged_image(scene.privileged, getpid()), 0);
	end_scene(&scene);
}

static void a_daemon_that_ends_with_programs_running_gets_their_results(void **state)
{
	struct scene scene;
	begin_scene(&scene);
	const struct hb_privileged_request request = {.kind = HB_PRIVILEGED_QUIT};
	assert_int_equal(hb_privileged_run(scene.privileged, &request, keep_result, &scene), 0);
	end_scene(&scene);
	assert_int_equal(scene.status, 127); /* there is no token */
}

static void the_helper_ends_when_its_daemon_is_killed(void **state)
{
	struct hb_daemon_options options = {.simulated = true, .ready_fd = -1, .dir = "/nonexistent"};
	int report[2];
	pid_t helper_pid = 0;
	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	pid_t daemon = fork();
	assert_true(daemon >= 0);
	if (daemon == 0) {
		struct hb_helper helper;
		if (hb_helper_start(&options, &helper) == 0 &&
		    write(report[1], &helper.pid, sizeof helper.pid) == (ssize_t)sizeof helper.pid)
			for (;;)
				pause();
		_exit(1);
	}
	assert_int_equal(read(report[0], &helper_pid, sizeof helper_pid), (ssize_t)sizeof helper_pid);
	struct pollfd end = {.fd = hb_process_open(helper_pid), .events = POLLIN};
	assert_true(end.fd >= 0);
	end_process(daemon);
	assert_int_equal(poll(&end, 1, ENDS_MS), 1);
	close(end.fd);
	close(report[0]);
	close(report[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(facts_are_those_of_the_process),
		cmocka_unit_test(only_processes_of_the_tenant_are_ended),
		cmocka_unit_test(a_program_that_cannot_be_started_is_reported),
		cmocka_unit_test(a_request_that_breaks_a_rule_ends_the_helper),
		cmocka_unit_test(a_helper_that_hangs_is_not_asked_until_it_answers),
		cmocka_unit_test(a_helper_that_dies_ends_what_waits_for_it),
		cmocka_unit_test(a_daemon_that_ends_with_programs_running_gets_their_results),
		cmocka_unit_test(the_helper_ends_when_its_daemon_is_killed),
	};
	/* The helper starts its own program for this. */
	if (argc == 2 && strcmp(argv[1], HB_END_PROCESSES_OPTION) == 0)
		return hb_end_processes_main();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
