/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-sim-mps-control: the counterpart of nvidia-cuda-mps-control for simulated
 * GPUs, with the same command line.
 *
 *   hb-sim-mps-control -d      the control daemon, in the background; -f: in the foreground
 *   echo COMMAND | hb-sim-mps-control
 *
 * The daemon starts one server (hb-sim-mps-server) on command or for the first
 * client, as that client's user, and again after a server died. As with the real
 * one, clients of another user wait until the last client of the server's user
 * has gone; then a server of their user replaces it.
 */
#include "simcuda/mps_wire.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define SERVER_FD 3
#define ANSWER_MS 10000
#define TERMINATE_MS 30 /* the command takes this long */
#define CONNECTIONS 256
#define PID_FILE "nvidia-cuda-mps-control.pid"

extern char **environ;

struct control_connection {
	int fd;
	pid_t pid;
	uid_t uid;
	bool client;          /* has joined */
	bool waits;           /* sent quit and waits for the end */
	char joining[16];     /* the GPU that it wants to join when the clients of another user have gone; "" = none */
	int64_t answer_at_ms; /* its command ends a client until then; 0 = none */
};

static struct {
	int listener;
	struct control_connection connections[CONNECTIONS];
	int n;
	int server_fd; /* -1 = none runs */
	pid_t server_pid;
	uid_t server_uid;
	int percentage;
	bool ending;
	int64_t end_at_s; /* latest time to end after quit -t */
	FILE *log;
} control = {.server_fd = -1, .percentage = 100};

static int64_t now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int64_t now_s(void)
{
	return now_ms() / 1000;
}

static void send_to_tool(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void send_to_tool(const char *format, ...)
{
	va_list arguments;
	if (!control.log)
		return;
	va_start(arguments, format);
	vfprintf(control.log, format, arguments);
	va_end(arguments);
	fflush(control.log);
}

/* --- the server ------------------------------------------------------------------------ */

static bool answer_of(int fd, char *text)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	return poll(&wait, 1, ANSWER_MS) == 1 && mps_receive(fd, text) > 0;
}

static void end_server(void)
{
	if (control.server_fd < 0)
		return;
	close(control.server_fd); /* closing it signals the server to end */
	control.server_fd = -1;
	while (waitpid(control.server_pid, NULL, 0) < 0 && errno == EINTR)
		;
	send_to_tool("Server %d exited\n", (int)control.server_pid);
}

static int server_path(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	if (n <= 0)
		return -errno;
	path[n] = '\0';
	char *name = strrchr(path, '/') + 1;
	int room = (int)(path + size - name);
	return snprintf(name, (size_t)room, "hb-sim-mps-server") < room ? 0 : -ENAMETOOLONG;
}

