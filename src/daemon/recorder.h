/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records what the cores are told and ask, while somebody asked for it (RECORD):
 * the text of core/recording.h, kept in memory up to a bound until it is
 * fetched. Costs nothing while off. Called by device.c and server.c.
 */
#ifndef HB_DAEMON_RECORDER_H
#define HB_DAEMON_RECORDER_H

#include "daemon/daemon.h"

#define HB_RECORDER_BYTES_MAX (8 << 20)

/* -EBUSY: one is under way. */
int hb_recorder_start(struct hb_daemon *daemon, int64_t limit_ns);
/* Ends it; its text, to be freed by the caller. NULL with *code -ENOENT or -ENOMEM. */
char *hb_recorder_stop(struct hb_daemon *daemon, int *code);
void hb_recorder_free(struct hb_daemon *daemon);
/* Nobody came back for it: over its limit it stops, a minute later it is forgotten. */
void hb_recorder_tick(struct hb_daemon *daemon, int64_t now_ns);

/* Takes launches from the processes' rings, while something is recorded. When to come back; HB_TIME_NEVER. */
int64_t hb_recorder_launches(struct hb_daemon *daemon, int64_t now_ns);

void hb_recorder_core(struct hb_device *device, int64_t now_ns, const struct hb_core_config *config);
void hb_recorder_event(struct hb_device *device, int64_t now_ns, const struct hb_event *event);
/* Before step(): only where a timer is due, else nothing happens in it. */
void hb_recorder_step(struct hb_device *device, int64_t now_ns);
void hb_recorder_action(struct hb_device *device, const struct hb_action *action);

#endif
