/* SPDX-License-Identifier: Apache-2.0 */
/* Our policy's second half: which batches of low priority stand for high priority. See pick_pause.c. */
#ifndef HB_SCHEDULER_PICK_PAUSE_H
#define HB_SCHEDULER_PICK_PAUSE_H

#include "server/scheduler/plan.h"

/* As hb_scheduler_ops.decide: the next batch to hold or to let go on. */
bool hb_pause_decide(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);

#endif
