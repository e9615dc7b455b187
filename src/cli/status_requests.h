/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `hb status` about a tenant's requests and takeovers. Used by cmd_status.c and top_view.c. */
#ifndef HB_CLI_STATUS_REQUESTS_H
#define HB_CLI_STATUS_REQUESTS_H

#include <jansson.h>

/* Prints SLO, requests and misses on one GPU. Prints nothing for a tenant without requests and SLO. */
void hb_status_print_requests(const json_t *tenant, const json_t *use);

#define HB_STATUS_TEXT_MAX 400

/* Formats the missed requests: "3: 2 the switch from low priority, 1 its own jitter"; "" when none was missed. Returns `text`. */
const char *hb_status_format_misses(const json_t *use, char text[HB_STATUS_TEXT_MAX]);
/* Formats "98.0 % of requests found the GPU taken over; ..."; "" without requests or signs. Returns `text`. */
const char *hb_status_format_takeovers(const json_t *tenant, char text[HB_STATUS_TEXT_MAX]);
/* Prints what taking over the GPU before requests has achieved, and in which processes it is off, and why. */
void hb_status_print_takeovers(const json_t *tenant);

#endif
