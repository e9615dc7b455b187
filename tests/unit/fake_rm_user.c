/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that talks to the resource manager through its own import of ioctl,
 * as libcuda does; test_nvidia_rm loads it. Built twice: with all relocations
 * done at load and read-only afterwards, and bound lazily.
 */
#include "nvidia/nvidia_rm_abi.h"

int fake_alloc(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params);
int fake_alloc_short(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params);
int fake_control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params, uint32_t size);
int fake_control_transferred(int fd, uint32_t client, uint32_t object, uint32_t command, void *params, uint32_t size);
int fake_free(int fd, uint32_t client, uint32_t parent, uint32_t object);
int fake_raw(int fd, unsigned long request, void *argument);

#define EXPORT __attribute__((visibility("default")))

EXPORT int fake_alloc(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params)
{
	struct hb_rm_alloc_rights call = {.client = client,
					  .parent = parent,
					  .object = object,
					  .class_id = class_id,
					  .params = (uint64_t)(uintptr_t)params};
	int result = ioctl(fd, HB_RM_REQUEST(HB_RM_NR_ALLOC, call), &call);
	return result < 0 ? result : (int)call.status;
}

EXPORT int fake_alloc_short(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params)
{
	struct hb_rm_alloc call = {.client = client,
				   .parent = parent,
				   .object = object,
				   .class_id = class_id,
				   .params = (uint64_t)(uintptr_t)params};
	int result = ioctl(fd, HB_RM_REQUEST(HB_RM_NR_ALLOC, call), &call);
	return result < 0 ? result : (int)call.status;
}

EXPORT int fake_control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params, uint32_t size)
{
	struct hb_rm_control call = {.client = client,
				     .object = object,
				     .command = command,
				     .params = (uint64_t)(uintptr_t)params,
				     .params_size = size};
	int result = ioctl(fd, HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call);
	return result < 0 ? result : (int)call.status;
}

EXPORT int fake_control_transferred(int fd, uint32_t client, uint32_t object, uint32_t command, void *params,
				    uint32_t size)
{
	struct hb_rm_control call = {.client = client,
				     .object = object,
				     .command = command,
				     .params = (uint64_t)(uintptr_t)params,
				     .params_size = size};
	struct hb_rm_transfer transfer = {
		.number = HB_RM_NR_CONTROL, .size = sizeof call, .pointer = (uint64_t)(uintptr_t)&call};
	int result = ioctl(fd, HB_RM_REQUEST(HB_RM_NR_TRANSFER, transfer), &transfer);
	return result < 0 ? result : (int)call.status;
}

EXPORT int fake_free(int fd, uint32_t client, uint32_t parent, uint32_t object)
{
	struct hb_rm_free call = {.client = client, .parent = parent, .object = object};
	int result = ioctl(fd, HB_RM_REQUEST(HB_RM_NR_FREE, call), &call);
	return result < 0 ? result : (int)call.status;
}

EXPORT int fake_raw(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument);
}
