/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's metrics: /metrics as Prometheus text, /status.json, a live page,
 * /healthz. Off unless an address is given (`metrics` in hummingbird.yaml, or
 * --metrics). Read-only; everything served here is also in `hb status`, but for
 * command lines, of which strangers see the program's name only.
 */
#ifndef HB_DAEMON_METRICS_H
#define HB_DAEMON_METRICS_H

#include "daemon/daemon.h"

/* Starts serving where an address is configured. What goes wrong is logged and shown in the status: sharing goes on. */
void hb_metrics_new(struct hb_daemon *daemon);
void hb_metrics_free(struct hb_daemon *daemon);
void hb_metrics_tick(struct hb_daemon *daemon, int64_t now_ns);
/* For the status: {address, why}; address "" = not serving. NULL when out of memory. */
struct json_t *hb_metrics_json(const struct hb_daemon *daemon);

/* The text of /metrics, from malloc; NULL when out of memory (metrics.c). */
char *hb_metrics_text(struct hb_daemon *daemon, int64_t now_ns, size_t *length);

#endif
