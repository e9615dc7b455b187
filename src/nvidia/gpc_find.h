/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bits of a TPC mask are of one GPC (graphics processing cluster), found
 * from what launches of block clusters show. A cluster's blocks are placed in
 * one GPC, so SMs that a cluster was ever seen on together are of one GPC:
 * hb_gpc_join() makes groups of SMs of such sightings, and they are what is
 * meant by a GPC here, whatever the chip's plan says.
 *
 * Under a mask %smid counts only the SMs that are left, so an SM cannot be
 * recognised from one mask to the next. What can be compared is the sizes of
 * the groups: without bit a a group of 16 has 14; without a and b either it has
 * 12, or two groups have 14. hb_gpc_find() asks for sizes only.
 *
 * A group may be as small as one TPC: an H200 has TPCs on which only clusters
 * of two blocks are ever placed. They are groups like all others here, gone
 * when their bit is, and no two bits can be of the same one. What the search
 * compares a look with are sizes that differ from each other whatever the
 * groups: so a look fits one of them, or none.
 *
 * Whatever does not fit exactly ends the search, and what was found has to be
 * proven: without a group's bits all other groups are as before and that one is
 * gone; with these bits only, exactly that one is there; and as many bits taken
 * from all groups in turn, but never the last one, leave all groups there.
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

/* Begin with all zeros. `above` leads to the group's first SM (its own number plus one; 0 = never seen). */
struct hb_gpc_sights {
	uint16_t above[HB_GPC_SMS_MAX];
};

/*
 * One launch: where[i] is the SM of block i, blocks in clusters of `cluster`. 0, or -EINVAL for an SM that cannot be,
 * and then the sights are worth nothing.
 */
int hb_gpc_join(struct hb_gpc_sights *sights, const uint32_t *where, uint32_t n_blocks, uint32_t cluster);

/* How many groups have so many SMs. */
struct hb_gpc_sizes {
	uint16_t n_groups, n_sms;
	uint8_t with[HB_GPC_SMS_MAX + 1];
};

void hb_gpc_sizes_of(const struct hb_gpc_sights *sights, struct hb_gpc_sizes *sizes);

bool hb_gpc_same_sizes(const struct hb_gpc_sizes *a, const struct hb_gpc_sizes *b);

/* ---- the search ---- */

/*
 * Shows the groups of the SMs that are left when the bits in `removed` are taken away; so many SMs are expected. Plain
 * launches have to be among what it shows, and clusters of two, else lone TPCs are not seen as what they are; larger ones
 * only where there is room for them, which is not said here: one that fits nowhere never starts. 0, or a negative enum
 * hb_gpc_state, which ends the search with that.
 */
typedef int hb_gpc_show(void *user, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms, struct hb_gpc_sizes *sizes);

struct hb_gpc_layout {
	uint8_t n_groups;
	uint8_t sms[HB_GPC_MOST];      /* of each group */
	uint8_t group_of[HB_GPC_BITS]; /* counted from 1; 0 = the bit is no TPC */
};

/* For people who want to know why a search failed: what it saw of the whole GPU, and last. All zeros: nothing yet. */
struct hb_gpc_seen {
	struct hb_gpc_sizes whole, last;
	uint32_t removed[HB_GPC_WORDS]; /* in the last look */
};

/*
 * `bits` are those that stand for a TPC, two SMs each. Some four looks a bit. KNOWN fills *layout; else it is unchanged;
 * *seen always. Groups are numbered by their size, the largest first, then by their first bit. At least two of them must
 * have room for a cluster of HB_GPC_ROOM_SMS (gpc_rank.h), so that one can be left out.
 */
enum hb_gpc_state hb_gpc_find(const uint8_t *bits, uint32_t n_bits, hb_gpc_show *show, void *user,
			      struct hb_gpc_layout *layout, struct hb_gpc_seen *seen);

#endif
