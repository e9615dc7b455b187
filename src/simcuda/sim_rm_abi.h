/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource-manager numbers that only the simulated driver needs, beside those
 * of nvidia/nvidia_rm_abi.h: from NVIDIA's open kernel modules, tag 580.95.05
 * (class/, ctrl/ctrla06c/, nvstatuscodes.h under src/common/sdk/nvidia/inc).
 */
#ifndef HB_SIMCUDA_SIM_RM_ABI_H
#define HB_SIMCUDA_SIM_RM_ABI_H

#include <stdint.h>
#include <string.h>

#define SIM_RM_CLASS_ROOT 0x0041u
#define SIM_RM_CLASS_CHANNEL 0xC86Fu
#define SIM_RM_CLASS_COMPUTE 0xCBC0u
#define SIM_RM_CLASS_COPY 0xC8B5u

#define SIM_RM_GROUP_BIND 0xA06C0102u
#define SIM_RM_GROUP_INFO 0xA06C0106u
#define SIM_RM_GROUP_SET_INTERLEAVE 0xA06C0107u
#define SIM_RM_GROUP_REALTIME 0xA06C0110u
#define SIM_RM_SLICE_MAX_US 100000000u

#define SIM_NV_OK 0x00u
#define SIM_NV_INSERT_DUPLICATE_NAME 0x19u
#define SIM_NV_INSUFFICIENT_PERMISSIONS 0x1Bu
#define SIM_NV_INVALID_ARGUMENT 0x1Fu
#define SIM_NV_INVALID_CLIENT 0x23u
#define SIM_NV_INVALID_OBJECT_HANDLE 0x33u
#define SIM_NV_INVALID_OBJECT_PARENT 0x36u
#define SIM_NV_INVALID_PARAM_STRUCT 0x3Au
#define SIM_NV_NO_MEMORY 0x51u
#define SIM_NV_NOT_SUPPORTED 0x56u

/* The identity of simulated GPU `index`: the same from cuDeviceGetUuid and from the resource manager. */
static inline void sim_gpu_uuid(uint32_t index, unsigned char *uuid)
{
	static const unsigned char base[16] = "HBSIMGPU\x40\x00\x80\x00\x00\x00\x00";
	memcpy(uuid, base, 16);
	uuid[14] = (unsigned char)(index >> 8);
	uuid[15] = (unsigned char)index;
}

#endif
