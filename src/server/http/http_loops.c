/* SPDX-License-Identifier: Apache-2.0 */
/* See http_loops.h. */
#include "server/http/http_loops.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
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
#define HANDSHAKE_WAIT_MS 1
#define STARVED_WAIT_MS 100 /* time between two tries to accept while no descriptor is free */

struct hb_http_loop {
	struct hb_http_loops *loops;
	struct MHD_Daemon *daemon;
	pthread_t thread;
	bool runs;
	int doorbell;            /* eventfd that wakes the thread */
	atomic_bool doorbell_on; /* the doorbell was rung and the thread has not read it yet */
	/* Only used on the loop's thread. */
	uint32_t handshakes;
	bool run_again; /* serve connections once more before waiting */
	bool starved;   /* a connection could not be accepted, because no descriptor or memory was free */
	sem_t quiesced;
};

struct hb_http_loops {
	int listening;
	bool quiesced; /* no loop accepts connections */
	atomic_bool quiescing, stopping;
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
	if (!atomic_exchange(&loop->doorbell_on, true) && eventfd_write(loop->doorbell, 1) < 0)
		hb_log_error("http: eventfd: %s", strerror(errno));
}

void hb_http_loop_note_closed(struct hb_http_loop *loop)
{
	if (loop)
		loop->run_again = true;
}

void hb_http_loop_note_starved(void)
{
	if (!here || here->starved)
		return;
	here->starved = true;
	hb_log_warning("http: a connection waits, because no open file or no memory is free for it");
}

/* Must be called before the library looks for resumed connections. A connection that is resumed later rings again. */
static void clear_doorbell(struct hb_http_loop *loop)
{
	eventfd_t rings;
	if (eventfd_read(loop->doorbell, &rings) == 0)
		atomic_store(&loop->doorbell_on, false);
}

static int get_epoll_descriptor(struct MHD_Daemon *daemon)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
	return info ? info->epoll_fd : -1;
}

static int compute_timeout_ms(struct MHD_Daemon *daemon)
{
	MHD_UNSIGNED_LONG_LONG ms;
	if (MHD_get_timeout(daemon, &ms) != MHD_YES)
		return -1;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/*
 * Called on the loop's own thread: the library aborts the process if another thread calls MHD_quiesce_daemon() while the
 * loop runs. True: the daemon accepts no more connections.
 */
static bool quiesce_daemon(struct hb_http_loop *loop)
{
	if (!atomic_load(&loop->loops->quiescing))
		return false;
	MHD_quiesce_daemon(loop->daemon);
	sem_post(&loop->quiesced);
	return true;
}

static bool has_connections(const struct hb_http_loop *loop)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
	return info && info->num_connections > 0;
}

/*
 * Lets the library accept again. After it ran out of descriptors it does so only when one of its own connections has
 * ended, although the descriptors may be held by gRPC or another loop. So it gets a connection that ends at once. Fails
 * while no descriptor is free; the next try comes later.
 */
static void retry_accept(struct hb_http_loop *loop)
{
	const struct sockaddr address = {.sa_family = AF_UNIX};
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return;
	close(ends[1]);
	loop->starved = false;
	if (has_connections(loop)) /* without connections the library tries again by itself */
		MHD_add_connection(loop->daemon, ends[0], &address, sizeof(address));
	else
		close(ends[0]);
}

/* Waits for work. poll() can only fail by being interrupted; checking the daemon then does no harm. */
static void await_work(struct hb_http_loop *loop, struct pollfd fds[2])
{
	int ms = loop->run_again ? 0 : compute_timeout_ms(loop->daemon);
	/*
	 * While the rest of a handshake has not arrived, version 0.9.75 always wants to be run at once. A pause without
	 * news on any socket costs other connections little: the library reads or writes up to 16 KiB in each round.
	 */
	if (ms == 0 && !loop->run_again && loop->handshakes)
		ms = HANDSHAKE_WAIT_MS;
	loop->run_again = false;
	if (!loop->starved) {
		poll(fds, 2, ms);
		return;
	}
	/* Without connections, only the listening socket could wake the loop, and would do so all the time. */
	poll(fds, has_connections(loop) ? 2 : 1, ms < 0 || ms > STARVED_WAIT_MS ? STARVED_WAIT_MS : ms);
	retry_accept(loop);
}

uint32_t *hb_http_loop_handshakes(struct hb_http_loop *loop)
{
	return &loop->handshakes;
}

static void *run_loop(void *argument)
{
	struct hb_http_loop *loop = argument;
	bool quiet = false;
	struct pollfd fds[] = {{.fd = loop->doorbell, .events = POLLIN},
			       {.fd = get_epoll_descriptor(loop->daemon), .events = POLLIN}};
	here = loop;
	while (!atomic_load(&loop->loops->stopping)) {
		await_work(loop, fds);
		if (fds[0].revents & POLLIN)
			clear_doorbell(loop);
		quiet = quiet || quiesce_daemon(loop);
		MHD_run_wait(loop->daemon, 0);
	}
	return NULL;
}

static int open_listener(const struct sockaddr_storage *address)
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
	loop->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->doorbell < 0)
		return -errno;
	errno = 0;
	loop->daemon = config->start(config->argument, flags, loop->loops->listening, connections ? connections : 1);
	if (loop->daemon)
		return sem_init(&loop->quiesced, 0, 0);
	int code = errno ? -errno : -EIO;
	close(loop->doorbell);
	return code;
}

static int start_threads(struct hb_http_loops *loops, const struct hb_http_loops_config *config)
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
		int code = pthread_create(&loops->all[i].thread, NULL, run_loop, &loops->all[i]);
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
	int code = loops->listening = config->unix_listener >= 0 ? fcntl(config->unix_listener, F_DUPFD_CLOEXEC, 0)
								 : open_listener(&config->address);
	if (code < 0)
		hb_error_set(error, code, "http: cannot listen: %s", strerror(-code));
	else if ((code = start_threads(loops, config)) < 0)
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
	if (!loops || loops->quiesced)
		return;
	loops->quiesced = true;
	atomic_store(&loops->quiescing, true);
	for (uint32_t i = 0; i < loops->n; i++) {
		struct hb_http_loop *loop = &loops->all[i];
		if (!loop->runs) {
			quiesce_daemon(loop);
			continue;
		}
		hb_http_loop_wake(loop);
		while (sem_wait(&loop->quiesced) < 0)
			;
	}
}

void hb_http_loops_free(struct hb_http_loops *loops)
{
	if (!loops)
		return;
	/* A daemon that was not quiesced closes the listening socket, which all daemons share. */
	hb_http_loops_quiesce(loops);
	atomic_store(&loops->stopping, true);
	for (uint32_t i = 0; i < loops->n; i++) {
		struct hb_http_loop *loop = &loops->all[i];
		hb_http_loop_wake(loop);
		if (loop->runs)
			pthread_join(loop->thread, NULL);
		MHD_stop_daemon(loop->daemon);
		close(loop->doorbell);
		sem_destroy(&loop->quiesced);
	}
	if (loops->listening >= 0)
		close(loops->listening);
	free(loops);
}
