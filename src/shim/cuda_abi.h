/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver's ABI that the shim touches: only the types of
 * calls that are hooked by hand, so that building needs no CUDA toolkit. Sizes,
 * offsets and values are facts of the ABI; test_abi compares every one of them
 * with cuda.h where a toolkit is installed. Names are CUDA's own, so that
 * cuda_calls.h can be compiled against either header.
 */
#ifndef HB_SHIM_CUDA_ABI_H
#define HB_SHIM_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef uint64_t cuuint64_t;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;

typedef enum CUdriverProcAddressQueryResult_enum {
	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;

#endif
