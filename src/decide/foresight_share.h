/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds may cost LP, divided by the processes of one tenant. Each has a
 * foresight and a bucket of its own (foresight.h) and knows of the others only a
 * number that grows while they see signs or hold. No clock, no allocation; used
 * by the shim.
 *
 * All that were active lately divide the rate. Whoever was away for longer than
 * the others remember it gets nothing for that time, which was theirs, and
 * nothing until they have seen it again. So together the buckets never fill
 * faster than one of them would alone, whoever comes and goes. (Of processes
 * that begin within one look each may begin with a full bucket.)
 *
 * Bad at: a process that comes back once in more than HB_FORESIGHT_AWAY_NS beside
 * one that is always there; it has next to no budget.
 */
#ifndef HB_CORE_FORESIGHT_SHARE_H
#define HB_CORE_FORESIGHT_SHARE_H

#include "decide/foresight.h"

#define HB_FORESIGHT_SHARERS 128
#define HB_FORESIGHT_SHARE_EVERY_NS INT64_C(1000000000)
#define HB_FORESIGHT_AWAY_NS INT64_C(10000000000) /* so long a process counts as active behind its last sign */

/* All-zero = has not looked yet. */
struct hb_foresight_share {
	int64_t again_ns;  /* not to be looked at before */
	int64_t looked_ns; /* last; 0 = never */
	uint64_t activity[HB_FORESIGHT_SHARERS];
	int64_t active_ns[HB_FORESIGHT_SHARERS]; /* when it was seen to have changed; 0 = never */
};

/* Whether it is time to look at the others; before each use of the foresight. */
bool hb_foresight_share_is_due(const struct hb_foresight_share *share, int64_t now_ns);
/* `activity` of the tenant's processes, at most HB_FORESIGHT_SHARERS, 0 for those that are gone; `self` is our place there. */
void hb_foresight_share_look(struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns,
			     const uint64_t *activity, uint32_t n, uint32_t self);

#endif
