/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a command to the daemon; see daemon_link.h. */
#include "cli/daemon_link.h"

#include "base/install_path.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Limit for an answer of the daemon: a low-priority tenant may have to wait until the MPS server has started. */
#define ANSWER_LIMIT_MS 30000

/*
 * When several `hb run` start daemons at the same time, one daemon gets the socket. All clients try to connect
 * CONNECT_TRIES times.
 */
#define CONNECT_TRIES 50
#define CONNECT_PAUSE_NS 20000000
#define STARTS_EVERY 10

static void become_daemon(const char *program, const char *path, bool simulated, int out)
{
	dup2(out, STDERR_FILENO);
	execl(program, "hbd", "--socket", path, simulated ? "--gpu" : (char *)NULL, "sim", (char *)NULL);
	_exit(127);
}

/* Reads until the other end is closed and keeps the first line, cut to `size`. */
static void read_message(int fd, char *text, size_t size)
{
	size_t used = 0;
	char rest[256];
	for (;;) {
		bool room = used < size - 1;
		ssize_t n = read(fd, room ? text + used : rest, room ? size - 1 - used : sizeof rest);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += room ? (size_t)n : 0;
	}
	text[used] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/*
 * Starts hbd, which goes to the background once it serves its socket. Keeps its message in `said`, for the case that no
 * daemon answers afterwards. That another daemon was faster is no error.
 */
static int start_daemon(bool simulated, const char *path, char *said, size_t size, struct hb_error *error)
{
	char program[PATH_MAX];
	int ends[2], status;
	if (hb_install_program("hbd", program, sizeof program) < 0)
		return hb_error_set(error, -ENOENT,
				    "no daemon is running, and the program hbd is not found; install or start hbd");
	if (pipe2(ends, O_CLOEXEC) < 0)
		return hb_error_set(error, -errno, "cannot start %s: %s", program, strerror(errno));
	pid_t child = fork();
	if (child == 0)
		become_daemon(program, path, simulated, ends[1]);
	int failed = child < 0 ? -errno : 0;
	close(ends[1]);
	if (!failed)
		read_message(ends[0], said, size);
	close(ends[0]);
	if (failed)
		return hb_error_set(error, failed, "cannot start %s: %s", program, strerror(-failed));
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return 0;
}

bool hb_daemon_gone(int result)
{
	switch (result) {
	case -ENOENT:
	case -ENOTDIR:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENOTCONN:
	case -EPIPE:
		return true;
	default:
		return false;
	}
}

static bool is_system_socket(const char *path)
{
	return strncmp(path, HB_SYSTEM_DIR "/", strlen(HB_SYSTEM_DIR "/")) == 0;
}

/* Returns whether a daemon may be started: not in place of the system's daemon, and not with HB_START_DAEMON=0. */
static bool may_start_daemon(const char *path)
{
	const char *start = getenv("HB_START_DAEMON");
	return !is_system_socket(path) && !(start && strcmp(start, "0") == 0);
}

/*
 * Returns whether a daemon for simulated GPUs, which has its own socket, may be running: the user may have forgotten
 * --gpu sim.
 */
static bool has_simulated_daemon(const char *path)
{
	char other[HB_PATH_MAX];
	return hb_socket_path(true, other) == 0 && strcmp(other, path) != 0 && access(other, F_OK) == 0;
}

/* Adds to the error what the user can do next. */
static void add_advice(bool simulated, bool start, const char *path, int result, struct hb_error *error)
{
	size_t used = strlen(error->text);
	const char *advice = "";
	if (result == -EACCES)
		advice = "; only root and group hummingbird may use it: adduser NAME hummingbird";
	else if (!hb_daemon_gone(result))
		return;
	else if (is_system_socket(path))
		advice = "; systemctl start hummingbird starts it";
	else if (start)
		advice = "; HB_START_DAEMON=0 is set, so no daemon is started: start hbd, or unset HB_START_DAEMON";
	else if (!simulated && has_simulated_daemon(path))
		advice = "; add --gpu sim for the daemon of simulated GPUs";
	else
		advice = "; hb run starts a daemon";
	snprintf(error->text + used, sizeof error->text - used, "%s", advice);
}

int hb_daemon_link(bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error)
{
	char dir[HB_PATH_MAX];
	int result = hb_socket_path(simulated, path);
	if (result < 0)
		return hb_error_set(error, result, "HB_SOCKET or XDG_RUNTIME_DIR is too long for a socket");
	int socket = hb_client_open(path, ANSWER_LIMIT_MS, error);
	if (socket < 0 && !(start && may_start_daemon(path)))
		add_advice(simulated, start, path, socket, error);
	if (socket >= 0 || !start || !hb_daemon_gone(socket) || !may_start_daemon(path))
		return socket;
	const char *given = getenv("HB_SOCKET");
	char said[400] = "";
	result = given && *given ? 0 : hb_runtime_dir(dir, error);
	for (int i = 0; result == 0 && hb_daemon_gone(socket) && i < CONNECT_TRIES; i++) {
		const struct timespec pause = {.tv_nsec = i ? CONNECT_PAUSE_NS : 0};
		nanosleep(&pause, NULL);
		/* Starts more than once, because a daemon that was just ending may have kept the socket the first time. */
		if (i % STARTS_EVERY == 0)
			result = start_daemon(simulated, path, said, sizeof said, error);
		if (result == 0)
			socket = hb_client_open(path, ANSWER_LIMIT_MS, error);
	}
	if (result == 0 && socket < 0 && said[0])
		hb_error_set(error, socket, "no daemon could be started: %s", said);
	return result < 0 ? result : socket;
}
