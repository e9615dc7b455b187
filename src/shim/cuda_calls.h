/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver functions that the shim hooks by hand and gpu/cuda_abi.h does not
 * declare: old forms, and forms that the simulated driver does without.
 * Compiled against cuda.h by test_shim_abi where a toolkit is installed, so a
 * wrong signature is an error there. Never called by these names: that would
 * be a call to ourselves; HB_REAL(name) of shim.h is the driver's function.
 */
#ifndef HB_SHIM_CUDA_CALLS_H
#define HB_SHIM_CUDA_CALLS_H

#ifndef HB_ABI_REAL
#include "gpu/cuda_abi.h"

typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUgreenCtx_st *CUgreenCtx;
#endif

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
				unsigned int levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle);

#endif
