/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a recording (core/recording.h) into a timeline for ui.perfetto.dev. Pure. Used by cmd_trace_record.c. */
#ifndef HB_CLI_RECORD_TIMELINE_H
#define HB_CLI_RECORD_TIMELINE_H

#include "base/error.h"

#include <jansson.h>

/*
 * Returns {traceEvents, displayTimeUnit, hummingbird: {version, recording: [line, ...]}}, or NULL with *error. In the
 * timeline a GPU is a process, and each row of a tenant is a thread. `status` has the names of GPUs; it may be NULL.
 */
json_t *hb_record_timeline(const char *text, const json_t *status, struct hb_error *error);

/* Returns the text of the recording in such a timeline, from malloc(), or NULL with an *error that names `origin`. */
char *hb_record_text(const json_t *root, const char *origin, struct hb_error *error);

#endif
