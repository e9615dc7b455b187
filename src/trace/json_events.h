/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the events of a Chrome trace (JSON, plain or gzip) one at a time, so that
 * a file of gigabytes needs the memory of one event. The file holds an array of
 * objects, or an object whose "traceEvents" is that array. Used by trace_kineto.c, which knows
 * what an event means.
 */
#ifndef HB_SIM_JSON_EVENTS_H
#define HB_SIM_JSON_EVENTS_H

#include "base/error.h"

#include <jansson.h>

#define HB_JSON_EVENT_BYTES_MAX (1u << 20)

struct hb_json_events;

/* Opens the file. Returns 0, a negative errno of open(), or -ENOMEM. */
int hb_json_events_open(const char *path, struct hb_json_events **out, struct hb_error *error);
void hb_json_events_close(struct hb_json_events *events);
/* Returns 1 with a new reference to the next event in *event; 0 at the end; -EINVAL, -E2BIG, -EIO or -ENOMEM. */
int hb_json_events_next(struct hb_json_events *events, json_t **event, struct hb_error *error);
/* Writes the error "FILE:LINE: ..." with the line where the last event began. Returns `code`. */
int hb_json_events_error(const struct hb_json_events *events, struct hb_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
