/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the budget for takeovers between the HP tenants that work on a GPU, and a
 * tenant's part between its processes. Each process has its own foresight and token bucket
 * (foresight.h). It knows how many HP tenants work, and of the other processes of its tenant
 * only a counter that grows while they see signs or take the GPU over. No clock, no
 * allocation; used in the shim through process_foresight.h.
 *
 * All processes that were active lately divide the rate. A process that was away for
 * longer than the others remember it gets nothing for that time, which was theirs, and
 * nothing until they have noticed it again. So together the buckets never fill faster
 * than one alone. (Processes that start within one interval may each start with a full
 * bucket.)
 *
 * Not counted: tenants that see signs but do not launch, and tenants that all begin to work within
 * the same 0.2 s. Each of them has the whole budget until the daemon counts the others.
 *
 * Bad at: a process that is active once in more than HB_FORESIGHT_AWAY_NS beside one that
 * is always active; it has almost no budget.
 */
#ifndef HB_DECIDE_FORESIGHT_SHARE_H
#define HB_DECIDE_FORESIGHT_SHARE_H

#include "decide/foresight.h"

#define HB_FORESIGHT_SHARERS 128
#define HB_FORESIGHT_SHARE_EVERY_NS INT64_C(1000000000)
#define HB_FORESIGHT_AWAY_NS INT64_C(10000000000) /* a process counts as active for this long after its last sign */

/* Zeros = the others were not read yet. */
struct hb_foresight_share {
	int64_t again_ns;         /* when the others have to be read again */
	int64_t looked_ns;        /* when they were read last; 0 = never */
	uint32_t other_processes; /* active processes of the tenant besides this one */
	uint32_t other_tenants;   /* HP tenants that work besides this one */
	bool unnoticed;           /* the other processes may not have noticed this one yet */
	uint64_t activity[HB_FORESIGHT_SHARERS];
	int64_t active_ns[HB_FORESIGHT_SHARERS]; /* when a change was noticed; 0 = never */
};

/* Whether the others have to be read now; checked before each use of the foresight. */
bool hb_foresight_share_is_due(const struct hb_foresight_share *share, int64_t now_ns);
/* `activity`: one counter for each process of the tenant, at most HB_FORESIGHT_SHARERS, 0 for a process that has ended;
 * `self` is the index of this process. */
void hb_foresight_share_look(struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns,
			     const uint64_t *activity, uint32_t n, uint32_t self);
/* `others` HP tenants work beside this one. */
void hb_foresight_share_tenants(struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns,
				uint32_t others);

#endif
