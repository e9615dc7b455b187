/* SPDX-License-Identifier: Apache-2.0 */
/* A real hbd for tests; see daemon_harness.h. */
#include "daemon_harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 20000

void daemon_start_again(struct daemon *daemon, const char *program)
{
	char config[96];
	snprintf(config, sizeof config, "%s/hummingbird.yaml", daemon->dir);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (daemon->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* In the foreground it is our child, so that its end can be waited for. */
		int log = open("/dev/null", O_WRONLY);
		if (!getenv("HB_LOG"))
			dup2(log, STDERR_FILENO);
		execl(program, "hbd", "--foreground", "--socket", daemon->socket, "--config", config,
		      daemon->simulated ? "--gpu" : (char *)NULL, "sim", (char *)NULL);
		_exit(127);
	}
	for (;;) {
		struct hb_error error;
		int status, fd = hb_client_open(daemon->socket, TIMEOUT_MS, &error);
		if (fd >= 0) {
			close(fd);
			return;
		}
		/* Not there yet, or it has ended: then there is nothing to wait for. */
		if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
			daemon->pid = -1;
			daemon->status = status;
			return;
		}
		poll(NULL, 0, 1);
	}
}

void daemon_start(struct daemon *daemon, const char *program, const char *config)
{
	char path[96];
	strcpy(daemon->dir, "/tmp/hb-test-XXXXXX");
	assert_non_null(mkdtemp(daemon->dir));
	snprintf(daemon->socket, sizeof daemon->socket, "%s/hbd.sock", daemon->dir);
	snprintf(path, sizeof path, "%s/hummingbird.yaml", daemon->dir);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(config ? config : "mps: false\n", file);
	fclose(file);
	daemon_start_again(daemon, program);
}

int daemon_end(struct daemon *daemon, int signal)
{
	int status = -1;
	if (daemon->pid <= 0)
		return daemon->status;
	kill(daemon->pid, signal);
	assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
	daemon->pid = -1;
	return status;
}

void daemon_clean(struct daemon *daemon)
{
	char command[128];
	daemon_end(daemon, SIGKILL);
	snprintf(command, sizeof command, "rm -rf %s", daemon->dir);
	assert_int_equal(system(command), 0);
}

int daemon_connect(const struct daemon *daemon)
{
	struct hb_error error = {""};
	int fd = hb_client_open(daemon->socket, TIMEOUT_MS, &error);
	if (fd < 0)
		print_message("%s\n", error.text);
	return fd;
}

static json_t *ask_status(int fd)
{
	struct hb_error error = {""};
	char *text;
	json_t *root;
	assert_true(fd >= 0);
	assert_int_equal(hb_client_status(fd, &text, &error), 0);
	assert_int_equal(hb_json_parse(text, strlen(text), "status", &root, &error), 0);
	free(text);
	return root;
}

json_t *daemon_status(const struct daemon *daemon)
{
	int fd = daemon_connect(daemon);
	json_t *root = ask_status(fd);
	close(fd);
	return root;
}

size_t daemon_tenants(const struct daemon *daemon)
{
	json_t *root = daemon_status(daemon);
	size_t n = json_array_size(json_object_get(root, "tenants"));
	json_decref(root);
	return n;
}

static bool is_closing(int fd)
{
	json_t *root = ask_status(fd);
	bool closing = json_integer_value(json_object_get(json_object_get(root, "daemon"), "closing"));
	json_decref(root);
	return closing;
}

size_t daemon_fds(const struct daemon *daemon)
{
	char path[64];
	size_t n = 0;
	int fd = daemon_connect(daemon);
	assert_true(fd >= 0);
	while (is_closing(fd)) /* ended connections */
		poll(NULL, 0, 1);
	snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon->pid);
	DIR *folder = opendir(path);
	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	close(fd);
	return n;
}

struct hb_tenant_options wish_of(unsigned seed, enum hb_page_priority priority)
{
	struct hb_tenant_options wish;
	hb_tenant_options_init(&wish);
	memset(wish.token, 0x5a, sizeof wish.token);
	memcpy(wish.token, &seed, sizeof seed);
	wish.priority = priority;
	wish.n_gpus = 1;
	memset(wish.uuids[0], 0x11, HB_UUID_BYTES);
	wish.command = "test";
	return wish;
}

int join(const struct daemon *daemon, const struct hb_tenant_options *wish, struct hb_membership *member)
{
	struct hb_error error = {""};
	int fd = hb_client_open(daemon->socket, TIMEOUT_MS, &error);
	if (fd < 0)
		return fd;
	int result = hb_client_register(fd, wish, member, NULL, 0, &error);
	close(fd);
	return result;
}

int create(const struct daemon *daemon, struct hb_tenant_options wish)
{
	return create_with(daemon, wish, NULL, 0);
}

int create_with(const struct daemon *daemon, struct hb_tenant_options wish, char *environment, size_t size)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_error error = {""};
	wish.flags |= HB_REGISTER_CREATE;
	wish.n_gpus = 0;
	int fd = hb_client_open(daemon->socket, TIMEOUT_MS, &error);
	if (fd < 0)
		return fd;
	int result = hb_client_register(fd, &wish, &member, environment, size, &error);
	close(fd);
	hb_membership_fini(&member);
	return result;
}

struct hb_gate *gate_of(const struct hb_membership *member, uint32_t gpu)
{
	return (struct hb_gate *)member->page->processes[member->slot].gates[gpu];
}

pid_t child_start(int (*body)(void *argument), void *argument, int *status)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test must not leave it behind */
		int result = body(argument);
		if (write(ends[1], &result, sizeof result) != (ssize_t)sizeof result)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	/* A child that died in its body has closed its end. */
	if (read(ends[0], status, sizeof *status) != (ssize_t)sizeof *status)
		*status = -ECHILD;
	close(ends[0]);
	return child;
}

void child_kill(pid_t child)
{
	int status;
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
}
