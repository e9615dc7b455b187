/* SPDX-License-Identifier: Apache-2.0 */
/* A recording (core/recording.h) as a timeline for ui.perfetto.dev. Pure. Used by cmd_trace_record.c. */
#ifndef HB_CLI_RECORD_TIMELINE_H
#define HB_CLI_RECORD_TIMELINE_H

#include "base/error.h"

#include <jansson.h>

/*
 * {traceEvents, displayTimeUnit, hummingbird: {version, recording: [line, ...]}}: a GPU is a process, a tenant on it
 * four threads. `status` (may be NULL) names GPUs and tenants. NULL with *error.
 */
json_t *hb_record_timeline(const char *text, const json_t *status, struct hb_error *error);

/* The recording's text inside such a file, from malloc; NULL with *error naming `origin`. */
char *hb_record_text(const json_t *root, const char *origin, struct hb_error *error);

#endif
