// SPDX-License-Identifier: Apache-2.0
// The kernels of channel_study.c, which embeds channel_touch.ptx. After a change, make that file again:
//   nvcc -arch=compute_75 -ptx channel_touch.cu -o - | sed 's/^\.version .*/.version 7.0/; s/^\/\/.*//' > channel_touch.ptx
// All features are those of PTX 7.0, so that older drivers load it.
#include <stdint.h>

enum { READS, WRITES, ATOMICS, CHASES };

// Unit numbers follow each other in a random order, which a chase follows.
extern "C" __global__ void hb_link(char *memory, const uint32_t *units, uint64_t n)
{
	for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
		*(uint32_t *)(memory + (uint64_t)units[i] * 1024) = units[(i + 1) % n];
}

// Each warp touches every nth of `count` units of 1 KiB, from the unit at `first` on. A chase reads one word of each.
extern "C" __global__ void hb_touch(char *memory, const uint32_t *units, uint64_t n, uint64_t first, uint64_t count,
				    uint64_t kind, uint32_t *sink)
{
	uint64_t warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, warps = ((uint64_t)gridDim.x * blockDim.x) >> 5;
	uint32_t lane = threadIdx.x & 31, seen = 0;
	if (kind == CHASES) {
		uint32_t unit = units[(first + warp * (n / warps)) % n];
		for (uint64_t i = warp; lane == 0 && i < count; i += warps)
			unit = __ldcg((const uint32_t *)(memory + (uint64_t)unit * 1024));
		seen = unit;
	}
	for (uint64_t i = warp; kind != CHASES && i < count; i += warps) {
		uint4 *at = (uint4 *)(memory + (uint64_t)units[(first + i) % n] * 1024) + lane;
		if (kind == READS) {
			uint4 a = __ldcg(at), b = __ldcg(at + 32);
			seen += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
		} else if (kind == WRITES) {
			uint4 value = make_uint4(lane, lane, lane, lane);
			__stcg(at, value);
			__stcg(at + 32, value);
		} else {
			atomicAdd((uint32_t *)at, 1);
			atomicAdd((uint32_t *)(at + 32), 1);
		}
	}
	if (seen == 0x12345678)
		*sink = seen; // so that the compiler keeps the reads
}
