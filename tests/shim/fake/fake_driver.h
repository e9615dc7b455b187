/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver is a libcuda.so.1 that a test can also ask for the last call that
 * reached it, and how often each function was called. The fake does no work.
 * Each function without a body of its own records its arguments and returns a value
 * that only this function returns.
 */
#ifndef HB_TEST_FAKE_DRIVER_H
#define HB_TEST_FAKE_DRIVER_H

#include <stdint.h>

#define HB_FAKE_ARGS 11                 /* as many as cuLaunchKernel has */
#define HB_FAKE_UUID "hb-fake-gpu-0000" /* UUID of its only device */
#define HB_FAKE_TOTAL ((size_t)80 << 30)
#define HB_FAKE_FREE ((size_t)70 << 30)
#define HB_FAKE_PITCH 1024       /* wider than in real drivers, so that a wrong estimate is noticed */
#define HB_FAKE_ANSWER_BASE 1000 /* a recording function returns this plus its number in exports.def */

struct hb_fake_call {
	const char *name;
	uint64_t args[HB_FAKE_ARGS];
	float floats[2]; /* the first two floating-point arguments */
};

/* The last call of the calling thread; name is NULL if it has made no call. */
const struct hb_fake_call *hb_fake_last_call(void);
/* Sets whether streams and events count as busy when queried. */
void hb_fake_set_busy(int is_busy);
/* Inside the fake: records a call of a function with a body. */
void hb_fake_count(const char *name);
/* Returns how often all threads together called a function. */
unsigned hb_fake_calls(const char *name);

#endif
