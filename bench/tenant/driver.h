/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver functions that the programs of this folder call, found by the
 * route that the command line names: as cuda-tenant-linked does by the linker,
 * or as programs, libraries and the CUDA runtime do while they run.
 */
#ifndef HB_BENCH_TENANT_DRIVER_H
#define HB_BENCH_TENANT_DRIVER_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>

/* X(name for cuGetProcAddress, exported symbol), and PX(...) where a per-thread form with this suffix exists. */
#define DRIVER_CALLS(X, PX) \
	X(cuInit, cuInit) \
	X(cuGetErrorName, cuGetErrorName) \
	X(cuGetExportTable, cuGetExportTable) \
	X(cuDeviceGet, cuDeviceGet) \
	X(cuDeviceGetCount, cuDeviceGetCount) \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2) \
	X(cuDeviceGetName, cuDeviceGetName) \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute) \
	X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange) \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority) \
	X(cuFuncSetAttribute, cuFuncSetAttribute) \
	X(cuMemHostAlloc, cuMemHostAlloc) \
	X(cuMemFreeHost, cuMemFreeHost) \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) \
	X(cuCtxSetCurrent, cuCtxSetCurrent) \
	X(cuCtxSynchronize, cuCtxSynchronize) \
	X(cuModuleLoadData, cuModuleLoadData) \
	X(cuModuleGetFunction, cuModuleGetFunction) \
	X(cuStreamCreate, cuStreamCreate) \
	X(cuStreamDestroy, cuStreamDestroy_v2) \
	X(cuEventCreate, cuEventCreate) \
	X(cuEventDestroy, cuEventDestroy_v2) \
	X(cuEventSynchronize, cuEventSynchronize) \
	X(cuEventElapsedTime, cuEventElapsedTime) \
	X(cuMemGetInfo, cuMemGetInfo_v2) \
	X(cuMemAlloc, cuMemAlloc_v2) \
	X(cuMemFree, cuMemFree_v2) \
	X(cuMemCreate, cuMemCreate) \
	X(cuMemRelease, cuMemRelease) \
	X(cuMemAddressReserve, cuMemAddressReserve) \
	X(cuMemAddressFree, cuMemAddressFree) \
	X(cuMemMap, cuMemMap) \
	X(cuMemUnmap, cuMemUnmap) \
	X(cuMemSetAccess, cuMemSetAccess) \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags) \
	X(cuGraphExecDestroy, cuGraphExecDestroy) \
	X(cuGraphDestroy, cuGraphDestroy) \
	PX(cuLaunchKernel, cuLaunchKernel, _ptsz) \
	PX(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, _ptsz) \
	PX(cuLaunchHostFunc, cuLaunchHostFunc, _ptsz) \
	PX(cuGraphLaunch, cuGraphLaunch, _ptsz) \
	PX(cuStreamSynchronize, cuStreamSynchronize, _ptsz) \
	PX(cuStreamWaitEvent, cuStreamWaitEvent, _ptsz) \
	PX(cuEventRecord, cuEventRecord, _ptsz) \
	PX(cuStreamBeginCapture, cuStreamBeginCapture_v2, _ptsz) \
	PX(cuStreamEndCapture, cuStreamEndCapture, _ptsz) \
	PX(cuMemAllocAsync, cuMemAllocAsync, _ptsz) \
	PX(cuMemFreeAsync, cuMemFreeAsync, _ptsz) \
	PX(cuMemsetD8Async, cuMemsetD8Async, _ptsz) \
	PX(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, _ptsz) \
	PX(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, _ptsz) \
	PX(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds)

struct driver {
#define X(base, symbol) __typeof__(&symbol) base;
#define PX(base, symbol, suffix) __typeof__(&symbol) base;
	DRIVER_CALLS(X, PX)
#undef X
#undef PX
};
extern struct driver cu;

/* Fills `cu`; ends the program when the route is unknown or a function is not found. */
void driver_open(const char *route);
/* A symbol of the driver's library; ends the program when it is not there. */
void *driver_find(const char *symbol);
/* Prints every route, one a line. */
void driver_list_routes(void);
/* Ends the program with the call and the error's name. */
_Noreturn void driver_failed(const char *call, CUresult result);

#define CU(call) \
	do { \
		CUresult result_ = cu.call; \
		if (result_ != CUDA_SUCCESS) \
			driver_failed(#call, result_); \
	} while (0)

#endif
