/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of the policy `ours`, which decides which low-priority batches are paused. See pick_pause.c. */
#ifndef HB_SCHEDULER_PICK_PAUSE_H
#define HB_SCHEDULER_PICK_PAUSE_H

#include "server/scheduler/miss_chance.h"

/* Decides which batch is paused or resumed next; the interface is that of hb_scheduler_ops.decide. */
bool hb_pause_decide(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);

#endif
