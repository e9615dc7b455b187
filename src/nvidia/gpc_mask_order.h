/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a mask of entire GPCs takes SMs from LP. The same code runs in
 * the GPU model (SMs) and in the shim's masks (TPCs).
 *
 * HP launches clusters of up to eight blocks (cuBLAS), one block per SM. A cluster
 * starts only in a GPC with room for it, that is eight free SMs; plain blocks go
 * anywhere. So the excluded SMs should contain as many such rooms as possible, and
 * LP should lose no more rooms than that:
 * - GPCs whose size is a multiple of a room are excluded first, large ones before
 *   small ones, each completely before the next.
 * - SMs beyond complete rooms are taken from GPCs without a room, as far as they
 *   fit: their TPCs are as good as others for plain blocks, and no room is lost.
 * - One GPC with room stays until the last, after all small GPCs: a mask that leaves
 *   half of the GPU has room for clusters of eight.
 *
 * Example: an H200 has five GPCs of 16 SMs, two of 18, one of 8, and four single
 * TPCs, which makes 15 rooms. 32 SMs are two GPCs of 16, four rooms. 30 SMs are a
 * GPC of 16, half of the next one, and three single TPCs: three rooms, and 12 stay.
 *
 * Except for the SMs beyond complete rooms, a larger mask excludes all SMs that a
 * smaller one excludes. So a graph that keeps its own mask leaves as much as it can
 * of a larger reserve free. Choosing other GPCs for each size (best fit) would not
 * create more rooms on that GPU.
 */
#ifndef HB_GPU_GPC_RANK_H
#define HB_GPU_GPC_RANK_H

#include <stdbool.h>
#include <stdint.h>

/* Portable clusters have up to 8 blocks. */
#define HB_GPC_ROOM_SMS 8
#define HB_GPC_RANK_GPCS 64

/* Whether a GPC of `a` SMs is excluded before one of `b`: the smaller rest first; of equal rests the larger GPC. */
static inline bool hb_gpc_goes_before(uint32_t a, uint32_t b, uint32_t room)
{
	return a % room != b % room ? a % room < b % room : a > b;
}

/* Returns the GPC to exclude next, of the small ones or of those with room; the last of equals. HB_GPC_RANK_GPCS: none. */
static inline uint32_t hb_gpc_next(const uint32_t *size, uint32_t room, bool small, uint32_t most)
{
	uint32_t next = HB_GPC_RANK_GPCS;
	for (uint32_t gpc = 0; gpc < HB_GPC_RANK_GPCS; gpc++) {
		if (!size[gpc] || (size[gpc] < room) != small || size[gpc] > most)
			continue;
		if (next == HB_GPC_RANK_GPCS || !hb_gpc_goes_before(size[next], size[gpc], room))
			next = gpc;
	}
	return next;
}

/*
 * Computes rank[i] of n <= 256 units (SMs or TPCs); group_of[i] < 64 is the GPC of unit i, and `room` units hold a cluster
 * of eight blocks. A mask of k units contains those of rank below k, if `beyond` is (n - k) % room.
 */
static inline void hb_gpc_mask_order(const uint8_t *group_of, uint32_t n, uint32_t room, uint32_t beyond, uint8_t *rank)
{
	uint32_t size[HB_GPC_RANK_GPCS] = {0}, with_room = 0;
	for (uint32_t i = 0; i < n; i++)
		size[group_of[i] % HB_GPC_RANK_GPCS]++;
	for (uint32_t gpc = 0; gpc < HB_GPC_RANK_GPCS; gpc++)
		with_room += size[gpc] >= room;
	for (uint32_t left = n; left > 0;) {
		uint32_t gpc = hb_gpc_next(size, room, true, beyond);
		beyond -= gpc < HB_GPC_RANK_GPCS ? size[gpc] : 0;
		if (gpc == HB_GPC_RANK_GPCS && with_room <= 1)
			gpc = hb_gpc_next(size, room, true, n);
		if (gpc == HB_GPC_RANK_GPCS)
			gpc = hb_gpc_next(size, room, false, n);
		with_room -= size[gpc] >= room;
		size[gpc] = 0;
		for (uint32_t i = n; i-- > 0;)
			if (group_of[i] % HB_GPC_RANK_GPCS == gpc)
				rank[i] = (uint8_t)--left;
	}
}

#endif
