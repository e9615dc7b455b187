/* SPDX-License-Identifier: Apache-2.0 */
/* See bench_sockets.h; bench/socket_service.py does the same for PyTorch. */
#include "bench_sockets.h"
#include "bench_mode.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 8 };

extern char **environ;

static struct pollfd connections[CONNECTIONS];
static FILE *orders;

static int listen_anywhere(uint16_t *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, CONNECTIONS) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		bench_fail("a socket to listen on: %s", strerror(errno));
	*port = ntohs(address.sin_port);
	return fd;
}

/* The clients are no part of what is measured: no library may be put in front of theirs. */
static char **clean_environment(void)
{
	size_t n = 0, kept = 0;
	while (environ[n])
		n++;
	char **clean = bench_calloc(n + 1, sizeof *clean);
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 && strncmp(environ[i], "LD_LIBRARY_PATH=", 16) != 0)
			clean[kept++] = environ[i];
	return clean;
}

static void start_clients(uint16_t port, size_t halves)
{
	char port_text[8], count_text[8], halves_text[24];
	const char *path = getenv("HB_BENCH_LOAD");
	char *words[] = {(char *)(uintptr_t) "python3",
			 (char *)(uintptr_t)path,
			 port_text,
			 count_text,
			 (char *)(uintptr_t) "e",
			 halves_text,
			 NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t pid;
	if (!path)
		bench_fail("HB_BENCH_LOAD is not set; it must name bench/request_load.py");
	snprintf(port_text, sizeof port_text, "%u", port);
	snprintf(count_text, sizeof count_text, "%d", CONNECTIONS);
	snprintf(halves_text, sizeof halves_text, "%zu", halves);
	if (pipe2(ends, O_CLOEXEC) < 0)
		bench_fail("a pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
	char **clean = clean_environment();
	int result = posix_spawnp(&pid, words[0], &actions, NULL, words, clean);
	if (result)
		bench_fail("python3 %s: %s", path, strerror(result));
	posix_spawn_file_actions_destroy(&actions);
	free(clean);
	close(ends[0]);
	orders = fdopen(ends[1], "w");
	if (!orders)
		bench_fail("a pipe: %s", strerror(errno));
}

void bench_sockets_open(size_t halves)
{
	enum { CONNECT_MS = 60000 };
	uint16_t port;
	int listener = listen_anywhere(&port), yes = 1;
	struct pollfd waiting = {.fd = listener, .events = POLLIN};
	start_clients(port, halves);
	for (int i = 0; i < CONNECTIONS; i++) {
		int fd = poll(&waiting, 1, CONNECT_MS) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd < 0)
			bench_fail("the clients do not connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
		connections[i] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	close(listener);
}

void bench_sockets_order(const int64_t *due_ns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(orders, "%lld ", (long long)due_ns[i]);
	if (fputc('\n', orders) == EOF || fflush(orders) == EOF)
		bench_fail("the clients have ended: %s", strerror(errno));
}

static void receive_all(int fd, void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t got = recv(fd, (char *)data + done, bytes - done, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			bench_fail("the clients have closed a connection");
		done += (size_t)got;
	}
}

/* Requests are served in their order, which is also that of the connections. */
int bench_sockets_receive(size_t number, void *request, size_t bytes)
{
	struct pollfd *wanted = &connections[number % CONNECTIONS];
	uint64_t length;
	do {
		if (poll(connections, CONNECTIONS, -1) < 0 && errno != EINTR)
			bench_fail("poll: %s", strerror(errno));
	} while (!wanted->revents);
	receive_all(wanted->fd, &length, sizeof length);
	if (length != bytes)
		bench_fail("a request has %llu bytes instead of %zu", (unsigned long long)length, bytes);
	receive_all(wanted->fd, request, bytes);
	return wanted->fd;
}

void bench_sockets_answer(int connection, const void *answer, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t sent = send(connection, (const char *)answer + done, bytes - done, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			bench_fail("an answer: %s", strerror(errno));
		done += (size_t)sent;
	}
}
