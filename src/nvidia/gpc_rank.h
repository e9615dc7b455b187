/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a mask of whole GPCs takes SMs from low priority. The same
 * code in the GPU model (SMs) and in the shim's masks (TPCs).
 *
 * High priority comes in clusters of up to eight blocks (cuBLAS), one an SM, and
 * those start only in a GPC that has room for them: eight free SMs. Plain blocks
 * go anywhere. So what is left out shall hold as many such rooms as its SMs can
 * make, and low priority shall lose no more of them than that:
 * - GPCs that rooms fill without a rest are left out first, the large ones first,
 *   each of them whole before the next one.
 * - SMs beyond whole rooms are small GPCs, which hold none, as far as they fit:
 *   lone TPCs are as good as any others for plain blocks, and no room is lost.
 * - One GPC with room stays to the last, after all small ones: a mask that leaves
 *   half of the GPU has room for clusters of eight.
 *
 * On an H200 (five GPCs of 16 SMs, two of 18, one of 8, four lone TPCs: 15
 * rooms) 32 SMs are two GPCs of 16, four rooms; 30 are a GPC of 16, half of the
 * next one and three lone TPCs: three rooms, and 12 stay.
 *
 * But for the SMs beyond whole rooms a larger mask leaves out all that a smaller
 * one does: a graph that keeps its own mask leaves free what it can of a larger
 * reserve. Other GPCs for each size (best fit) would make no more rooms there.
 */
#ifndef HB_GPU_GPC_RANK_H
#define HB_GPU_GPC_RANK_H

#include <stdbool.h>
#include <stdint.h>

/* Portable clusters have up to so many blocks. */
#define HB_GPC_ROOM_SMS 8
#define HB_GPC_RANK_GPCS 64

/* The larger rest waits; of the same rest (rooms without one) the larger GPC goes first, of small ones the smaller. */
static inline bool hb_gpc_goes_before(uint32_t a, uint32_t b, uint32_t room)
{
	return a % room != b % room ? a % room < b % room : a > b;
}

/* Which GPC is left out next, of the small ones or of those with room; the last of equal ones. HB_GPC_RANK_GPCS: none. */
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
 * rank[i] of n <= 256 things, group_of[i] < 64 their GPC, `room` of them hold a cluster of eight: a mask of k things has
 * those of rank below k, if `beyond` is (n - k) % room.
 */
static inline void hb_gpc_rank(const uint8_t *group_of, uint32_t n, uint32_t room, uint32_t beyond, uint8_t *rank)
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
