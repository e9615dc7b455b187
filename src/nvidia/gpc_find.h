/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds which bits of a TPC mask belong to the same GPC (graphics processing
 * cluster), from launches of block clusters. The blocks of a cluster are placed in
 * one GPC, so SMs on which a cluster was seen together belong to one GPC.
 * hb_gpc_join() builds groups of SMs from such sightings. "GPC" means such a group
 * here, whatever the chip's plan says.
 *
 * Under a mask %smid counts only the remaining SMs, so an SM cannot be recognised
 * from one mask to the next. What can be compared is the sizes of the groups:
 * without bit a, a group of 16 SMs has 14; without a and b, either it has 12, or two
 * groups have 14. hb_gpc_find() asks for sizes only.
 *
 * A group may be as small as one TPC: an H200 has TPCs on which only clusters of two
 * blocks are placed. Such a group disappears with its bit. In each step the search
 * compares what it sees with a few expected lists of sizes that differ from each
 * other, so a result matches one of them or none.
 *
 * A result that matches none ends the search. The final result must be proven for
 * each group: without the group's bits the group is gone and all others are as
 * before; with only these bits exactly this group is there; and without the same
 * number of bits taken from all groups in turn, but never a group's last bit, all
 * groups are still there.
 *
 * Pure: no driver, no clock, no memory. Compiled into `hb` (gpc_trial.c) and tests.
 */
#ifndef HB_GPU_GPC_FIND_H
#define HB_GPU_GPC_FIND_H

#include "nvidia/gpc_states.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_GPC_BITS 128
#define HB_GPC_WORDS (HB_GPC_BITS / 32)
#define HB_GPC_SMS_MAX 256
#define HB_GPC_MOST 32
#define HB_GPC_SMS_PER_BIT 2

/* ---- sightings ---- */

/* Initialise with zeros. `above` leads to the group's first SM (that SM's own number + 1); 0 = the SM was never seen. */
struct hb_gpc_sights {
	uint16_t above[HB_GPC_SMS_MAX];
};

/*
 * Adds one launch: where[i] is the SM of block i, in clusters of `cluster` blocks. Returns 0, or -EINVAL for an impossible
 * SM; the sightings are then unusable.
 */
int hb_gpc_join(struct hb_gpc_sights *sights, const uint32_t *where, uint32_t n_blocks, uint32_t cluster);

/* The number of groups of each size: with[n] groups have n SMs. */
struct hb_gpc_sizes {
	uint16_t n_groups, n_sms;
	uint8_t with[HB_GPC_SMS_MAX + 1];
};

void hb_gpc_sizes_of(const struct hb_gpc_sights *sights, struct hb_gpc_sizes *sizes);

bool hb_gpc_same_sizes(const struct hb_gpc_sizes *a, const struct hb_gpc_sizes *b);

/* ---- the search ---- */

/*
 * Shows the sizes of the groups of SMs that remain without the bits in `removed`; n_sms SMs are expected. It must use plain
 * launches and clusters of two blocks, or single TPCs are not recognised. It may use larger clusters only if there is room
 * for them: a cluster that fits nowhere never starts. Returns 0, or a negative enum hb_gpc_state with which the search ends.
 */
typedef int hb_gpc_show(void *user, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms, struct hb_gpc_sizes *sizes);

struct hb_gpc_layout {
	uint8_t n_groups;
	uint8_t sms[HB_GPC_MOST];      /* SMs of each group */
	uint8_t group_of[HB_GPC_BITS]; /* counted from 1; 0 = the bit is no TPC */
};

/* Shows people why a search failed: what it saw of the entire GPU, and what it saw last. All zeros: nothing yet. */
struct hb_gpc_seen {
	struct hb_gpc_sizes whole, last;
	uint32_t removed[HB_GPC_WORDS]; /* bits removed in the last look */
};

/*
 * Searches the groups of `bits`, which stand for a TPC of two SMs each; calls `show` about four times per bit. Returns KNOWN
 * and fills *layout, or another state; fills *seen always. Groups are numbered by size, the largest first, then by their
 * first bit. At least two must have room for a cluster of HB_GPC_ROOM_SMS (gpc_mask_order.h), so that one can be excluded.
 */
enum hb_gpc_state hb_gpc_find(const uint8_t *bits, uint32_t n_bits, hb_gpc_show *show, void *user,
			      struct hb_gpc_layout *layout, struct hb_gpc_seen *seen);

#endif
