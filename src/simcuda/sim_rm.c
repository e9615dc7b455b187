/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's resource-manager calls. They use the C library's ioctl as an
 * ordinary import, so code that watches libcuda's ioctls sees them, too. The
 * kernel does not know them; the exported function hb_sim_ioctl carries them out.
 * Code that redirects the import forwards to hb_sim_ioctl. If no code did, or the
 * call reached the kernel, the library calls hb_sim_ioctl here.
 */
#include "simcuda/sim_driver.h"

#include "nvidia/nvidia_rm_abi.h"
#include "simcuda/sim_rm_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROOT 0xC1D00001u
#define OBJECT_BASE 0x5C000001u

static uint32_t next_object = OBJECT_BASE; /* under sim.lock */
static uint32_t devices[SIM_GPUS];         /* handle for each GPU; 0 = not made yet */

__attribute__((visibility("default"))) int hb_sim_ioctl(int fd, unsigned long request, ...);

/* HB_SIM_RM_REFUSE=a06c0103,a06c0104 (or "all"): these controls fail with "insufficient permissions". */
static bool is_refused(uint32_t command)
{
	const char *list = getenv("HB_SIM_RM_REFUSE");
	char text[16];
	if (!list)
		return false;
	snprintf(text, sizeof text, "%08x", command);
	return strcmp(list, "all") == 0 || strstr(list, text) != NULL;
}

/* Finds the parameters in an escape's structure and their size in bytes; 0 = none. */
static uint32_t params_of(uint32_t number, const void *escape, size_t size, void **params)
{
	*params = NULL;
	if (number == HB_RM_NR_CONTROL && size == sizeof(struct hb_rm_control)) {
		const struct hb_rm_control *call = escape;
		*params = (void *)(uintptr_t)call->params;
		return call->params_size;
	}
	if (number == HB_RM_NR_ALLOC && size == sizeof(struct hb_rm_alloc_rights)) {
		const struct hb_rm_alloc_rights *call = escape;
		*params = (void *)(uintptr_t)call->params;
		return call->params_size;
	}
	if (number == HB_RM_NR_ALLOC && size == sizeof(struct hb_rm_alloc)) {
		const struct hb_rm_alloc *call = escape;
		*params = (void *)(uintptr_t)call->params;
		return call->params_size;
	}
	return 0;
}

static int carry_out(uint32_t number, void *escape, size_t size)
{
	void *params;
	uint32_t params_size = params_of(number, escape, size, &params);
	if (size > sizeof((struct sim_rm_call *)0)->escape || params_size > SIM_RM_PARAMS || (params_size && !params)) {
		errno = EINVAL;
		return -1;
	}
	struct sim_request *request = calloc(1, sizeof *request);
	struct sim_reply *reply = calloc(1, sizeof *reply);
	int result = request && reply ? 0 : -ENOMEM;
	if (result == 0) {
		request->kind = SIM_REQ_RM;
		request->rm.number = number;
		request->rm.size = (uint32_t)size;
		request->rm.params_size = params_size;
		memcpy(request->rm.escape, escape, size);
		if (params_size)
			memcpy(request->rm.params, params, params_size);
		result = sim_request(request, reply);
	}
	if (result == 0) {
		memcpy(escape, reply->rm.escape, size);
		if (params_size)
			memcpy(params, reply->rm.params, params_size);
	}
	free(request);
	free(reply);
	errno = result < 0 ? -result : errno;
	return result < 0 ? -1 : 0;
}

int hb_sim_ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *escape = va_arg(arguments, void *);
	va_end(arguments);
	uint32_t number = _IOC_NR(request);
	bool ours = fd >= 0 && fd == sim.rm_fd && _IOC_TYPE(request) == HB_RM_MAGIC;
	if (!ours || (number != HB_RM_NR_CONTROL && number != HB_RM_NR_ALLOC && number != HB_RM_NR_FREE))
		return (int)syscall(SYS_ioctl, fd, request, escape);
	if (number == HB_RM_NR_CONTROL) {
		struct hb_rm_control *call = escape;
		if (is_refused(call->command)) {
			call->status = SIM_NV_INSUFFICIENT_PERMISSIONS;
			return 0;
		}
	}
	return carry_out(number, escape, _IOC_SIZE(request));
}

