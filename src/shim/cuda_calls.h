/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver functions for which the shim has hand-written hooks or calls, and which
 * nvidia/cuda_abi.h does not declare: old forms, and functions that the simulated
 * driver lacks. test_shim_abi compiles this file against cuda.h where a toolkit is
 * installed, so a wrong signature is an error there. Never call a function by these
 * names: that would call the shim itself. HB_REAL(name) of shim.h is the driver's.
 */
#ifndef HB_SHIM_CUDA_CALLS_H
#define HB_SHIM_CUDA_CALLS_H

#ifndef HB_ABI_REAL
#include "nvidia/cuda_abi.h"

typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUlinkState_st *CUlinkState;
typedef enum CUjitInputType_enum { CU_JIT_INPUT_CUBIN = 0, CU_JIT_INPUT_PTX = 1 } CUjitInputType;

typedef enum CUmemRangeHandleType_enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 } CUmemRangeHandleType;

/* Before CUDA 3.2 pointers and sizes had 32 bits. */
typedef unsigned int CUdeviceptr_v1;
typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st {
	unsigned int Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st {
	unsigned int Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels;
	unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

/* The shim reads only the parameters of nodes that allocate. */
typedef struct CUgraphNodeParams_st {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		long long reserved1[29];
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	};
	long long reserved2;
} CUgraphNodeParams;
#endif

CUresult cuLinkCreate_v2(unsigned int n_options, CUjit_option *options, void **values, CUlinkState *link);
CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t size, const char *name,
			  unsigned int n_options, CUjit_option *options, void **values);
CUresult cuLinkComplete(CUlinkState link, void **cubin, size_t *size);
CUresult cuLinkDestroy(CUlinkState link);
CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDetach(CUcontext context);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
				unsigned int levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n_dependencies,
			CUgraphNodeParams *params);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t n_dependencies, CUgraphNodeParams *params);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,
				       unsigned long long flags);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
			    CUmemGenericAllocationHandle handle, size_t offset, size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr address,
			     size_t bytes, unsigned long long flags);
CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags);
CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width_bytes, unsigned int height,
			 unsigned int element_bytes);
CUresult cuMemFree(CUdeviceptr_v1 pointer);
CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes);
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor);
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor);

#endif
