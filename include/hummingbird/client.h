/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client API. A high-priority service can report when a request begins and
 * ends, and when it is about to use the GPU. The calls are optional: without them
 * Hummingbird infers requests from what the process does.
 *
 *	hb_request_begin(0);                       a request has arrived
 *	hb_hint(hb_now_ns() + 300000);             its first kernel will start in about 0.3 ms
 *	... work on the CPU, launches, synchronize ...
 *	hb_request_end();
 *
 * Linking: none. The functions look up the shim in the process at run time. They
 * take effect in processes started by `hb run --priority high` and do nothing in
 * all others.
 * Units: times are absolute, CLOCK_MONOTONIC in nanoseconds (hb_now_ns()).
 * Threads: every function may be called from any thread, before and after CUDA is
 * initialised. A thread has one request at a time; a second hb_request_begin()
 * replaces the first.
 * Errors: none. The functions return nothing, never fail and never block.
 * Cost: well under a microsecond; a hint that takes the GPU over costs several
 * microseconds.
 * Languages: C11 and C++.
 */
#ifndef HUMMINGBIRD_CLIENT_H
#define HUMMINGBIRD_CLIENT_H

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Internal: the functions that the shim exports for this header. */
enum hb_client_call { HB_CLIENT_BEGIN, HB_CLIENT_HINT, HB_CLIENT_END, HB_CLIENT_CALLS };

struct hb_client_calls {
	int found;                   /* 1 after the look-up in libcuda.so.1 */
	void *call[HB_CLIENT_CALLS]; /* NULL if that libcuda.so.1 is not the shim */
};

/*
 * Internal: returns the shim's function, or NULL. The look-up goes through a
 * handle of libcuda.so.1 because the application may have opened it privately; it
 * never loads the library. Two threads that look up at the same time store the
 * same result.
 */
static inline void *hb_client_find(enum hb_client_call which)
{
	static const char *const names[HB_CLIENT_CALLS] = {"hb_shim_request_begin", "hb_shim_hint",
							   "hb_shim_request_end"};
	static struct hb_client_calls known;
	if (__atomic_load_n(&known.found, __ATOMIC_ACQUIRE))
		return known.call[which];
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return (void *)0;
	for (int i = 0; i < HB_CLIENT_CALLS; i++)
		__atomic_store_n(&known.call[i], dlsym(library, names[i]), __ATOMIC_RELAXED);
	__atomic_store_n(&known.found, 1, __ATOMIC_RELEASE);
	dlclose(library);
	return known.call[which];
}

/* Returns the current time in the unit of all functions here. */
static inline int64_t hb_now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Reports that this thread begins to serve a request. deadline_ns 0: the SLO given to `hb run` applies. */
static inline void hb_request_begin(int64_t deadline_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_client_find(HB_CLIENT_BEGIN);
	if (call)
		call(deadline_ns);
}

/* Announces when a request's first kernel will start. A hint helps most when it is given 0.3 ms ahead or earlier. */
static inline void hb_hint(int64_t expected_start_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_client_find(HB_CLIENT_HINT);
	if (call)
		call(expected_start_ns);
}

/* Reports that this thread's request has been answered. Without a request it does nothing. */
static inline void hb_request_end(void)
{
	void (*call)(void) = (void (*)(void))hb_client_find(HB_CLIENT_END);
	if (call)
		call();
}

#ifdef __cplusplus
}
#endif

#endif
