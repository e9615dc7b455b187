/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few driver functions that the trials of `hb doctor` call, looked up in a
 * library that was opened by hand: the shim for a trial as a tenant
 * (doctor_inside.c), the driver itself for the trial of time slices
 * (doctor_slice.c).
 */
#ifndef HB_CLI_TRIAL_CALLS_H
#define HB_CLI_TRIAL_CALLS_H

#include "nvidia/cuda_abi.h"

#define HB_TRIAL_CALLS(X) \
	X(cuInit) \
	X(cuDeviceGet) \
	X(cuDeviceGetUuid) \
	X(cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxRelease_v2) \
	X(cuCtxSetCurrent) \
	X(cuMemAlloc_v2) \
	X(cuCtxSynchronize)

struct hb_trial_calls {
#define X(name) __typeof__(name) *name;
	HB_TRIAL_CALLS(X)
#undef X
};

/* The first name that is missing, or NULL. */
const char *hb_trial_find(void *library, struct hb_trial_calls *calls);

/*
 * Finds the functions and makes the primary context of the first GPU current.
 * NULL, or the call that is missing or failed, that one with *code. The context
 * is kept until the process ends.
 */
const char *hb_trial_begin(void *library, struct hb_trial_calls *calls, int *code);

#endif
