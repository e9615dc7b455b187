/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's /metrics: the names that Triton's users know (nv_inference_*),
 * and those that it lacks: by priority, deadlines, predictions (hb_serve_*).
 */
#ifndef HB_FRONT_SERVE_METRICS_H
#define HB_FRONT_SERVE_METRICS_H

#include "server/models/dispatch.h"

/* From malloc; NULL = no memory. */
char *hb_serve_metrics(struct hb_dispatch *dispatch, const struct hb_memory_budget *memory, size_t *bytes);

#endif
