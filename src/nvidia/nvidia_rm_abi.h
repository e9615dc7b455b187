/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers and structs of the NVIDIA resource manager's ioctl interface that
 * Hummingbird uses, each with its source. [580] = NVIDIA's open kernel modules, tag
 * 580.95.05; [595] = tag 595.45.04, where the channel-group table is identical;
 * [H200] = seen to work on driver 580.159. Included by nvidia_rm*.c and its tests
 * only.
 */
#ifndef HB_GPU_NVIDIA_RM_ABI_H
#define HB_GPU_NVIDIA_RM_ABI_H

#include <assert.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* Request numbers: kernel-open/common/inc/nv-ioctl-numbers.h and arch/nvalloc/unix/include/nv_escape.h [580]. */
#define HB_RM_MAGIC 'F'
#define HB_RM_NR_FREE 0x29
#define HB_RM_NR_CONTROL 0x2A
#define HB_RM_NR_ALLOC 0x2B
#define HB_RM_NR_TRANSFER 211 /* contains a pointer to one of the calls above */

/* Classes: src/common/sdk/nvidia/inc/class/cl*.h [580]. */
#define HB_RM_CLASS_DEVICE 0x0080
#define HB_RM_CLASS_SUBDEVICE 0x2080
#define HB_RM_CLASS_GROUP 0xA06C

/* Channel-group controls: inc/ctrl/ctrla06c/ctrla06cgpfifo.h [580], [595], [H200]. */
#define HB_RM_GROUP_SCHEDULE 0xA06C0101u
#define HB_RM_GROUP_SET_TIMESLICE 0xA06C0103u /* one u64 of microseconds */
#define HB_RM_GROUP_GET_TIMESLICE 0xA06C0104u /* the value requested last */

/* GPU identity: inc/ctrl/ctrl2080/ctrl2080gpu.h [580]. */
#define HB_RM_SUBDEVICE_GET_GID 0x2080014Au
#define HB_RM_GID_BINARY 0x2u
#define HB_RM_GID_MAX 256

/* Engine types: inc/class/cl2080_notification.h [580]: GR0..GR7, COPY0..COPY9, then COPY10..COPY19. */
#define HB_RM_ENGINE_GRAPHICS_FIRST 0x01
#define HB_RM_ENGINE_GRAPHICS_LAST 0x08
#define HB_RM_ENGINE_COPY_FIRST 0x09
#define HB_RM_ENGINE_COPY_LAST 0x12

/* NVOS54_PARAMETERS, inc/nvos.h [580]. */
struct hb_rm_control {
	uint32_t client, object, command, flags;
	uint64_t params;
	uint32_t params_size, status;
};
static_assert(sizeof(struct hb_rm_control) == 32, "NVOS54");

/* NVOS21_PARAMETERS, the short form. */
struct hb_rm_alloc {
	uint32_t client, parent, object, class_id;
	uint64_t params;
	uint32_t params_size, status;
};
static_assert(sizeof(struct hb_rm_alloc) == 32, "NVOS21");

/* NVOS64_PARAMETERS, the long form that libcuda uses [H200]. */
struct hb_rm_alloc_rights {
	uint32_t client, parent, object, class_id;
	uint64_t params, rights;
	uint32_t params_size, flags, status, padding;
};
static_assert(sizeof(struct hb_rm_alloc_rights) == 48, "NVOS64");

/* NVOS00_PARAMETERS. */
struct hb_rm_free {
	uint32_t client, parent, object, status;
};
static_assert(sizeof(struct hb_rm_free) == 16, "NVOS00");

/* nv_ioctl_xfer_t, kernel-open/common/inc/nv-ioctl.h [580]. */
struct hb_rm_transfer {
	uint32_t number, size;
	uint64_t pointer;
};
static_assert(sizeof(struct hb_rm_transfer) == 16, "nv_ioctl_xfer_t");

/* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, inc/alloc/alloc_channel.h [580]. */
struct hb_rm_group_params {
	uint32_t error_object, ecc_error_object, address_space, engine_type;
	uint8_t plugin, padding[3];
};
static_assert(sizeof(struct hb_rm_group_params) == 20, "group parameters");

/* NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, inc/ctrl/ctrl2080/ctrl2080gpu.h [580]. */
struct hb_rm_gid_params {
	uint32_t index, flags, length;
	uint8_t data[HB_RM_GID_MAX];
};
static_assert(sizeof(struct hb_rm_gid_params) == 268, "GID parameters");

#define HB_RM_REQUEST(number, type) _IOC(_IOC_READ | _IOC_WRITE, HB_RM_MAGIC, number, sizeof(type))

#endif
