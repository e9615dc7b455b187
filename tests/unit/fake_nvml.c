/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 for tests. Its answers come from environment variables, which it
 * reads at each call, so that a test can change them:
 *   HB_FAKE_NVML_COMPUTE, HB_FAKE_NVML_MPS   "PID:BYTES,PID:-,..." (-: not available)
 *   HB_FAKE_NVML_BUSY                        "PID:PERCENT,...", one sample for each entry
 *   HB_FAKE_NVML_STRIDE                      bytes a record has: 16, 24 (default) or 32
 *   HB_FAKE_NVML_CLEAR                       set: the whole array is cleared first
 *   HB_FAKE_NVML_FAIL                        "name=code": that function returns this
 *   HB_FAKE_NVML_NO_ECC                      set: events of memory errors are not supported
 *   HB_FAKE_NVML_EVENTS                      a file with a line for each event: "xid 31" or "ecc"
 *   HB_FAKE_NVML_STATE                       a file; "lost": the GPU is lost, "hang": no function returns
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, uint64_t memory[3]);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, unsigned char *records);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *device, unsigned *count, unsigned char *records);
int nvmlDeviceGetProcessUtilization(void *device, void *samples, unsigned *count, unsigned long long since_us);
int nvmlEventSetCreate(void **set);
int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set);
int nvmlEventSetWait_v2(void *set, void *event, unsigned timeout_ms);
#pragma GCC visibility pop

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15 };
static int gpu, events;
static unsigned long long registered;

/* Whether the file HB_FAKE_NVML_STATE has this word. */
static bool state_is(const char *word)
{
	char text[16] = "";
	const char *path = getenv("HB_FAKE_NVML_STATE");
	FILE *file = path ? fopen(path, "re") : NULL;
	if (file && !fgets(text, sizeof text, file))
		text[0] = '\0';
	if (file)
		fclose(file);
	text[strcspn(text, "\n")] = '\0';
	return strcmp(text, word) == 0;
}

static int fail(const char *name)
{
	while (state_is("hang"))
		pause();
	if (state_is("lost") && strcmp(name, "init") != 0)
		return GPU_IS_LOST;
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
	/* HB_FAKE_NVML_USED: a file with the used bytes. */
	const char *path = getenv("HB_FAKE_NVML_USED");
	FILE *file = path ? fopen(path, "re") : NULL;
	unsigned long long used = 10ULL << 30;
	if (file && fscanf(file, "%llu", &used) != 1)
		used = 0;
	if (file)
		fclose(file);
	memory[0] = UINT64_C(80) << 30;
	memory[1] = memory[0] - used;
	memory[2] = used;
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

int nvmlDeviceGetProcessUtilization(void *device, void *samples, unsigned *count, unsigned long long since_us)
{
	struct {
		unsigned pid;
		unsigned long long time_us;
		unsigned percent[4];
	} *sample = samples;
	const char *text = getenv("HB_FAKE_NVML_BUSY");
	unsigned n = 0;
	if (!text || since_us > (unsigned long long)time(NULL) * 1000000)
		return device == &gpu ? NOT_FOUND : GPU_IS_LOST;
	for (char *end; *text && n < *count; text = *end ? end + 1 : end) {
		sample[n].pid = (unsigned)strtoul(text, &end, 10);
		sample[n++].percent[0] = (unsigned)strtoul(end + 1, &end, 10);
	}
	*count = n;
	return fail("utilization");
}

int nvmlEventSetCreate(void **set)
{
	*set = &events;
	return fail("events");
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set)
{
	if (device != &gpu || set != &events)
		return NOT_FOUND;
	if (kinds & 2 && getenv("HB_FAKE_NVML_NO_ECC"))
		return NOT_SUPPORTED;
	registered = kinds;
	return fail("register");
}

/* Reads the next line of the events' file. */
static bool read_event(char line[32])
{
	static long read_until;
	const char *path = getenv("HB_FAKE_NVML_EVENTS");
	FILE *file = path ? fopen(path, "re") : NULL;
	if (!file)
		return false;
	fseek(file, read_until, SEEK_SET);
	bool found = fgets(line, 32, file) && strchr(line, '\n');
	if (found)
		read_until = ftell(file);
	fclose(file);
	return found;
}

int nvmlEventSetWait_v2(void *set, void *event, unsigned timeout_ms)
{
	struct {
		void *device;
		unsigned long long kind, data;
		unsigned instances[2];
	} *answer = event;
	char line[32];
	for (unsigned waited_ms = 0; waited_ms <= timeout_ms; waited_ms += 5) {
		int code = fail("wait");
		if (code)
			return code;
		if (read_event(line)) {
			memset(answer, 0, sizeof *answer);
			answer->device = &gpu;
			answer->kind = strncmp(line, "ecc", 3) == 0 ? 2 : 8;
			answer->data = strncmp(line, "xid ", 4) == 0 ? strtoull(line + 4, NULL, 10) : 0;
			if (registered & answer->kind)
				return 0;
		}
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return TIMEOUT;
}