/* Executes the server as this user, with the connection as SERVER_FD. Only a daemon of root can change the user. */
static void become_server(char *path, int fd, uid_t uid)
{
	char *arguments[] = {path, NULL};
	if (fd == SERVER_FD)
		fcntl(fd, F_SETFD, 0);
	else
		dup2(fd, SERVER_FD);
	if (geteuid() == 0 && uid != 0 && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
		_exit(126);
	execve(path, arguments, environ);
	_exit(127);
}

static int fork_server(uid_t uid)
{
	char path[4096];
	int pair[2], result = server_path(path, sizeof path);
	if (result < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return result < 0 ? result : -errno;
	control.server_pid = fork();
	if (control.server_pid == 0)
		become_server(path, pair[1], uid);
	close(pair[1]);
	if (control.server_pid < 0) {
		close(pair[0]);
		return -EAGAIN;
	}
	control.server_fd = pair[0];
	control.server_uid = geteuid() == 0 ? uid : geteuid();
	return 0;
}

static bool start_server(uid_t uid)
{
	char text[MPS_TEXT];
	if (control.server_fd >= 0)
		return true;
	if (fork_server(uid) < 0)
		return false;
	if (!answer_of(control.server_fd, text) || strcmp(text, "ready") != 0) {
		send_to_tool("Server %d did not start: %s\n", (int)control.server_pid, text);
		end_server();
		return false;
	}
	send_to_tool("Starting new server %d for user %u\n", (int)control.server_pid, (unsigned)control.server_uid);
	return true;
}

/* --- clients ------------------------------------------------------------------------------ */

static int count_clients(void)
{
	int n = 0;
	for (int i = 0; i < control.n; i++)
		n += control.connections[i].client;
	return n;
}

static bool ask_for_token(uid_t uid, const char *gpu, unsigned long long *token)
{
	char text[MPS_TEXT];
	snprintf(text, sizeof text, "gpu %d", atoi(gpu));
	return start_server(uid) && mps_send(control.server_fd, text) >= 0 && answer_of(control.server_fd, text) &&
	       sscanf(text, "token %llu", token) == 1;
}

/* A server without a context (its GPU was lost) is useless: this starts another one. */
static bool get_token(uid_t uid, const char *gpu, unsigned long long *token)
{
	if (ask_for_token(uid, gpu, token))
		return true;
	end_server();
	return ask_for_token(uid, gpu, token);
}

/* Whether clients of another user have the server. If it has none, it makes room for one of this user. */
static bool is_taken(uid_t uid)
{
	if (control.server_fd < 0 || control.server_uid == uid || geteuid() != 0)
		return false;
	if (count_clients() > 0)
		return true;
	end_server();
	return false;
}

static void join_client(struct control_connection *connection, const char *gpu)
{
	char text[MPS_TEXT];
	unsigned long long token;
	if (control.ending) {
		mps_send(connection->fd, "error: the control daemon is ending");
		return;
	}
	if (!connection->client && count_clients() >= MPS_CLIENTS) {
		mps_send(connection->fd, "error: too many clients");
		return;
	}
	if (!connection->client && is_taken(connection->uid)) {
		snprintf(connection->joining, sizeof connection->joining, "%.15s", gpu);
		return;
	}
	connection->joining[0] = '\0';
	if (!get_token(connection->uid, gpu, &token)) {
		mps_send(connection->fd, "error: no server");
		return;
	}
	connection->client = true;
	snprintf(text, sizeof text, "token %llu %d", token, control.percentage);
	mps_send(connection->fd, text);
	send_to_tool("New client %d\n", (int)connection->pid);
}

static void join_waiting(void)
{
	for (int i = 0; i < control.n; i++) {
		char gpu[sizeof control.connections[i].joining];
		if (!control.connections[i].joining[0])
			continue;
		strcpy(gpu, control.connections[i].joining);
		join_client(&control.connections[i], gpu);
	}
}

static bool terminate_client(long server, long pid)
{
	char text[MPS_TEXT];
	snprintf(text, sizeof text, "terminate %ld", pid);
	return control.server_fd >= 0 && server == control.server_pid && mps_send(control.server_fd, text) >= 0 &&
	       answer_of(control.server_fd, text) && strcmp(text, "ended") == 0;
}

static void list_clients(char *out, size_t size)
{
	size_t n = 0;
	out[0] = '\0';
	for (int i = 0; i < control.n && n < size; i++)
		if (control.connections[i].client)
			n += (size_t)snprintf(out + n, size - n, "%d\n", (int)control.connections[i].pid);
}

static bool is_busy(void)
{
	for (int i = 0; i < control.n; i++)
		if (control.connections[i].answer_at_ms)
			return true;
	return false;
}

/* As the real one does, it refuses every command while it ends a client. */
static bool refuse_command(const struct control_connection *connection)
{
	if (!is_busy())
		return false;
	mps_send(connection->fd, "Cannot send command to MPS control daemon process\n");
	return true;
}

static void answer_ended(void)
{
	for (int i = 0; i < control.n; i++) {
		struct control_connection *connection = &control.connections[i];
		if (!connection->answer_at_ms || now_ms() < connection->answer_at_ms)
			continue;
		connection->answer_at_ms = 0;
		mps_send(connection->fd, "0\n");
	}
}

/* The tool prints the answer; quit and terminate_client are answered when they have been carried out. */
static void obey_command(struct control_connection *connection, char *command)
{
	char out[MPS_TEXT] = "";
	int value, pid;
	command[strcspn(command, "\n")] = '\0';
	if (refuse_command(connection))
		return;
	if (strncmp(command, "quit", 4) == 0 || strncmp(command, "shutdown_server", 15) == 0) {
		control.ending = true;
		connection->waits = true;
		control.end_at_s = sscanf(command, "%*s -t %d", &value) == 1 ? now_s() + value : INT64_MAX;
		if (strstr(command, " -f"))
			control.end_at_s = 0;
		return;
	}
	if (strcmp(command, "get_server_list") == 0) {
		if (control.server_fd >= 0)
			snprintf(out, sizeof out, "%d\n", (int)control.server_pid);
	} else if (strncmp(command, "get_client_list", 15) == 0) {
		list_clients(out, sizeof out);
	} else if (strncmp(command, "start_server", 12) == 0) {
		if (!start_server(sscanf(command, "%*s -uid %d", &value) == 1 ? (uid_t)value : geteuid()))
			snprintf(out, sizeof out, "Failed to start the server; see server.log\n");
	} else if (sscanf(command, "terminate_client %d %d", &value, &pid) == 2) {
		if (terminate_client(value, pid)) {
			connection->answer_at_ms = now_ms() + TERMINATE_MS;
			return;
		}
		snprintf(out, sizeof out, "Failed to terminate client %d of server %d\n", pid, value);
	} else if (strcmp(command, "get_default_active_thread_percentage") == 0) {
		snprintf(out, sizeof out, "%d.0\n", control.percentage);
	} else if (sscanf(command, "set_default_active_thread_percentage %d", &value) == 1 && value > 0 &&
		   value <= 100) {
		control.percentage = value;
		snprintf(out, sizeof out, "%d.0\n", control.percentage);
	} else if (strcmp(command, "get_server_status") == 0 || strncmp(command, "get_server_status ", 18) == 0) {
		snprintf(out, sizeof out, "%s\n", control.server_fd >= 0 ? "ACTIVE" : "NONE");
	} else {
		snprintf(out, sizeof out, "Unrecognized command: %.100s\n", command);
	}
	mps_send(connection->fd, out);
}

/* Returns false if the connection was closed. */
static bool serve_connection(struct control_connection *connection)
{
	char text[MPS_TEXT];
	if (mps_receive(connection->fd, text) == 0)
		return false;
	if (strncmp(text, "join ", 5) == 0)
		join_client(connection, text + 5);
	else if (strncmp(text, "command ", 8) == 0)
		obey_command(connection, text + 8);
	else
		return false;
	return true;
}

static void take_connection(void)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;
	int fd = accept4(control.listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (control.n == CONNECTIONS) {
		close(fd);
		return;
	}
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	control.connections[control.n++] = (struct control_connection){.fd = fd, .pid = peer.pid, .uid = peer.uid};
}

/* --- the daemon ------------------------------------------------------------------------------ */

static int open_folder(void)
{
	const char *path = mps_folder();
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder < 0 ? -errno : folder;
}

static int listen_in(int folder)
{
	struct sockaddr_un address;
	int result = mps_address(folder, &address);
	int fd = result < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlinkat(folder, MPS_SOCKET, 0);
	/* As with the real daemon, every user who may enter the folder may connect. */
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
	    fchmodat(folder, MPS_SOCKET, 0666, 0) == 0 && listen(fd, 64) == 0)
		return fd;
	result = result < 0 ? result : -errno;
	if (fd >= 0)
		close(fd);
	return result;
}

static void write_files(int folder)
{
	/* Uses the real daemon's name, for which tools look. */
	if (symlinkat(MPS_SOCKET, folder, "control") < 0 && errno != EEXIST)
		send_to_tool("control: %s\n", strerror(errno));
	int fd = openat(folder, PID_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	dprintf(fd, "%d\n", (int)getpid());
	close(fd);
}

static void open_log(void)
{
	const char *given = getenv("CUDA_MPS_LOG_DIRECTORY"), *folder = given && *given ? given : mps_folder();
	char path[4096];
	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return;
	snprintf(path, sizeof path, "%s/control.log", folder);
	control.log = fopen(path, "ae");
	snprintf(path, sizeof path, "%s/server.log", folder);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int server = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(null, STDIN_FILENO);
	dup2(server >= 0 ? server : null, STDOUT_FILENO);
	dup2(server >= 0 ? server : null, STDERR_FILENO);
	close(null);
	if (server >= 0)
		close(server);
}

static bool may_end(void)
{
	return control.ending && (count_clients() == 0 || now_s() >= control.end_at_s);
}

static void serve_all(struct pollfd *fds)
{
	for (int i = control.n; i-- > 0;) {
		struct control_connection *connection = &control.connections[i];
		if (!fds[i + 2].revents || serve_connection(connection))
			continue;
		close(connection->fd);
		*connection = control.connections[--control.n];
	}
	if (fds[1].revents && control.server_fd >= 0) {
		send_to_tool("Server %d is gone\n", (int)control.server_pid);
		end_server();
	}
	join_waiting();
	if (fds[0].revents)
		take_connection();
}

static void run_control(int folder)
{
	struct pollfd fds[CONNECTIONS + 2];
	while (!may_end()) {
		fds[0] = (struct pollfd){.fd = control.listener, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = control.server_fd, .events = 0};
		for (int i = 0; i < control.n; i++)
			fds[i + 2] = (struct pollfd){.fd = control.connections[i].fd, .events = POLLIN};
		if (poll(fds, (nfds_t)control.n + 2, is_busy() ? 5 : control.ending ? 100 : -1) > 0)
			serve_all(fds);
		answer_ended();
	}
	end_server();
	unlinkat(folder, MPS_SOCKET, 0);
	unlinkat(folder, "control", 0);
	unlinkat(folder, PID_FILE, 0);
	for (int i = 0; i < control.n; i++)
		if (control.connections[i].waits)
			mps_send(control.connections[i].fd, "");
	send_to_tool("Exit\n");
}

static int daemon_main(bool background)
{
	int other = mps_connect();
	if (other >= 0) {
		fprintf(stderr, "An instance of this daemon is already running\n");
		return 1;
	}
	if (getenv("HB_SIM_NO_MPS")) {
		fprintf(stderr, "MPS is not available: HB_SIM_NO_MPS is set\n");
		return 1;
	}
	int folder = open_folder();
	control.listener = folder < 0 ? folder : listen_in(folder);
	if (control.listener < 0) {
		fprintf(stderr, "%s: %s\n", mps_folder(), strerror(-control.listener));
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	/* The socket listens already, so processes that connect from now on are served. */
	pid_t pid = background ? fork() : 0;
	if (pid != 0)
		return pid < 0;
	if (background)
		setsid();
	open_log();
	write_files(folder);
	setenv("HB_SIM_MPS_SERVER", "1", 1);
	run_control(folder);
	return 0;
}

/* --- the tool ------------------------------------------------------------------------------------ */

static int tool_main(void)
{
	char line[MPS_TEXT - 16], text[MPS_TEXT];
	int fd = mps_connect();
	if (fd < 0) {
		fprintf(stderr, "Cannot find MPS control daemon process\n");
		return 1;
	}
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!line[0])
			continue;
		snprintf(text, sizeof text, "command %s", line);
		if (mps_send(fd, text) < 0 || mps_receive(fd, text) == 0) {
			fprintf(stderr, "The MPS control daemon is gone\n");
			return 1;
		}
		fputs(text, stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return tool_main();
	if (argc == 2 && (strcmp(argv[1], "-d") == 0 || strcmp(argv[1], "-f") == 0))
		return daemon_main(argv[1][1] == 'd');
	fprintf(stderr, "usage: hb-sim-mps-control [-d | -f]; without an option, commands on standard input\n");
	return 2;
}
