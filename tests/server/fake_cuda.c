/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that workers take for the CUDA driver, for tests of broken contexts. Its one device has a primary context, which
 * is not current in any thread. Waiting for it gives the error in the file "broken" of the working folder, if there is one.
 */
#include <stdio.h>

int cuCtxGetCurrent(void **context);
int cuCtxSynchronize(void);
int cuDeviceGetCount(int *n);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);

static int primary;
static void *current;

int cuCtxGetCurrent(void **context)
{
	*context = current;
	return 0;
}

int cuCtxSynchronize(void)
{
	int error = 0;
	FILE *file = fopen("broken", "r");
	if (file && fscanf(file, "%d", &error) != 1) /* NOLINT(cert-err34-c) */
		error = 0;
	if (file)
		fclose(file);
	return current == &primary ? error : 201; /* CUDA_ERROR_INVALID_CONTEXT */
}

int cuDeviceGetCount(int *n)
{
	*n = 1;
	return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &primary;
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
	current = context;
	return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
	*context = current;
	current = NULL;
	return 0;
}
