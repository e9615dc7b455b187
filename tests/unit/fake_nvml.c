/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 for tests. What it says is in environment variables, read
 * at each call, so that a test can change them:
 *   HB_FAKE_NVML_COMPUTE, HB_FAKE_NVML_MPS   "PID:BYTES,PID:-,..." (-: not available)
 *   HB_FAKE_NVML_STRIDE                      bytes a record has: 16, 24 (default) or 32
 *   HB_FAKE_NVML_CLEAR                       set: the whole array is cleared first
 *   HB_FAKE_NVML_FAIL                        "name=code": that function returns this
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, uint64_t memory[3]);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, unsigned char *records);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *device, unsigned *count, unsigned char *records);
#pragma GCC visibility pop

enum { NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
static int gpu;

static int fail(const char *name)
{
	const char *wish = getenv("HB_FAKE_NVML_FAIL");
	size_t length = strlen(name);
	return wish && strncmp(wish, name, length) == 0 && wish[length] == '=' ? atoi(wish + length + 1) : 0;
}

int nvmlInit_v2(void)
{
	return fail("init");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	if (strncmp(uuid, "GPU-", 4) != 0)
		return NOT_FOUND;
	*device = &gpu;
	return fail("handle");
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t memory[3])
{
	memory[0] = UINT64_C(80) << 30;
	memory[1] = UINT64_C(70) << 30;
	memory[2] = UINT64_C(10) << 30;
	return fail("memory");
}

static int list(const char *text, unsigned *count, unsigned char *records)
{
	unsigned room = records ? *count : 0, n = 0;
	const char *said = getenv("HB_FAKE_NVML_STRIDE");
	size_t stride = said ? strtoul(said, NULL, 10) : 24;
	if (records && getenv("HB_FAKE_NVML_CLEAR"))
		memset(records, 0, room * stride);
	while (text && *text) {
		char *end;
		uint32_t pid = (uint32_t)strtoul(text, &end, 10);
		uint64_t bytes = end[1] == '-' ? UINT64_MAX : strtoull(end + 1, &end, 10);
		text = strchr(end, ',');
		text = text ? text + 1 : NULL;
		if (n++ >= room || !records)
			continue;
		unsigned char *record = records + (n - 1) * stride;
		memset(record, 0xff, stride);
		memcpy(record, &pid, sizeof pid);
		memcpy(record + 8, &bytes, sizeof bytes);
	}
	*count = n;
	return n > room ? INSUFFICIENT_SIZE : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, unsigned char *records)
{
	return fail("compute") ? fail("compute") : list(getenv("HB_FAKE_NVML_COMPUTE"), count, records);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *device, unsigned *count, unsigned char *records)
{
	return fail("mps") ? fail("mps") : list(getenv("HB_FAKE_NVML_MPS"), count, records);
}
