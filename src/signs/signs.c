/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhb-signs, which `hb run` preloads into HP programs (LD_PRELOAD). It intercepts
 * the calls by which bytes arrive and notifies the shim, so that the GPU is ready
 * when the request's first kernel arrives. The shim attaches itself when the process
 * has become an HP tenant. Before that, and in every other process, an intercepted
 * call costs one more load.
 *
 * This code runs inside calls of other people's programs: it preserves errno and
 * cancellation, allocates nothing, takes no lock, and calls no function that it
 * intercepts. The source of a sign is what arrived (kind of descriptor, port) and
 * which code read it (the return address).
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

/* The shim's function while the shim wants signs; else NULL. */
static _Atomic(hb_signs_report *) report;

PUBLIC __typeof__(hb_signs_attach) hb_signs_attach;

void hb_signs_attach(hb_signs_report *sign)
{
	atomic_store_explicit(&report, sign, memory_order_release);
}

/* Returns the source of a sign: never 0, and above the small numbers that the shim itself uses. */
static uint64_t make_source(uint32_t what, const void *caller)
{
	uint64_t mixed = (uint64_t)(uintptr_t)caller * UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ what) * UINT64_C(0xd6e8feb86659fd93);
	return (mixed ^ mixed >> 32) | UINT64_C(1) << 63;
}

/*
 * Returns the number of the peer: a connection identifies it, but other descriptors may carry bytes of several peers.
 * fd -1: unknown.
 */
static uint32_t find_peer(uint32_t what, int fd)
{
	enum hb_fd_kind kind = (enum hb_fd_kind)(what >> 24);
	return kind == HB_FD_SERVED || kind == HB_FD_LOCAL ? (uint32_t)(fd + 1) : 0;
}

static __attribute__((noinline, cold)) void report_sign(uint32_t what, int fd, const void *caller)
{
	hb_signs_report *sign = atomic_load_explicit(&report, memory_order_acquire);
	int before = errno;
	if (what >> 24 != HB_FD_OTHER && sign)
		sign(make_source(what, caller), find_peer(what, fd));
	errno = before;
}

static bool is_wanted(void)
{
	return UNLIKELY(atomic_load_explicit(&report, memory_order_relaxed) != NULL);
}

/* ---- descriptors that are ready ---- */

enum { OTHER = (uint32_t)HB_FD_OTHER << 24, POLLED = 15u << 24, RING = 14u << 24 };

/*
 * Returns POLLED if an event is readable, else OTHER. Events contain the caller's own data, no descriptors; the later
 * read reports the descriptor.
 */
static uint32_t is_epoll_readable(const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++)
		if (events[i].events & EPOLLIN)
			return POLLED;
	return OTHER;
}

static uint32_t classify_polled(const struct pollfd *polled, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (polled[i].revents & POLLIN)
			return hb_fd_class(polled[i].fd);
	return OTHER;
}

static uint32_t classify_selected(int n, const fd_set *to_read)
{
	for (int fd = 0; to_read && fd < n && fd < FD_SETSIZE; fd++)
		if (FD_ISSET(fd, to_read))
			return hb_fd_class(fd);
	return OTHER;
}

/* ---- the functions ---- */

/* Looks the real function up on first use, because a program may read before our constructors run. Threads find the same. */
static void *find_next(_Atomic(void *) *slot, const char *name)
{
	void *function = atomic_load_explicit(slot, memory_order_relaxed);
	if (UNLIKELY(!function)) {
		function = dlsym(RTLD_NEXT, name);
		atomic_store_explicit(slot, function, memory_order_relaxed);
	}
	return function;
}

/*
 * A library that the program opens with dlopen() calls our functions, because we were loaded first. Its liburing is not in the
 * program's global scope, so RTLD_NEXT does not find it. The answer is not kept, because the caller may be unloaded.
 */
static void *find_for_caller(const char *name, const void *caller)
{
	Dl_info info;
	void *library = dladdr(caller, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	void *function = library ? dlsym(library, name) : NULL;
	if (library)
		dlclose(library);
	return function;
}

#define NEXT(name) \
	static _Atomic(void *) slot_; \
	__typeof__(&name) real_ = (__typeof__(&name))find_next(&slot_, #name); \
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
			report_sign(hb_fd_class(fd_), fd_, __builtin_return_address(0)); \
		return result; \
	}
#define HB_READY(name, parameters, arguments, ready) \
	PUBLIC int name parameters; \
	int name parameters \
	{ \
		NEXT(name) \
		int result = real_ arguments; \
		if (is_wanted() && result > 0) \
			report_sign(ready, -1, __builtin_return_address(0)); \
		return result; \
	}
/*
 * A completion shows neither the operation nor the descriptor, so the caller alone is the source. This applies to
 * liburing only.
 */
#define HB_RING(name, parameters, arguments, came) \
	PUBLIC int name parameters; \
	int name parameters \
	{ \
		static _Atomic(void *) slot_; \
		int(*real_) parameters = (int(*) parameters)find_next(&slot_, #name); \
		if (UNLIKELY(!real_)) \
			real_ = (int(*) parameters)find_for_caller(#name, __builtin_return_address(0)); \
		if (UNLIKELY(!real_)) \
			return -ENOSYS; \
		int result = real_ arguments; \
		if (is_wanted() && (came)) \
			report_sign(RING, -1, __builtin_return_address(0)); \
		return result; \
	}
#include "signs/calls.def"

/* Reports a new connection as a sign and gives its descriptor a new class. */
static int note_accepted(int listener, int fd, const void *caller)
{
	if (fd < 0)
		return fd;
	hb_fd_served(fd);
	if (is_wanted())
		report_sign(hb_fd_class(listener), -1, caller);
	return fd;
}

PUBLIC int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
	NEXT(accept)
	return note_accepted(fd, real_(fd, address, length), __builtin_return_address(0));
}

PUBLIC int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags)
{
	NEXT(accept4)
	return note_accepted(fd, real_(fd, address, length, flags), __builtin_return_address(0));
}

/* The class is forgotten before the call, because another thread may get the number right after it. */
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
