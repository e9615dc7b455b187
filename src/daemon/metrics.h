/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's metrics over HTTP: /metrics as Prometheus text, /status.json, a
 * live page, /healthz. Off unless an address is given (`metrics` in
 * hummingbird.yaml, or --metrics). Read-only. `hb status` shows the same; over
 * HTTP a command line is shortened to the program's name.
 */
#ifndef HB_DAEMON_METRICS_H
#define HB_DAEMON_METRICS_H

#include "daemon/daemon.h"

/* Starts serving if an address is configured. A failure is logged and shown in the status; the daemon continues. */
void hb_metrics_new(struct hb_daemon *daemon);
void hb_metrics_free(struct hb_daemon *daemon);
void hb_metrics_tick(struct hb_daemon *daemon, int64_t now_ns);

/* The text of /metrics, from malloc; NULL when out of memory (metrics.c). */
char *hb_metrics_text(struct hb_daemon *daemon, int64_t now_ns, size_t *length);

#endif
