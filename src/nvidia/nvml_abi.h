/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers and layouts of NVML that nvml.c and nvml_events.c need, so that it builds without
 * NVIDIA's header. Comments give the names in NVIDIA's public NVML reference.
 */
#ifndef HB_GPU_NVML_ABI_H
#define HB_GPU_NVML_ABI_H

#include <stdint.h>

#define HB_NVML_LIBRARY "libnvidia-ml.so.1"

/* nvmlReturn_t */
#define HB_NVML_SUCCESS 0
#define HB_NVML_NOT_SUPPORTED 3
#define HB_NVML_NO_PERMISSION 4
#define HB_NVML_NOT_FOUND 6
#define HB_NVML_INSUFFICIENT_SIZE 7
#define HB_NVML_DRIVER_NOT_LOADED 9
#define HB_NVML_TIMEOUT 10
#define HB_NVML_GPU_IS_LOST 15

/* nvmlEventTypeDoubleBitEccError, nvmlEventTypeXidCriticalError */
#define HB_NVML_EVENT_ECC 2ULL
#define HB_NVML_EVENT_XID 8ULL

#define HB_NVML_NOT_AVAILABLE UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE as an unsigned 64-bit number */

/* nvmlMemory_t */
struct hb_nvml_memory {
	uint64_t total, free, used;
};

/* nvmlEventData_t; its first version ends before the instances. */
struct hb_nvml_event {
	void *device;
	unsigned long long kind, data; /* data: the number of the Xid */
	unsigned gpu_instance, compute_instance;
};

/*
 * The beginning of nvmlProcessInfo_t, which is the same in every version. The entire
 * record has 16 bytes (first version), 24 (since CUDA 11: with the ids of MIG
 * instances) or 32 (drivers 535.43 to 535.86: with protected memory, under the same
 * function name), so nvml.c finds out the size of a record at run time.
 */
struct hb_nvml_process {
	uint32_t pid;
	uint32_t padding;
	uint64_t bytes;
};
#define HB_NVML_RECORD_MAX 32

/* nvmlProcessUtilizationSample_t */
struct hb_nvml_utilization {
	unsigned pid;
	unsigned long long time_us;            /* since 1970 */
	unsigned sm, memory, encoder, decoder; /* percent */
};

#endif
