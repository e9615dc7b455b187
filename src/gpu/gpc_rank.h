/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a mask that leaves out whole GPCs takes SMs in: GPC by
 * GPC, the one with most first, so that what is left out is whole GPCs, and the
 * smaller ones, as far as that goes. The same code in the GPU model (SMs) and in
 * the shim's masks (TPCs).
 */
#ifndef HB_GPU_GPC_RANK_H
#define HB_GPU_GPC_RANK_H

#include <stdint.h>

/* rank[i] of n <= 256 things, group_of[i] < 64 their GPC: a mask of k things has those of rank below k. */
static inline void hb_gpc_rank(const uint8_t *group_of, uint32_t n, uint8_t *rank)
{
	uint32_t size[64] = {0}, next = 0;
	for (uint32_t i = 0; i < n; i++)
		size[group_of[i] & 63]++;
	for (uint32_t want = n; want > 0; want--)
		for (uint32_t group = 0; group < 64; group++)
			for (uint32_t i = 0; size[group] == want && i < n; i++)
				if (group_of[i] == group)
					rank[i] = (uint8_t)next++;
}

#endif
