/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver functions that the trials of `hb doctor` call, looked up in a library that the trial opened: the shim for the
 * trial as a tenant (doctor_inside.c), the driver for the others.
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

/* Looks up all functions. Returns the first name that is missing, or NULL. */
const char *hb_trial_find(void *library, struct hb_trial_calls *calls);

/*
 * Looks up the functions and makes the primary context of the first GPU current. Returns NULL, or the name of the call that
 * is missing or failed, with its CUDA error in *code. The context exists until the process ends.
 */
const char *hb_trial_begin(void *library, struct hb_trial_calls *calls, int *code);

#endif
