/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the daemon's status, from the daemon or from a file, and changes tenants. */
#ifndef HB_CLI_STATUS_SOURCE_H
#define HB_CLI_STATUS_SOURCE_H

#include "base/error.h"
#include "protocol/protocol.h"

#include <jansson.h>
#include <stdbool.h>

/*
 * Asks the daemon for real or simulated GPUs; starts no daemon. Returns 0 with a new reference in *root, or a negative
 * errno with *error.
 */
int hb_status_ask(bool simulated, json_t **root, struct hb_error *error);
/* Reads a file that `hb status --json` wrote; "-" is standard input. Returns as hb_status_ask(). */
int hb_status_load(const char *file, json_t **root, struct hb_error *error);
/*
 * Asks the daemon to change a tenant; the daemon decides whether the user may. Returns 0 or a negative errno with
 * *error.
 */
int hb_status_change(bool simulated, const struct hb_msg_set *change, struct hb_error *error);

#endif
