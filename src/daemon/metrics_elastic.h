/* SPDX-License-Identifier: Apache-2.0 */
/* Writers of the metrics of elastic memory, for the table metrics.def (decision 0025). */
#ifndef HB_DAEMON_METRICS_ELASTIC_H
#define HB_DAEMON_METRICS_ELASTIC_H

#include "daemon/metrics_scene.h"

/* The daemon's host memory for moved memory: configured, and divided among processes. */
void hb_metrics_elastic_pool(struct hb_metrics_scene *scene);
/* A GPU: allocations of high priority that asked for memory, by result. */
void hb_metrics_elastic_needs(struct hb_metrics_scene *scene);
/* A tenant on a GPU: bytes by tier; bytes that stay, by reason; moves, their bytes and time, by direction. */
void hb_metrics_elastic_tiers(struct hb_metrics_scene *scene);
void hb_metrics_elastic_stays(struct hb_metrics_scene *scene);
void hb_metrics_elastic_moves(struct hb_metrics_scene *scene);
void hb_metrics_elastic_bytes(struct hb_metrics_scene *scene);
void hb_metrics_elastic_time(struct hb_metrics_scene *scene);

#endif
