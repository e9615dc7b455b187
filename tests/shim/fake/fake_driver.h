/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake driver tells a test, besides being a libcuda.so.1: the last
 * call that reached it and how often each name was called. The fake does no
 * work; every function without a body of its own records its arguments and
 * returns a value that only it returns.
 */
#ifndef HB_TEST_FAKE_DRIVER_H
#define HB_TEST_FAKE_DRIVER_H

#include <stdint.h>

#define HB_FAKE_ARGS 11                 /* as many as cuLaunchKernel has */
#define HB_FAKE_UUID "hb-fake-gpu-0000" /* of its one device */
#define HB_FAKE_TOTAL ((size_t)80 << 30)
#define HB_FAKE_FREE ((size_t)70 << 30)
#define HB_FAKE_PITCH 1024       /* wider than real drivers', so that a guess is corrected */
#define HB_FAKE_ANSWER_BASE 1000 /* a recording function returns this plus its number in exports.def */

struct hb_fake_call {
	const char *name;
	uint64_t args[HB_FAKE_ARGS];
	float floats[2]; /* the first two floating-point arguments */
};

/* Of the calling thread; name is NULL when it made no call yet. */
const struct hb_fake_call *hb_fake_last_call(void);
/* Whether streams and events are still at work when asked. */
void hb_fake_set_busy(int is_busy);
/* Inside the fake: a function with a body was called. */
void hb_fake_count(const char *name);
/* By all threads. */
unsigned hb_fake_calls(const char *name);

#endif
