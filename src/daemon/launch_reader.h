/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings the launches that processes of low priority note while somebody
 * records (hummingbird/page_trace.h) into the recording, as lines of
 * core/recording.h. Used by recorder.c only. The rings are the processes' own
 * memory: whatever lies there is checked, and what cannot be is counted as lost;
 * what is read at a time and kept in all is bounded.
 */
#ifndef HB_DAEMON_LAUNCH_READER_H
#define HB_DAEMON_LAUNCH_READER_H

#include "daemon/daemon.h"

struct hb_launch_reader;

/* NULL when out of memory. */
struct hb_launch_reader *hb_launch_reader_new(int64_t now_ns);
void hb_launch_reader_free(struct hb_launch_reader *reader, struct hb_daemon *daemon);
/* Reads what has come, if it is time to, and tells new tenants that it is wanted. When to come back. */
int64_t hb_launch_reader_read(struct hb_launch_reader *reader, struct hb_daemon *daemon, int64_t now_ns);
/* Reads the rest and tells tenants that it is over. */
void hb_launch_reader_end(struct hb_launch_reader *reader, struct hb_daemon *daemon);
/* That, and appends all lines to `out`. */
void hb_launch_reader_write(struct hb_launch_reader *reader, struct hb_daemon *daemon, FILE *out);

#endif
