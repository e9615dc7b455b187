/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints every enumerator, structure size and field offset of the driver ABI,
 * once from our declarations and once (ABI_REAL) from the toolkit's cuda.h; the
 * test compares the two. With the toolkit it also checks every prototype of
 * cuda_api.def and every error and attribute row at compile time. abi_list.inc
 * is made from our header by abi_list.awk.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef ABI_REAL
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#else
#include "nvidia/cuda_abi.h"
#endif

#define HB_CUDA_ERROR(name, value, text) _Static_assert((name) == (value), #name);
#include "nvidia/cuda_errors.def"
#undef HB_CUDA_ERROR
#define HB_CUDA_ATTRIBUTE(name, number, value) _Static_assert(CU_DEVICE_ATTRIBUTE_##name == (number), #name);
#include "nvidia/cuda_attributes.def"
#undef HB_CUDA_ATTRIBUTE
#define HB_CU(base, symbol, since, streams, params, args) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) params), #symbol);
#include "nvidia/cuda_api.def"
#undef HB_CU

int main(void)
{
#define ABI_ENUM(name) printf("%s %lld\n", #name, (long long)(name));
#define ABI_SIZE(type) printf("sizeof %s %zu\n", #type, sizeof(type));
#define ABI_FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field));
#include "abi_list.inc"
	return 0;
}
