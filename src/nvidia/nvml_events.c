/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for faults of GPUs with an event set of NVML; see nvml.h. */
#include "base/uuid.h"
#include "nvidia/nvml.h"
#include "nvidia/nvml_library.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WATCHED_MAX 64

struct watched_gpu {
	unsigned char uuid[16];
	void *device;
	bool told_lost; /* the caller knows that it is lost */
};

/* Used by one thread. */
static void *event_set;
static struct watched_gpu watched[WATCHED_MAX];
static uint32_t n_watched;

static int fail(char why[HB_GPU_WHY_MAX], const char *what, int code)
{
	snprintf(why, HB_GPU_WHY_MAX, "NVML's %s: %s (%d)", what, hb_nvml_error_text(code), code);
	return -EIO;
}

static bool is_watched(const unsigned char uuid[16])
{
	for (uint32_t i = 0; i < n_watched; i++)
		if (memcmp(watched[i].uuid, uuid, 16) == 0)
			return true;
	return false;
}

/* Some GPUs report no errors of their memory. */
static int register_device(const struct hb_nvml_calls *calls, void *device)
{
	int code = calls->register_events(device, HB_NVML_EVENT_XID | HB_NVML_EVENT_ECC, event_set);
	return code == HB_NVML_NOT_SUPPORTED ? calls->register_events(device, HB_NVML_EVENT_XID, event_set) : code;
}

/* Adds a GPU to the event set. A GPU that NVML does not know was invented by a program, and is tried again later. */
static int watch_gpu(const struct hb_nvml_calls *calls, const unsigned char uuid[16])
{
	char text[HB_UUID_TEXT_SIZE];
	struct watched_gpu *place = &watched[n_watched];
	void *device = NULL;
	if (n_watched == WATCHED_MAX)
		return HB_NVML_SUCCESS;
	int code = calls->device_by_uuid(hb_uuid_format(uuid, text), &device);
	if (code == HB_NVML_SUCCESS)
		code = register_device(calls, device);
	if (code != HB_NVML_SUCCESS)
		return code;
	*place = (struct watched_gpu){.device = device};
	memcpy(place->uuid, uuid, sizeof place->uuid);
	n_watched++;
	return code;
}

static int set_event(struct hb_gpu_event *event, const unsigned char uuid[16], enum hb_gpu_event_kind kind,
		     uint32_t xid)
{
	*event = (struct hb_gpu_event){.kind = kind, .xid = xid};
	memcpy(event->uuid, uuid, sizeof event->uuid);
	return 1;
}

/* NVML reports that a GPU is lost, but not which. 0: the lost ones are known already. */
static int find_lost(const struct hb_nvml_calls *calls, struct hb_gpu_event *event)
{
	struct hb_nvml_memory memory;
	for (uint32_t i = 0; calls->memory_info && i < n_watched; i++) {
		bool is_lost = calls->memory_info(watched[i].device, &memory) == HB_NVML_GPU_IS_LOST;
		bool is_news = is_lost && !watched[i].told_lost;
		watched[i].told_lost = is_lost;
		if (is_news)
			return set_event(event, watched[i].uuid, HB_GPU_EVENT_LOST, 0);
	}
	return 0;
}

static int read_event(const struct hb_nvml_event *read, struct hb_gpu_event *event)
{
	for (uint32_t i = 0; i < n_watched; i++) {
		if (watched[i].device != read->device)
			continue;
		if (read->kind & HB_NVML_EVENT_XID)
			return set_event(event, watched[i].uuid, HB_GPU_EVENT_XID, (uint32_t)read->data);
		if (read->kind & HB_NVML_EVENT_ECC)
			return set_event(event, watched[i].uuid, HB_GPU_EVENT_ECC, 0);
	}
	return 0;
}

static int begin(const struct hb_nvml_calls *calls, char why[HB_GPU_WHY_MAX])
{
	if (!calls->event_set_create || !calls->register_events || !calls->event_set_wait) {
		snprintf(why, HB_GPU_WHY_MAX, HB_NVML_LIBRARY " has no event sets");
		return -ENOSYS;
	}
	int code = event_set ? HB_NVML_SUCCESS : calls->event_set_create(&event_set);
	if (code == HB_NVML_SUCCESS)
		return 0;
	event_set = NULL;
	return fail(why, "event set", code);
}

int hb_nvml_event(const unsigned char (*uuids)[16], uint32_t n, int timeout_ms, struct hb_gpu_event *event,
		  char why[HB_GPU_WHY_MAX])
{
	struct hb_nvml_event read = {0};
	int failed = HB_NVML_SUCCESS;
	const struct hb_nvml_calls *calls = hb_nvml_load(why, HB_GPU_WHY_MAX);
	int result = calls ? begin(calls, why) : -ENOENT;
	if (result < 0)
		return result;
	for (uint32_t i = 0; i < n; i++) {
		int code = is_watched(uuids[i]) ? HB_NVML_SUCCESS : watch_gpu(calls, uuids[i]);
		if (code == HB_NVML_GPU_IS_LOST)
			return set_event(event, uuids[i], HB_GPU_EVENT_LOST, 0);
		failed = code == HB_NVML_SUCCESS ? failed : code;
	}
	if (!n_watched)
		return fail(why, "registration for events", failed);
	int code = calls->event_set_wait(event_set, &read, (unsigned)timeout_ms);
	if (code == HB_NVML_SUCCESS)
		return read_event(&read, event);
	if (code == HB_NVML_GPU_IS_LOST && find_lost(calls, event))
		return 1;
	return code == HB_NVML_TIMEOUT ? 0 : fail(why, "wait for events", code);
}
