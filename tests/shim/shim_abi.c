/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled with the toolkit's cuda.h if there is one: a signature in cuda_calls.h that
 * differs is a compiler error. Also checks the one layout that forward.c reads by
 * offset.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define HB_ABI_REAL
#include "shim/cuda_calls.h"

#include <stddef.h>

_Static_assert(offsetof(CUDA_MEMCPY3D_PEER, WidthInBytes) == 176, "struct peer_box of forward.c");
_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == 176 + 3 * sizeof(size_t), "struct peer_box of forward.c");
_Static_assert(offsetof(CUgraphNodeParams, alloc) == 16, "CUgraphNodeParams of cuda_calls.h");
_Static_assert(sizeof(CUgraphNodeParams) == 16 + 29 * 8 + 8, "CUgraphNodeParams of cuda_calls.h");
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v1), "one layout for both");
_Static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v2, bytesize) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v1, bytesize),
	       "one layout for both");

int main(void)
{
	return 0;
}
