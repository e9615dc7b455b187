/* SPDX-License-Identifier: Apache-2.0 */
/* Where `hb status` and `hb top` get the daemon's state from, and how a tenant is changed. */
#ifndef HB_CLI_STATUS_SOURCE_H
#define HB_CLI_STATUS_SOURCE_H

#include "base/error.h"
#include "protocol/protocol.h"

#include <jansson.h>
#include <stdbool.h>

/* From the daemon for real or simulated GPUs; starts none. 0 or negative errno with *error; *root is a new reference. */
int hb_status_ask(bool simulated, json_t **root, struct hb_error *error);
/* From a file that `hb status --json` wrote, "-" = standard input. */
int hb_status_load(const char *file, json_t **root, struct hb_error *error);
/* SET; the daemon says who may. */
int hb_status_change(bool simulated, const struct hb_msg_set *change, struct hb_error *error);

#endif