static int escape_out(unsigned long request, void *escape)
{
	int result = ioctl(sim.rm_fd, request, escape);
	if (result < 0 && (errno == ENOTTY || errno == EINVAL || errno == EOPNOTSUPP))
		result = hb_sim_ioctl(sim.rm_fd, request, escape);
	return result < 0 ? -errno : 0;
}

static int allocate_object(uint32_t parent, uint32_t object, uint32_t class_id, void *params, uint32_t size)
{
	struct hb_rm_alloc_rights call = {.client = ROOT,
					  .parent = parent,
					  .object = object,
					  .class_id = class_id,
					  .params = (uint64_t)(uintptr_t)params,
					  .params_size = size};
	int result = escape_out(HB_RM_REQUEST(HB_RM_NR_ALLOC, call), &call);
	if (result == 0 && call.status != SIM_NV_OK)
		result = -EIO;
	return result;
}

static int call_control(uint32_t object, uint32_t command, void *params, uint32_t size)
{
	struct hb_rm_control call = {.client = ROOT,
				     .object = object,
				     .command = command,
				     .params = (uint64_t)(uintptr_t)params,
				     .params_size = size};
	int result = escape_out(HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call);
	return result < 0 ? result : call.status == SIM_NV_OK ? 0 : -EIO;
}

int sim_rm_open(void)
{
	sim.rm_fd = fcntl(sim.fd, F_DUPFD_CLOEXEC, 3);
	return sim.rm_fd < 0 ? -errno : allocate_object(0, ROOT, SIM_RM_CLASS_ROOT, NULL, 0);
}

static int open_device(int gpu)
{
	uint32_t instance[14] = {(uint32_t)gpu}; /* NV0080_ALLOC_PARAMETERS begins with the instance */
	uint32_t subdevice = 0;
	if (devices[gpu])
		return 0;
	uint32_t handle = next_object++;
	int result = allocate_object(ROOT, handle, HB_RM_CLASS_DEVICE, instance, sizeof instance);
	if (result == 0)
		result = allocate_object(handle, next_object++, HB_RM_CLASS_SUBDEVICE, &subdevice, sizeof subdevice);
	if (result == 0)
		devices[gpu] = handle;
	return result;
}

/* Makes the channel groups in the real library's order: one for compute, three for copies. */
int sim_rm_make_groups(CUcontext context)
{
	static const uint32_t engines[4] = {HB_RM_ENGINE_GRAPHICS_FIRST, HB_RM_ENGINE_COPY_FIRST,
					    HB_RM_ENGINE_COPY_FIRST + 1, HB_RM_ENGINE_COPY_FIRST + 2};
	int gpu = sim_gpu_of(context->device);
	int result = open_device(gpu);
	for (int i = 0; i < 4 && result == 0; i++) {
		struct hb_rm_group_params params = {.engine_type = engines[i]};
		uint8_t schedule[3] = {1, 0, 0};
		uint32_t group = next_object++, channel = next_object++, engine = next_object++;
		result = allocate_object(devices[gpu], group, HB_RM_CLASS_GROUP, &params, sizeof params);
		if (result < 0)
			break;
		context->rm_groups[i] = group;
		result = allocate_object(group, channel, SIM_RM_CLASS_CHANNEL, NULL, 0);
		if (result == 0)
			result = allocate_object(channel, engine, i ? SIM_RM_CLASS_COPY : SIM_RM_CLASS_COMPUTE, NULL,
						 0);
		if (result == 0)
			result = call_control(group, HB_RM_GROUP_SCHEDULE, schedule, sizeof schedule);
	}
	if (result < 0)
		sim_rm_free_groups(context);
	return result;
}

void sim_rm_free_groups(CUcontext context)
{
	int gpu = sim_gpu_of(context->device);
	for (int i = 0; i < 4; i++) {
		struct hb_rm_free call = {.client = ROOT, .parent = devices[gpu], .object = context->rm_groups[i]};
		if (!context->rm_groups[i])
			continue;
		escape_out(HB_RM_REQUEST(HB_RM_NR_FREE, call), &call);
		context->rm_groups[i] = 0;
	}
}
