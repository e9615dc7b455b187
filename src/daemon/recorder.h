/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records the events and actions of the cores while a client asked for that
 * (RECORD): text in the format of core/recording.h, kept in memory up to a limit
 * until the client fetches it. Costs nothing while no recording runs.
 */
#ifndef HB_DAEMON_RECORDER_H
#define HB_DAEMON_RECORDER_H

#include "daemon/daemon.h"

/* The most text of a recording; later events are left out. */
#define HB_RECORDER_BYTES_MAX (8 << 20)

/* Starts a recording that ends by itself after limit_ns. 0 or negative errno; -EBUSY: one is running. */
int hb_recorder_start(struct hb_daemon *daemon, int64_t limit_ns);
/* Ends the recording. Returns its text, to be freed by the caller, or NULL with *code -ENOENT or -ENOMEM. */
char *hb_recorder_stop(struct hb_daemon *daemon, int *code);
void hb_recorder_free(struct hb_daemon *daemon);
/* Every HB_TICK_MS: stops a recording at its time limit, and frees it a minute later if no client fetched it. */
void hb_recorder_tick(struct hb_daemon *daemon, int64_t now_ns);

/* Reads launches from the processes' rings while a recording runs. When to call it again; HB_TIME_NEVER. */
int64_t hb_recorder_launches(struct hb_daemon *daemon, int64_t now_ns);

/* Each of these adds a line if a recording runs: a new core, an event, step() and an action. */
void hb_recorder_core(struct hb_gpu *gpu, int64_t now_ns, const struct hb_core_config *config);
void hb_recorder_event(struct hb_gpu *gpu, int64_t now_ns, const struct hb_event *event);
/* Call it before step(). Adds a line only if a timer is due; step() does nothing otherwise. */
void hb_recorder_step(struct hb_gpu *gpu, int64_t now_ns);
void hb_recorder_action(struct hb_gpu *gpu, const struct hb_action *action);

#endif
