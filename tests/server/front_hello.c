/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that libmicrohttpd can do: it reads a request and answers with the
 * same few bytes. bench/front.py measures it beside the server: what is between
 * them is ours. usage: front-hello [THREADS]. Prints its port; ends with stdin.
 *
 * Each thread has a daemon of its own and waits for it in poll(), as those of
 * `hb serve` do (http_loops.h): with the library's own thread 256 connections in
 * a closed loop came to a stand in most runs, and nothing was answered any more.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS_MAX 64
#define BACKLOG 4096

static enum MHD_Result handle(void *argument, struct MHD_Connection *connection, const char *url, const char *method,
			      const char *version, const char *data, size_t *bytes, void **context)
{
	static char body[] = "{\"model_name\":\"null\",\"outputs\":[]}";
	static int begun;
	if (!*context) {
		*context = &begun;
		return MHD_YES;
	}
	if (*bytes > 0) {
		*bytes = 0;
		return MHD_YES;
	}
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	enum MHD_Result result = MHD_queue_response(connection, 200, response);
	MHD_destroy_response(response);
	return result;
}

static void *run(void *argument)
{
	struct MHD_Daemon *daemon = argument;
	struct pollfd fd = {.fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN};
	MHD_UNSIGNED_LONG_LONG ms;
	for (;;) {
		poll(&fd, 1, MHD_get_timeout(daemon, &ms) == MHD_YES ? (int)ms : -1);
		MHD_run_wait(daemon, 0);
	}
	return NULL;
}

/* The port; 0 = it failed. */
static unsigned start(int listening, unsigned threads)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);
	pthread_t thread;
	if (bind(listening, (struct sockaddr *)&address, bytes) < 0 || listen(listening, BACKLOG) < 0 ||
	    getsockname(listening, (struct sockaddr *)&address, &bytes) < 0)
		return 0;
	for (unsigned i = 0; i < threads; i++) {
		struct MHD_Daemon *daemon = MHD_start_daemon(
			MHD_USE_EPOLL | MHD_USE_TURBO | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, NULL,
			MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_CONNECTION_LIMIT, 16384U, MHD_OPTION_END);
		if (!daemon || pthread_create(&thread, NULL, run, daemon) != 0)
			return 0;
	}
	return ntohs(address.sin_port);
}

int main(int argc, char **argv)
{
	char end;
	unsigned long threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2;
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unsigned port = listening >= 0 && threads >= 1 && threads <= THREADS_MAX ? start(listening, (unsigned)threads)
										 : 0;
	if (!port)
		return 1;
	printf("%u\n", port);
	fflush(stdout);
	while (read(STDIN_FILENO, &end, 1) > 0)
		;
	return 0;
}
