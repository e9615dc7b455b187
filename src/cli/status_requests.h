/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `hb status` about a tenant's requests. Used by cmd_status.c and top_view.c. */
#ifndef HB_CLI_STATUS_REQUESTS_H
#define HB_CLI_STATUS_REQUESTS_H

#include <jansson.h>

/* Objective, requests and misses on one GPU; nothing for a tenant without any. */
void hb_status_print_requests(const json_t *tenant, const json_t *use);

#define HB_STATUS_TOLD_MAX 400

/* "3: 2 the switch from low priority, 1 its own jitter"; "" where none was missed. Returns `text`. */
const char *hb_status_tell_misses(const json_t *use, char text[HB_STATUS_TOLD_MAX]);
/* "98.0 % of requests found the GPU held; ..."; "" where there was no request or no sign. Returns `text`. */
const char *hb_status_tell_holds(const json_t *tenant, char text[HB_STATUS_TOLD_MAX]);
/* What holding the GPU ahead of requests has brought, and why it is off where it is. */
void hb_status_print_holds(const json_t *tenant);

#endif
