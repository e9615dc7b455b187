/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the daemon; see daemon_link.h. */
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

/* Registering a low-priority tenant may have to wait for the MPS server to start. */
#define ANSWER_LIMIT_MS 30000

/* Several `hb run` at once: one daemon gets the socket, and the others' clients wait this long for it to listen. */
#define CONNECT_TRIES 50
#define CONNECT_PAUSE_NS 20000000
#define STARTS_EVERY 10

static void become_daemon(const char *program, const char *path, bool simulated, int out)
{
	dup2(out, STDERR_FILENO);
	execl(program, "hbd", "--socket", path, simulated ? "--gpu" : (char *)NULL, "sim", (char *)NULL);
	_exit(127);
}

/* Everything until the other end is closed, cut to the size. */
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
 * hbd goes to the background by itself once it serves its socket. What it says
 * is kept for the case that nobody answers afterwards: that another daemon was
 * faster is no failure.
 */
static int start_daemon(bool simulated, const char *path, char *said, size_t size, struct hb_error *error)
{
	char program[PATH_MAX];
	int ends[2], status;
	if (hb_install_program("hbd", program, sizeof program) < 0)
		return hb_error_set(
			error, -ENOENT,
			"no daemon is running, and hbd to start one is not found; install it or start one yourself");
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

/* Not where the system has one, and not where whoever started us takes care of it (HB_START_DAEMON=0). */
static bool may_start_daemon(const char *path)
{
	const char *wish = getenv("HB_START_DAEMON");
	return !is_system_socket(path) && !(wish && strcmp(wish, "0") == 0);
}

/* One for simulated GPUs has a socket of its own: whoever forgot --gpu sim looks for the other. */
static bool has_simulated_daemon(const char *path)
{
	char other[HB_PATH_MAX];
	return hb_socket_path(true, other) == 0 && strcmp(other, path) != 0 && access(other, F_OK) == 0;
}

/* Adds to the error what to do next. */
static void add_advice(bool simulated, bool start, const char *path, int result, struct hb_error *error)
{
	size_t used = strlen(error->text);
	const char *advice = "";
	if (result == -EACCES)
		advice = "; it is for root and group hummingbird: adduser NAME hummingbird";
	else if (!hb_daemon_gone(result))
		return;
	else if (is_system_socket(path))
		advice = "; systemctl start hummingbird starts it";
	else if (start)
		advice = "; HB_START_DAEMON=0 is set, so none is started: start hbd, or unset it";
	else if (!simulated && has_simulated_daemon(path))
		advice = "; for the one of simulated GPUs add --gpu sim";
	else
		advice = "; hb run starts one";
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
		/* More than once: one that is going may have held the socket the first time. */
		if (i % STARTS_EVERY == 0)
			result = start_daemon(simulated, path, said, sizeof said, error);
		if (result == 0)
			socket = hb_client_open(path, ANSWER_LIMIT_MS, error);
	}
	if (result == 0 && socket < 0 && said[0])
		hb_error_set(error, socket, "no daemon could be started: %s", said);
	return result < 0 ? result : socket;
}
