/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, fork, versions, error names, devices. */
#include "simcuda/sim_driver.h"

#include "base/clock.h"
#include "base/uuid.h"
#include "simcuda/sim_rm_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_process sim = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.submit = PTHREAD_MUTEX_INITIALIZER,
	.drain = PTHREAD_MUTEX_INITIALIZER,
	.request = PTHREAD_MUTEX_INITIALIZER,
	.fd = -1,
	.rm_fd = -1,
	.doorbell = -1,
};

/* As with the real driver, a child forked after cuInit has no CUDA until it calls exec. */
static void after_fork_in_child(void)
{
	if (atomic_load(&sim.state) == SIM_READY) {
		atomic_store(&sim.state, SIM_FORKED);
		sim_link_forget();
	}
}

/*
 * Reads one entry: a number, or the beginning of a UUID that no other GPU has. Returns the GPU; -1 = there is none. *end =
 * after the entry.
 */
static int read_visible_gpu(const char *text, const char **end)
{
	char uuid_text[HB_UUID_TEXT_SIZE], *number_end;
	unsigned char uuid[16];
	size_t length = strcspn(text, ",");
	int found = -1;
	long number = strtol(text, &number_end, 10);
	*end = number_end;
	if (number_end != text)
		return number >= 0 && number < (long)sim.info.gpus ? (int)number : -1;
	*end = text + length;
	for (uint32_t i = 0; length > strlen("GPU-") && i < sim.info.gpus; i++) {
		sim_gpu_uuid(i, uuid);
		if (strncmp(hb_uuid_format(uuid, uuid_text), text, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/* Reads "1,0" or "GPU-...,GPU-...": GPUs in the given order, up to the first that does not exist. */
static void read_visible(void)
{
	const char *text = getenv("CUDA_VISIBLE_DEVICES"), *end;
	sim.n_visible = 0;
	if (!text) {
		for (uint32_t i = 0; i < sim.info.gpus; i++)
			sim.visible[sim.n_visible++] = (int)i;
		return;
	}
	while (*text && sim.n_visible < (int)SIM_GPUS) {
		int gpu = read_visible_gpu(text, &end);
		if (gpu < 0)
			return;
		sim.visible[sim.n_visible++] = gpu;
		text = *end == ',' ? end + 1 : end;
	}
}

static CUresult start_driver(void)
{
	static bool fork_handled;
	const char *version = getenv("HB_SIM_DRIVER_VERSION");
	sim.driver_version = version && atoi(version) > 0 ? atoi(version) : CUDA_VERSION;
	if (!fork_handled && pthread_atfork(NULL, NULL, after_fork_in_child) == 0)
		fork_handled = true;
	if (sim_link_open() < 0)
		return CUDA_ERROR_NO_DEVICE;
	read_visible();
	if (sim_rm_open() < 0 || sim_queue_init() < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return sim.n_visible ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult sim_cuInit(unsigned int Flags)
{
	CUresult result = CUDA_SUCCESS;
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (atomic_load(&sim.state) == SIM_FORKED) {
		result = CUDA_ERROR_NOT_INITIALIZED;
	} else if (atomic_load(&sim.state) == SIM_NEW) {
		result = start_driver();
		if (result == CUDA_SUCCESS)
			atomic_store(&sim.state, SIM_READY);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_ready(void)
{
	return SIM_LIKELY(atomic_load_explicit(&sim.state, memory_order_acquire) == SIM_READY)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sim_cuDriverGetVersion(int *driverVersion)
{
	const char *version = getenv("HB_SIM_DRIVER_VERSION");
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = version && atoi(version) > 0 ? atoi(version) : CUDA_VERSION;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define HB_CUDA_ERROR(name, value, text) {name, #name, text},
#include "nvidia/cuda_errors.def"
#undef HB_CUDA_ERROR
};

static CUresult error_text(CUresult error, bool name, const char **text)
{
	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == error) {
			*text = name ? errors[i].name : errors[i].text;
			return CUDA_SUCCESS;
		}
	*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGetErrorName(CUresult error, const char **pStr)
{
	return error_text(error, true, pStr);
}

CUresult sim_cuGetErrorString(CUresult error, const char **pStr)
{
	return error_text(error, false, pStr);
}

CUresult sim_cuProfilerStart(void)
{
	return sim_ready();
}

CUresult sim_cuProfilerStop(void)
{
	return sim_ready();
}

/* --- the private table ------------------------------------------------------------ */

static CUresult context_token(CUcontext context, uint64_t *token)
{
	struct sim_request request = {.kind = SIM_REQ_CONTEXT_TOKEN};
	struct sim_reply reply;
	CUresult result = sim_check_context(context);
	if (result != CUDA_SUCCESS)
		return result;
	request.context = context->index;
	if (sim_request(&request, &reply) < 0)
		return CUDA_ERROR_UNKNOWN;
	*token = reply.token;
	return CUDA_SUCCESS;
}

static CUresult terminate_client(CUcontext context, int pid)
{
	struct sim_request request = {.kind = SIM_REQ_TERMINATE, .bytes = pid};
	struct sim_reply reply;
	CUresult result = sim_check_context(context);
	if (result != CUDA_SUCCESS)
		return result;
	request.context = context->index;
	return sim_request(&request, &reply) < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult read_stats(int gpu, struct hb_sim_stats *out)
{
	struct sim_request request = {.kind = SIM_REQ_STATS, .gpu = (uint32_t)gpu};
	struct sim_reply reply;
	if (sim_ready() != CUDA_SUCCESS || sim_request(&request, &reply) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct hb_sim_stats){
		reply.memory_total, reply.memory_free, reply.memory_own, reply.switches,
		reply.busy_ns,      reply.submitted,   reply.finished,   atomic_load(&sim.unsupported)};
	return CUDA_SUCCESS;
}

static int64_t now_ns(void)
{
	return (int64_t)((double)(hb_clock_now_ns() - sim.info.origin_ns) / sim.info.scale);
}

CUresult sim_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	static const struct hb_sim_table table = {sizeof table, context_token,    read_stats,
						  now_ns,       terminate_client, sim_set_faults};
	const CUuuid id = HB_SIM_TABLE_ID;
	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	*ppExportTable = NULL;
	*ppExportTable = sim_mask_table(pExportTableId);
	if (*ppExportTable)
		return CUDA_SUCCESS;
	if (memcmp(pExportTableId, &id, sizeof id) != 0)
		return sim_unsupported("cuGetExportTable");
	*ppExportTable = &table;
	return CUDA_SUCCESS;
}

/* --- devices ---------------------------------------------------------------------- */

bool sim_device_valid(CUdevice device)
{
	return device >= 0 && device < sim.n_visible;
}

int sim_gpu_of(CUdevice device)
{
	return sim.visible[device];
}

CUdevice sim_device_of(int gpu)
{
	for (int i = 0; i < sim.n_visible; i++)
		if (sim.visible[i] == gpu)
			return i;
	return -1;
}

/* Checks at the beginning of every device call. */
static CUresult check_device(const void *out, CUdevice device)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult result = check_device(device, ordinal);
	if (result == CUDA_SUCCESS)
		*device = ordinal;
	return result;
}

CUresult sim_cuDeviceGetCount(int *count)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = sim.n_visible;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult result = check_device(name, dev);
	if (result != CUDA_SUCCESS)
		return result;
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "Hummingbird simulated H200");
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	CUresult result = check_device(uuid, dev);
	if (result == CUDA_SUCCESS)
		sim_gpu_uuid((uint32_t)sim_gpu_of(dev), (unsigned char *)uuid->bytes);
	return result;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return sim_cuDeviceGetUuid(uuid, dev);
}

CUresult sim_cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
	return sim_unsupported("cuDeviceGetLuid"); /* Windows only, as in the real driver */
}

CUresult sim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult result = check_device(bytes, dev);
	if (result == CUDA_SUCCESS)
		*bytes = sim.info.memory_total;
	return result;
}

static int attribute_value(CUdevice_attribute attribute, int value, CUdevice device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return (int)sim.info.spec.sm_count;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return (int)sim.info.spec.sm_threads;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
		return (int)sim.info.spec.sm_blocks;
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
		return (int)sim.info.spec.sm_registers;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return (int)sim.info.spec.sm_shared_bytes;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return 1 + sim_gpu_of(device);
	default:
		return value;
	}
}

CUresult sim_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	static const struct {
		int number, value;
	} values[] = {
#define HB_CUDA_ATTRIBUTE(name, number, value) {number, value},
#include "nvidia/cuda_attributes.def"
#undef HB_CUDA_ATTRIBUTE
	};
	CUresult result = check_device(pi, dev);
	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (values[i].number == (int)attrib && attrib < CU_DEVICE_ATTRIBUTE_MAX) {
			*pi = attribute_value(attrib, values[i].value, dev);
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	CUresult result = check_device(major, dev);
	if (result != CUDA_SUCCESS || !minor)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	CUresult result = check_device(pciBusId, dev);
	if (result != CUDA_SUCCESS)
		return result;
	if (len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", 1 + (unsigned)sim_gpu_of(dev));
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned bus;
	CUresult result = check_device(dev, 0);
	if (result != CUDA_SUCCESS)
		return result;
	if (!pciBusId || sscanf(pciBusId, "%*x:%x:", &bus) != 1)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < sim.n_visible; i++)
		if (sim.visible[i] + 1 == (int)bus) {
			*dev = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

/* All memory is host memory, so every GPU reaches every other's. */
CUresult sim_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	CUresult result = check_device(canAccessPeer, dev);
	if (result == CUDA_SUCCESS && !sim_device_valid(peerDev))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		*canAccessPeer = dev != peerDev;
	return result;
}

CUresult sim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
	CUresult result = check_device(value, srcDevice);
	if (result == CUDA_SUCCESS && (!sim_device_valid(dstDevice) || srcDevice == dstDevice))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		*value = attrib != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
	return result;
}

CUresult sim_cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
	CUresult result = check_device(pi, dev);
	if (result == CUDA_SUCCESS)
		*pi = type == CU_EXEC_AFFINITY_TYPE_SM_COUNT;
	return result;
}
