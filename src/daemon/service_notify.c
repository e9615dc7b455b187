/* SPDX-License-Identifier: Apache-2.0 */
/* Reports to systemd; see service_notify.h. */
#include "daemon/service_notify.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* systemd's queue is short and may be full of watchdog messages: important messages wait this long for room. */
#define SEND_LIMIT_S 1

static struct sockaddr_un address;
static socklen_t address_length; /* 0 = there is no socket */
static int notify_fd = -1;
static int64_t every_ns, next_ns; /* watchdog messages; 0 = there is no watchdog */

static void take_socket(const char *path)
{
	size_t n = path ? strlen(path) : 0;
	if (n < 2 || n >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
		return;
	address.sun_family = AF_UNIX;
	memcpy(address.sun_path, path, n);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

void hb_service_init(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	take_socket(getenv("NOTIFY_SOCKET"));
	long long limit_us = usec ? strtoll(usec, NULL, 10) : 0;
	bool ours = !pid || strtoll(pid, NULL, 10) == (long long)getpid();
	/* systemd recommends two messages within the limit. */
	if (ours && limit_us > 0 && limit_us < INT64_MAX / HB_NS_PER_US)
		every_ns = limit_us * HB_NS_PER_US / 2;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

/*
 * One socket, never closed: before Linux 6.10 closing any Unix socket may also close files that other processes lost in
 * theirs, and such a file may make its closer wait.
 */
static void open_socket_once(void)
{
	struct timeval limit = {.tv_sec = SEND_LIMIT_S};
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(notify_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void send_state(const char *state, int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (!address_length)
		return;
	pthread_once(&once, open_socket_once);
	sendto(notify_fd, state, strlen(state), MSG_NOSIGNAL | flags, (const struct sockaddr *)&address,
	       address_length);
}

void hb_service_report(const char *state)
{
	send_state(state, 0);
}

void hb_service_report_reloading(int64_t now_ns)
{
	char text[64];
	snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(now_ns / HB_NS_PER_US));
	hb_service_report(text);
}

void hb_service_alive(int64_t now_ns)
{
	if (!every_ns || now_ns < next_ns)
		return;
	next_ns = now_ns + every_ns;
	send_state("WATCHDOG=1", MSG_DONTWAIT); /* if it is lost, the next one will do */
}
