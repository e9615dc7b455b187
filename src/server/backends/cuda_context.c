/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_context.h. */
#include "server/backends/cuda_context.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#define DEVICES_MAX 64

/* The functions of the driver, with the names of their newest versions. */
struct context_calls {
	int (*get_current)(void **context);
	int (*synchronize)(void);
	int (*count_devices)(int *n);
	int (*get_state)(int device, unsigned *flags, int *active);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*push)(void *context);
	int (*pop)(void **context);
};

/* Returns whether no later call in the context can succeed. The numbers are those of CUresult. */
static bool is_sticky(int error)
{
	static const int sticky[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 805, 999};
	for (size_t i = 0; i < sizeof(sticky) / sizeof(*sticky); i++)
		if (sticky[i] == error)
			return true;
	return false;
}

static bool find_calls(struct context_calls *calls)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	const struct {
		void **call;
		const char *name;
	} names[] = {{(void **)&calls->get_current, "cuCtxGetCurrent"},
		     {(void **)&calls->synchronize, "cuCtxSynchronize"},
		     {(void **)&calls->count_devices, "cuDeviceGetCount"},
		     {(void **)&calls->get_state, "cuDevicePrimaryCtxGetState"},
		     {(void **)&calls->retain, "cuDevicePrimaryCtxRetain"},
		     {(void **)&calls->release, "cuDevicePrimaryCtxRelease_v2"},
		     {(void **)&calls->push, "cuCtxPushCurrent_v2"},
		     {(void **)&calls->pop, "cuCtxPopCurrent_v2"}};
	for (size_t i = 0; driver && i < sizeof(names) / sizeof(*names); i++)
		if (!(*names[i].call = dlsym(driver, names[i].name)))
			return false;
	return driver != NULL;
}

/* Checks the primary context of a device, which frameworks use, if there is one. */
static int check_device(const struct context_calls *calls, int device)
{
	unsigned flags = 0;
	int active = 0, error;
	void *context = NULL;
	if (calls->get_state(device, &flags, &active) != 0 || !active)
		return 0;
	error = calls->retain(&context, device);
	if (error != 0)
		return error;
	error = calls->push(context);
	if (error == 0) {
		error = calls->synchronize();
		calls->pop(&context);
	}
	calls->release(device);
	return error;
}

int hb_cuda_context_error(void)
{
	struct context_calls calls;
	void *current = NULL;
	int n = 0;
	if (!find_calls(&calls))
		return 0;
	if (calls.get_current(&current) == 0 && current) {
		int error = calls.synchronize();
		if (is_sticky(error))
			return error;
	}
	if (calls.count_devices(&n) != 0)
		return 0;
	for (int device = 0; device < n && device < DEVICES_MAX; device++) {
		int error = check_device(&calls, device);
		if (is_sticky(error))
			return error;
	}
	return 0;
}
