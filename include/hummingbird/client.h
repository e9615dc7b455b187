/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client API: a service of high priority may say when it is about to use
 * the GPU. Nothing has to be linked: the functions are found in the process if
 * it runs under `hb run --priority high`, and do nothing elsewhere. Nobody has
 * to call them; requests are also foreseen from what the process does.
 *
 *	hb_request_begin(0);                       a request has arrived (a deadline may be given)
 *	hb_hint(hb_now_ns() + 300000);             its first kernel is due in about 0.3 ms
 *	... work on the CPU, launches, synchronize ...
 *	hb_request_end();
 *
 * Times are CLOCK_MONOTONIC in ns, absolute. A thread has one request at a
 * time. All of it may be called from any thread, before and after CUDA is
 * initialised; a call costs well under a microsecond, a hint that starts
 * something a few. C11 and C++.
 */
#ifndef HUMMINGBIRD_CLIENT_H
#define HUMMINGBIRD_CLIENT_H

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For the functions below. */
enum hb_client_call { HB_CLIENT_BEGIN, HB_CLIENT_HINT, HB_CLIENT_END, HB_CLIENT_CALLS };

struct hb_client_calls {
	int found; /* libcuda is loaded, and these are its answers: NULL where it is not ours */
	void *call[HB_CLIENT_CALLS];
};

/*
 * libcuda.so.1 may have been opened privately, so its handle is asked for, but
 * it is never loaded for our sake. Threads may look at the same time: they find
 * the same.
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

static inline int64_t hb_now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* A request has arrived on this thread. deadline_ns: absolute, or 0 for the objective given to `hb run`. */
static inline void hb_request_begin(int64_t deadline_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_client_find(HB_CLIENT_BEGIN);
	if (call)
		call(deadline_ns);
}

/* The first kernel of a request is expected at this time, best 0.3 ms ahead or more. */
static inline void hb_hint(int64_t expected_start_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_client_find(HB_CLIENT_HINT);
	if (call)
		call(expected_start_ns);
}

/* The request of this thread has been answered. */
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
