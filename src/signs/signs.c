/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhb-signs: loaded into programs of high priority (LD_PRELOAD, by `hb run`),
 * stands in front of the calls by which bytes come in and tells the shim, so
 * that the GPU is ready when the request's first kernel is. The shim attaches
 * itself when the process has become an HP tenant; before that, and in every
 * other process, a call costs one load more than without us.
 *
 * Runs inside other people's calls: keeps errno and cancellation as they are,
 * allocates nothing, takes no lock, calls nothing that it stands in front of.
 * An identity is what came in (kind of descriptor, port) and who read it (the
 * return address); the process learns each for itself.
 */
#undef _FORTIFY_SOURCE

#include "signs/signs.h"
#include "signs/fd_class.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* The shim's, while signs are wanted. */
static _Atomic(hb_signs_report *) report;

PUBLIC __typeof__(hb_signs_attach) hb_signs_attach;

void hb_signs_attach(hb_signs_report *sign)
{
	atomic_store_explicit(&report, sign, memory_order_release);
}

/* Never 0, and far from the small numbers that the shim itself gives out. */
static uint64_t identity(uint32_t what, const void *caller)
{
	uint64_t mixed = (uint64_t)(uintptr_t)caller * UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ what) * UINT64_C(0xd6e8feb86659fd93);
	return (mixed ^ mixed >> 32) | UINT64_C(1) << 63;
}

/* A connection stands for who is at its other end; what comes by other descriptors may be from several. `fd` -1: not known. */
static uint32_t who_is(uint32_t what, int fd)
{
	enum hb_fd_kind kind = (enum hb_fd_kind)(what >> 24);
	return kind == HB_FD_SERVED || kind == HB_FD_LOCAL ? (uint32_t)(fd + 1) : 0;
}

static __attribute__((noinline, cold)) void tell(uint32_t what, int fd, const void *caller)
{
	hb_signs_report *sign = atomic_load_explicit(&report, memory_order_acquire);
	int before = errno;
	if (what >> 24 != HB_FD_OTHER && sign)
		sign(identity(what, caller), who_is(what, fd));
	errno = before;
}

static bool is_wanted(void)
{
	return UNLIKELY(atomic_load_explicit(&report, memory_order_relaxed) != NULL);
}

/* ---- what is ready ---- */

enum { OTHER = (uint32_t)HB_FD_OTHER << 24, POLLED = 15u << 24, RING = 14u << 24 };

/* The events carry the caller's own data, not descriptors: what was read will be told by the read. */
static uint32_t is_epoll_readable(const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++)
		if (events[i].events & EPOLLIN)
			return POLLED;
	return OTHER;
}

static uint32_t class_of_polled(const struct pollfd *polled, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (polled[i].revents & POLLIN)
			return hb_fd_class(polled[i].fd);
	return OTHER;
}

static uint32_t class_of_selected(int n, const fd_set *to_read)
{
	for (int fd = 0; to_read && fd < n && fd < FD_SETSIZE; fd++)
		if (FD_ISSET(fd, to_read))
			return hb_fd_class(fd);
	return OTHER;
}

/* ---- the functions ---- */

/* Found on first use: a program's first read may come before any constructor of ours. Two threads find the same. */
static void *next(_Atomic(void *) *slot, const char *name)
{
	void *function = atomic_load_explicit(slot, memory_order_relaxed);
	if (UNLIKELY(!function)) {
		function = dlsym(RTLD_NEXT, name);
		atomic_store_explicit(slot, function, memory_order_relaxed);
	}
	return function;
}

#define NEXT(name) \
	static _Atomic(void *) slot_; \
	__typeof__(&name) real_ = (__typeof__(&name))next(&slot_, #name); \
	if (UNLIKELY(!real_)) { \
		errno = ENOSYS; \
		return -1; \
	}

#define HB_BYTES(type, name, parameters, arguments, fd_) \
	PUBLIC type name parameters; \
	type name parameters \
	{ \
		NEXT(name) \
		type result = real_ arguments; \
		if (is_wanted() && result > 0) \
			tell(hb_fd_class(fd_), fd_, __builtin_return_address(0)); \
		return result; \
	}
#define HB_READY(name, parameters, arguments, ready) \
	PUBLIC int name parameters; \
	int name parameters \
	{ \
		NEXT(name) \
		int result = real_ arguments; \
		if (is_wanted() && result > 0) \
			tell(ready, -1, __builtin_return_address(0)); \
		return result; \
	}
/* A completion of a ring says neither what it is nor of which descriptor: the caller has to do. Linked only with liburing. */
#define HB_RING(name, parameters, arguments, came) \
	PUBLIC int name parameters; \
	int name parameters \
	{ \
		static _Atomic(void *) slot_; \
		int(*real_) parameters = (int(*) parameters)next(&slot_, #name); \
		if (UNLIKELY(!real_)) \
			return -ENOSYS; \
		int result = real_ arguments; \
		if (is_wanted() && (came)) \
			tell(RING, -1, __builtin_return_address(0)); \
		return result; \
	}
#include "signs/calls.def"

/* A connection that comes in is a sign, and its descriptor a new one. */
static int accepted(int listener, int fd, const void *caller)
{
	if (fd < 0)
		return fd;
	hb_fd_served(fd);
	if (is_wanted())
		tell(hb_fd_class(listener), -1, caller);
	return fd;
}

PUBLIC int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
	NEXT(accept)
	return accepted(fd, real_(fd, address, length), __builtin_return_address(0));
}

PUBLIC int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags)
{
	NEXT(accept4)
	return accepted(fd, real_(fd, address, length, flags), __builtin_return_address(0));
}

/* Forgotten before the call: afterwards the number may be another thread's already. */
PUBLIC int close(int fd)
{
	NEXT(close)
	hb_fd_forget(fd);
	return real_(fd);
}

PUBLIC int dup2(int fd, int as)
{
	NEXT(dup2)
	hb_fd_forget(as);
	return real_(fd, as);
}

PUBLIC int dup3(int fd, int as, int flags)
{
	NEXT(dup3)
	hb_fd_forget(as);
	return real_(fd, as, flags);
}
