/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads fields of the daemon's status (the JSON of `hb status --json`). A missing field reads as "" or 0, so that the
 * status of an older daemon can be shown. Used by every command that shows the status.
 */
#ifndef HB_CLI_STATUS_FIELDS_H
#define HB_CLI_STATUS_FIELDS_H

#include "base/units.h"

#include <jansson.h>
#include <stdint.h>

const char *hb_status_text(const json_t *object, const char *key);
int64_t hb_status_number(const json_t *object, const char *key);

/* Returns the entry of a tenant in the list "tenants", or NULL. */
json_t *hb_status_find_tenant(const json_t *status, int64_t id);

/* Writes the SLO that a tenant asked for: "10ms", "auto", or the text `none` when it asked for none. Returns `text`. */
const char *hb_status_format_slo(const json_t *tenant, const char *none, char text[HB_UNITS_TEXT_MAX]);

#endif
