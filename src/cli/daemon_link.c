/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a command to the daemon; see daemon_link.h. */
#include "cli/daemon_link.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static int left_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - hb_clock_now_ns();
	return left_ns > 0 ? (int)(left_ns / HB_NS_PER_MS) : 0;
}

/* Limit of one answer. */
static int answer_limit_ms(int64_t until_ns)
{
	int left = left_ms(until_ns);
	return left < HB_ANSWER_LIMIT_MS ? left : HB_ANSWER_LIMIT_MS;
}

/* Reads until the other end is closed or the time is over, and keeps the first line, cut to `size`. */
static void read_message(int fd, int64_t until_ns, char *text, size_t size)
{
	size_t used = 0;
	char rest[256];
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	for (;;) {
		bool room = used < size - 1;
		int ready = poll(&readable, 1, left_ms(until_ns));
		ssize_t n = ready > 0 ? read(fd, room ? text + used : rest, room ? size - 1 - used : sizeof rest)
				      : ready;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += room ? (size_t)n : 0;
	}
	text[used] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* In a child, which then ends. So hbd becomes a child of process 1, and its end is never that of a child of the command. */
static void start_orphan(const char *program, const char *path, bool simulated, int out)
{
	pid_t daemon = fork();
	if (daemon == 0)
		become_daemon(program, path, simulated, out);
	_exit(daemon < 0);
}

/*
 * Starts hbd, which goes to the background once it serves its socket. Keeps its message in `said`, for the case that no
 * daemon answers afterwards. That another daemon was faster is no error.
 */
static int start_daemon(int64_t until_ns, bool simulated, const char *path, char *said, size_t size,
			struct hb_error *error)
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
		start_orphan(program, path, simulated, ends[1]);
	int failed = child < 0 ? -errno : 0;
	close(ends[1]);
	if (!failed)
		read_message(ends[0], until_ns, said, size);
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

/* Returns whether the user has named the socket. */
static bool is_given(void)
{
	const char *given = getenv("HB_SOCKET");
	return given && *given;
}

/* A daemon can make its socket only in a folder that exists and that its user may write to. */
static int check_given_folder(const char *path, struct hb_error *error)
{
	char folder[HB_PATH_MAX];
	const char *slash = strrchr(path, '/');
	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	if (access(folder, W_OK | X_OK) == 0)
		return 0;
	int failed = -errno;
	return hb_error_set(
		error, failed,
		"HB_SOCKET=%s: a daemon cannot make a socket there: %s; unset HB_SOCKET, or name a folder of "
		"your own",
		path, strerror(-failed));
}

/* Adds to the error what the user can do next. */
static void add_advice(bool simulated, bool start, const char *path, int result, struct hb_error *error)
{
	size_t used = strlen(error->text);
	const char *advice = "";
	if (result == -EACCES && is_system_socket(path))
		advice = "; only root and group hummingbird may use it: adduser NAME hummingbird";
	else if (result == -EACCES)
		advice = is_given() ? "; it belongs to another user: without HB_SOCKET you get a daemon of your own"
				    : "; it belongs to another user: set XDG_RUNTIME_DIR to a folder of your own";
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

/* Tries to connect again and again, and starts daemons. `socket` is the result of the first attempt. */
static int connect_to_new(int socket, int64_t until_ns, bool simulated, const char *path, struct hb_error *error)
{
	char said[400] = "";
	int result = 0;
	for (int i = 0; hb_daemon_gone(socket) && i < CONNECT_TRIES && left_ms(until_ns) > 0; i++) {
		const struct timespec pause = {.tv_nsec = i ? CONNECT_PAUSE_NS : 0};
		nanosleep(&pause, NULL);
		/* Starts more than once, because a daemon that was just ending may have kept the socket the first time. */
		if (i % STARTS_EVERY == 0)
			result = start_daemon(until_ns, simulated, path, said, sizeof said, error);
		if (result < 0)
			return result;
		socket = hb_client_open(path, answer_limit_ms(until_ns), error);
	}
	if (socket < 0 && said[0])
		hb_error_set(error, socket, "no daemon could be started: %s", said);
	return socket;
}

static int link_until(int64_t until_ns, bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error)
{
	char dir[HB_PATH_MAX];
	int result = hb_socket_path(simulated, path);
	if (result < 0)
		return hb_error_set(error, result, "HB_SOCKET or XDG_RUNTIME_DIR is too long for a socket");
	int socket = hb_client_open(path, answer_limit_ms(until_ns), error);
	bool may_start = start && hb_daemon_gone(socket) && may_start_daemon(path);
	if (socket < 0 && !may_start)
		add_advice(simulated, start, path, socket, error);
	if (socket >= 0 || !may_start)
		return socket;
	result = is_given() ? check_given_folder(path, error) : hb_runtime_dir(dir, error);
	return result < 0 ? result : connect_to_new(socket, until_ns, simulated, path, error);
}

int hb_daemon_link(bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error)
{
	return link_until(hb_clock_now_ns() + HB_LINK_LIMIT_MS * HB_NS_PER_MS, simulated, start, path, error);
}

int hb_daemon_link_until(int64_t until_ns, bool simulated, char path[HB_PATH_MAX], struct hb_error *error)
{
	return link_until(until_ns, simulated, true, path, error);
}
