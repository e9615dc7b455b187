/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds LP's launches to a recording, as lines of core/recording.h. While a
 * recording runs, LP processes write their launches to rings on their pages
 * (hummingbird/page_trace.h). A ring is a process's own memory: entries are
 * checked, and bad ones count as lost. The amount of text is bounded. Used by
 * recorder.c only.
 */
#ifndef HB_DAEMON_LAUNCH_READER_H
#define HB_DAEMON_LAUNCH_READER_H

#include "daemon/daemon.h"

struct hb_launch_reader;

/* NULL when out of memory. */
struct hb_launch_reader *hb_launch_reader_new(int64_t now_ns);
void hb_launch_reader_free(struct hb_launch_reader *reader, struct hb_daemon *daemon);
/* Reads new launches, if it is time to, and asks new tenants to write theirs. When to call it again. */
int64_t hb_launch_reader_read(struct hb_launch_reader *reader, struct hb_daemon *daemon, int64_t now_ns);
/* Reads the remaining launches and tells the tenants to stop writing them. */
void hb_launch_reader_end(struct hb_launch_reader *reader, struct hb_daemon *daemon);
/* Does the same, and appends all lines to `out`. */
void hb_launch_reader_write(struct hb_launch_reader *reader, struct hb_daemon *daemon, FILE *out);

#endif
