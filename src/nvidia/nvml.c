/* SPDX-License-Identifier: Apache-2.0 */
/* Reads memory use and processes of GPUs from NVML; see nvml.h. */
#include "nvidia/nvml.h"

#include "nvidia/nvml_library.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Fills the array before a call, to recognise the bytes that the library wrote. 0xa5a5a5a5 is never a pid. */
#define UNTOUCHED 0xa5
/* The driver keeps some samples of each process for each second. */
#define UTILIZATION_SAMPLES 1024
#define UTILIZATION_SECONDS 5

static int report_failure(struct hb_gpu_use *use, const char *what, int code)
{
	snprintf(use->why, sizeof use->why, "NVML's %s: %s (%d)", what, hb_nvml_error_text(code), code);
	return -EIO;
}

/* --- the list of processes ------------------------------------------------------------- */

struct nvml_list {
	unsigned n;
	size_t stride;
	unsigned char bytes[HB_GPU_USERS_MAX * HB_NVML_RECORD_MAX];
};

/*
 * Returns the size of a record: the smallest known size into which all written bytes
 * fit. If the library cleared the entire array first, the end of the written bytes
 * shows that.
 */
static size_t find_stride(const struct nvml_list *list)
{
	size_t end = sizeof list->bytes;
	while (end > 0 && list->bytes[end - 1] == UNTOUCHED)
		end--;
	if (end > (size_t)list->n * HB_NVML_RECORD_MAX)
		return end / HB_GPU_USERS_MAX / 8 * 8;
	for (size_t stride = sizeof(struct hb_nvml_process); stride < HB_NVML_RECORD_MAX; stride += 8)
		if (end <= stride * list->n)
			return stride;
	return HB_NVML_RECORD_MAX;
}

static int read_list(int (*call)(void *, unsigned *, void *), void *device, struct nvml_list *list)
{
	/* The array has room for records of the largest size; the count passed to the library is in such records. */
	list->n = HB_GPU_USERS_MAX;
	memset(list->bytes, UNTOUCHED, sizeof list->bytes);
	int code = call(device, &list->n, list->bytes);
	if (code != HB_NVML_SUCCESS)
		return code;
	if (list->n > HB_GPU_USERS_MAX)
		list->n = HB_GPU_USERS_MAX;
	list->stride = find_stride(list);
	return code;
}

/* A process may be in both lists; the larger figure counts. */
static void add_user(struct hb_gpu_use *use, const struct hb_nvml_process *process)
{
	uint64_t bytes = process->bytes == HB_NVML_NOT_AVAILABLE ? HB_GPU_BYTES_UNKNOWN : process->bytes;
	for (uint32_t i = 0; i < use->n_users; i++) {
		uint64_t *known = &use->users[i].bytes;
		if (use->users[i].pid != (pid_t)process->pid)
			continue;
		if (*known == HB_GPU_BYTES_UNKNOWN || (bytes != HB_GPU_BYTES_UNKNOWN && bytes > *known))
			*known = bytes;
		return;
	}
	if (use->n_users < HB_GPU_USERS_MAX)
		use->users[use->n_users++] = (struct hb_gpu_user){
			.pid = (pid_t)process->pid, .bytes = bytes, .busy_ppm = HB_GPU_BUSY_UNKNOWN};
}

/* Adds the processes of a list. Returns how many belong to other pid namespaces, which appear with pid 0. */
static uint32_t add_users(struct hb_gpu_use *use, const struct nvml_list *list)
{
	uint32_t nameless = 0;
	for (unsigned i = 0; i < list->n; i++) {
		struct hb_nvml_process process;
		memcpy(&process, list->bytes + i * list->stride, sizeof process);
		if ((int32_t)process.pid > 0)
			add_user(use, &process);
		else
			nameless++;
	}
	return nameless;
}

static int read_users(const struct hb_nvml_calls *calls, void *device, struct hb_gpu_use *use)
{
	static struct nvml_list list; /* used by one thread at a time */
	int code = read_list(calls->compute_processes, device, &list);
	if (code == HB_NVML_INSUFFICIENT_SIZE) {
		snprintf(use->why, sizeof use->why, "more than %d processes are on the GPU", HB_GPU_USERS_MAX);
		return -E2BIG;
	}
	if (code != HB_NVML_SUCCESS)
		return report_failure(use, "list of processes", code);
	uint32_t nameless = add_users(use, &list);
	/* Clients of an MPS server are in a separate list. */
	if (calls->mps_processes && read_list(calls->mps_processes, device, &list) == HB_NVML_SUCCESS)
		nameless += add_users(use, &list);
	if (nameless)
		snprintf(use->why, sizeof use->why, "%u processes belong to other pid namespaces", nameless);
	return 0;
}

/* Adds how busy the processes kept the GPU in the last seconds. Not every driver and GPU says so. */
static void read_utilization(const struct hb_nvml_calls *calls, void *device, struct hb_gpu_use *use)
{
	static struct hb_nvml_utilization samples[UTILIZATION_SAMPLES]; /* used by one thread at a time */
	unsigned n = UTILIZATION_SAMPLES;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	unsigned long long since_us = (unsigned long long)(now.tv_sec - UTILIZATION_SECONDS) * 1000000;
	if (!calls->process_utilization || calls->process_utilization(device, samples, &n, since_us) != HB_NVML_SUCCESS)
		return;
	for (uint32_t i = 0; i < use->n_users; i++) {
		uint64_t sum = 0, count = 0;
		for (unsigned j = 0; j < n && j < UTILIZATION_SAMPLES; j++) {
			bool fits = (pid_t)samples[j].pid == use->users[i].pid && samples[j].sm <= 100;
			sum += fits ? samples[j].sm : 0;
			count += fits;
		}
		if (count)
			use->users[i].busy_ppm = (uint32_t)(sum * 10000 / count);
	}
}

int hb_nvml_use(const char *uuid_text, struct hb_gpu_use *use)
{
	struct hb_nvml_memory memory;
	void *device = NULL;
	memset(use, 0, sizeof *use);
	const struct hb_nvml_calls *calls = hb_nvml_load(use->why, sizeof use->why);
	if (!calls)
		return -ENOENT;
	int code = calls->device_by_uuid(uuid_text, &device);
	if (code == HB_NVML_SUCCESS && calls->memory_info) {
		int result = calls->memory_info(device, &memory);
		if (result == HB_NVML_SUCCESS) {
			use->total_bytes = memory.total;
			use->used_bytes = memory.used;
		}
		code = result == HB_NVML_GPU_IS_LOST ? result : code;
	}
	use->is_lost = code == HB_NVML_GPU_IS_LOST;
	if (code != HB_NVML_SUCCESS)
		return report_failure(use, "look for the GPU", code);
	int result = read_users(calls, device, use);
	if (result == 0)
		read_utilization(calls, device, use);
	return result;
}
