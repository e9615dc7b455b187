/* SPDX-License-Identifier: Apache-2.0 */
/* Our policy's second half: which batches of low priority stand for high priority. See pick_hold.c. */
#ifndef HB_SERVE_PICK_HOLD_H
#define HB_SERVE_PICK_HOLD_H

#include "server/scheduler/plan.h"

/* As hb_serve_ops.decide: the next batch to hold or to let go on. */
bool hb_hold_decide(struct hb_serve *serve, int64_t now_ns, struct hb_serve_action *action);

#endif
