/* SPDX-License-Identifier: Apache-2.0 */
/* See http_loops.h. */
#include "server/http/http_loops.h"

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096
#define THREADS_MAX 64

struct hb_http_loop {
	struct hb_http_loops *loops;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	bool runs;
	int bell; /* an eventfd */
	atomic_bool rung;
	sem_t is_quiet;
};

struct hb_http_loops {
	int listening;
	bool quiet;
	atomic_bool quieting, stopping;
	uint32_t n;
	struct hb_http_loop all[THREADS_MAX];
};

static _Thread_local struct hb_http_loop *here;

struct hb_http_loop *hb_http_loop_here(void)
{
	return here;
}

void hb_http_loop_wake(struct hb_http_loop *loop)
{
	if (!atomic_exchange(&loop->rung, true) && eventfd_write(loop->bell, 1) < 0)
		hb_log_error("http: eventfd: %s", strerror(errno));
}

/* Before the library looks at what was resumed: what is resumed later rings again. */
static void hear(struct hb_http_loop *loop)
{
	eventfd_t rings;
	if (eventfd_read(loop->bell, &rings) == 0)
		atomic_store(&loop->rung, false);
}

static int epoll_of(struct MHD_Daemon *daemon)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
	return info ? info->epoll_fd : -1;
}

static int timeout_ms(struct MHD_Daemon *daemon)
{
	MHD_UNSIGNED_LONG_LONG ms;
	if (MHD_get_timeout(daemon, &ms) != MHD_YES)
		return -1;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* Here, since the library ends the process where a daemon's loop meets its own MHD_quiesce_daemon() elsewhere. */
static bool quiesce(struct hb_http_loop *loop)
{
	if (!atomic_load(&loop->loops->quieting))
		return false;
	MHD_quiesce_daemon(loop->daemon);
	sem_post(&loop->is_quiet);
	return true;
}

static void *run(void *argument)
{
	struct hb_http_loop *loop = argument;
	bool quiet = false;
	struct pollfd fds[] = {{.fd = loop->bell, .events = POLLIN}, {.fd = epoll_of(loop->daemon), .events = POLLIN}};
	here = loop;
	while (!atomic_load(&loop->loops->stopping)) {
		/* It can only be interrupted; then nothing is lost by looking. */
		poll(fds, 2, timeout_ms(loop->daemon));
		if (fds[0].revents & POLLIN)
			hear(loop);
		quiet = quiet || quiesce(loop);
		MHD_run_wait(loop->daemon, 0);
	}
	return NULL;
}

static int listen_at(const struct sockaddr_storage *address)
{
	int on = 1;
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t bytes = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)address, bytes) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	int code = -errno;
	close(fd);
	return code;
}

static int start_daemon(struct hb_http_loop *loop, const struct hb_http_loops_config *config, uint32_t connections)
{
	const unsigned flags = MHD_USE_EPOLL | MHD_USE_TURBO |
			       (config->address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
	loop->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->bell < 0)
		return -errno;
	errno = 0;
	loop->daemon = config->start(config->argument, flags, loop->loops->listening, connections ? connections : 1);
	if (loop->daemon)
		return sem_init(&loop->is_quiet, 0, 0);
	int code = errno ? -errno : -EIO;
	close(loop->bell);
	return code;
}

static int start(struct hb_http_loops *loops, const struct hb_http_loops_config *config)
{
	uint32_t threads = config->threads < THREADS_MAX ? config->threads : THREADS_MAX;
	for (; loops->n < threads; loops->n++) {
		struct hb_http_loop *loop = &loops->all[loops->n];
		loop->loops = loops;
		int code = start_daemon(loop, config,
					config->connections / threads + (loops->n < config->connections % threads));
		if (code < 0)
			return code;
	}
	for (uint32_t i = 0; i < threads; i++) {
		int code = pthread_create(&loops->all[i].thread, NULL, run, &loops->all[i]);
		if (code)
			return -code;
		loops->all[i].runs = true;
	}
	return 0;
}

int hb_http_loops_new(const struct hb_http_loops_config *config, struct hb_http_loops **out, struct hb_error *error)
{
	struct hb_http_loops *loops = calloc(1, sizeof(*loops));
	if (!loops)
		return hb_error_set(error, -ENOMEM, "http: out of memory");
	int code = loops->listening = listen_at(&config->address);
	if (code < 0)
		hb_error_set(error, code, "http: cannot listen: %s", strerror(-code));
	else if ((code = start(loops, config)) < 0)
		hb_error_set(error, code, "http: cannot start: %s", strerror(-code));
	if (code < 0) {
		hb_http_loops_free(loops);
		return code;
	}
	*out = loops;
	return 0;
}

uint16_t hb_http_loops_port(const struct hb_http_loops *loops)
{
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);
	if (getsockname(loops->listening, (struct sockaddr *)&address, &bytes) < 0)
		return 0;
	return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
						   : ((struct sockaddr_in *)&address)->sin_port);
}

void hb_http_loops_quiesce(struct hb_http_loops *loops)
{
	if (loops->quiet)
		return;
	loops->quiet = true;
	atomic_store(&loops->quieting, true);
	for (uint32_t i = 0; i < loops->n; i++) {
		struct hb_http_loop *loop = &loops->all[i];
		if (!loop->runs) {
			quiesce(loop);
			continue;
		}
		hb_http_loop_wake(loop);
		while (sem_wait(&loop->is_quiet) < 0)
			;
	}
}

void hb_http_loops_free(struct hb_http_loops *loops)
{
	if (!loops)
		return;
	/* A daemon that is not quiet closes the socket, which is everybody's. */
	hb_http_loops_quiesce(loops);
	atomic_store(&loops->stopping, true);
	for (uint32_t i = 0; i < loops->n; i++) {
		struct hb_http_loop *loop = &loops->all[i];
		hb_http_loop_wake(loop);
		if (loop->runs)
			pthread_join(loop->thread, NULL);
		MHD_stop_daemon(loop->daemon);
		close(loop->bell);
		sem_destroy(&loop->is_quiet);
	}
	if (loops->listening >= 0)
		close(loops->listening);
	free(loops);
}
