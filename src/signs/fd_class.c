/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classifies file descriptors; see fd_class.h. A descriptor that a library closes by
 * a raw system call keeps its old class. Its signs then have a wrong source, which
 * foresight tolerates.
 */
#include "signs/fd_class.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TABLE = 65536 };

/* A value in place of a class: accept() returned the descriptor, which is not classified yet. */
#define ACCEPTED (UINT32_C(1) << 31)

static _Atomic(uint32_t) classes[TABLE];

static uint32_t make_class(enum hb_fd_kind kind, uint16_t port)
{
	return (uint32_t)kind << 24 | port;
}

typedef int (*name_fn)(int fd, struct sockaddr *address, socklen_t *length);

/* Returns the port of one end of a connection; 0: it has none. */
static uint16_t read_port(name_fn name, int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	memset(&address, 0, sizeof(address));
	if (name(fd, (struct sockaddr *)&address, &length) != 0)
		return 0;
	if (address.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&address)->sin_port);
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
	return 0;
}

static int read_option(int fd, int name)
{
	int value = 0;
	socklen_t length = sizeof(value);
	return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : 0;
}

/*
 * Classifies a socket. The kernel does not record which end of an inherited connection called the other.
 * It gives callers ports from 32768 on (by default), so the smaller of the two ports
 * counts as the service's.
 */
static uint32_t classify_socket(int fd, bool accepted)
{
	uint16_t own = read_port(getsockname, fd), other = accepted ? 0 : read_port(getpeername, fd);
	if (!own)
		return make_class(HB_FD_LOCAL, 0);
	if (accepted)
		return make_class(HB_FD_SERVED, own);
	if (read_option(fd, SO_ACCEPTCONN))
		return make_class(HB_FD_LISTENER, own);
	if (read_option(fd, SO_TYPE) == SOCK_DGRAM)
		return make_class(HB_FD_DATAGRAM, own);
	return other && other < own ? make_class(HB_FD_CALLED, other) : make_class(HB_FD_SERVED, own);
}

/* Classifies descriptors for which fstat() returns no type: eventfd, timerfd, epoll and others. */
static uint32_t classify_anonymous(int fd)
{
	char path[40], target[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	return make_class(strcmp(target, "anon_inode:[eventfd]") == 0 ? HB_FD_EVENT : HB_FD_OTHER, 0);
}

static uint32_t classify(int fd, bool accepted)
{
	struct stat found;
	if (fstat(fd, &found) != 0)
		return make_class(HB_FD_OTHER, 0);
	if (S_ISSOCK(found.st_mode))
		return classify_socket(fd, accepted);
	if (S_ISFIFO(found.st_mode))
		return make_class(HB_FD_PIPE, 0);
	return found.st_mode & S_IFMT ? make_class(HB_FD_OTHER, 0) : classify_anonymous(fd);
}

uint32_t hb_fd_class(int fd)
{
	if (fd < 0 || fd >= TABLE)
		return make_class(HB_FD_OTHER, 0);
	uint32_t known = atomic_load_explicit(&classes[fd], memory_order_relaxed);
	if (!known || known == ACCEPTED) {
		int before = errno;
		known = classify(fd, known == ACCEPTED);
		errno = before;
		atomic_store_explicit(&classes[fd], known, memory_order_relaxed);
	}
	return known;
}

void hb_fd_forget(int fd)
{
	if (fd >= 0 && fd < TABLE && atomic_load_explicit(&classes[fd], memory_order_relaxed))
		atomic_store_explicit(&classes[fd], HB_FD_UNKNOWN, memory_order_relaxed);
}

void hb_fd_served(int fd)
{
	if (fd >= 0 && fd < TABLE)
		atomic_store_explicit(&classes[fd], ACCEPTED, memory_order_relaxed);
}
