/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `hb status` about a tenant's requests. Used by cmd_status.c. */
#ifndef HB_CLI_STATUS_REQUESTS_H
#define HB_CLI_STATUS_REQUESTS_H

#include <jansson.h>

/* Objective, requests and misses on one GPU; nothing for a tenant without any. */
void hb_status_print_requests(const json_t *tenant, const json_t *use);
/* What holding the GPU ahead of requests has brought, and why it is off where it is. */
void hb_status_print_holds(const json_t *tenant);

#endif
