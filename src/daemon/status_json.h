/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's state as JSON: what `hb status` shows and `hb status --json`
 * prints. docs/daemon.md describes the schema.
 */
#ifndef HB_DAEMON_STATUS_JSON_H
#define HB_DAEMON_STATUS_JSON_H

#include <stdint.h>

struct hb_daemon;
struct json_t;

/* The complete status as a tree; NULL when out of memory. */
struct json_t *hb_status_json(struct hb_daemon *daemon, int64_t now_ns);
/* Only the last minutes: {gpus: [{uuid, history}], tenants: [{id, gpus: [{gpu, history}]}]}; NULL when out of memory. */
struct json_t *hb_status_history(const struct hb_daemon *daemon, int64_t now_ns);
/* The complete status as text, to be freed by the caller; NULL when out of memory. */
char *hb_status_text(struct hb_daemon *daemon, int64_t now_ns);

#endif
