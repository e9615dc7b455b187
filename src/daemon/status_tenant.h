/* SPDX-License-Identifier: Apache-2.0 */
/* One tenant as JSON for the status, and which mechanisms are in force for it. */
#ifndef HB_DAEMON_STATUS_TENANT_H
#define HB_DAEMON_STATUS_TENANT_H

#include "daemon/gpu_record.h"

struct json_t;

/* The tenant; NULL when out of memory. */
struct json_t *hb_status_tenant(struct hb_tenancy *tenancy, int64_t now_ns);
/* The mechanisms on one of the tenant's GPUs: [{mechanism, enforced, why}]. NULL when out of memory. */
struct json_t *hb_status_mechanisms(struct hb_tenancy *tenancy, uint32_t gpu_index);
/* A counter of counters.def, summed over the tenant's processes, including those that have ended. */
uint64_t hb_status_count(const struct hb_tenancy *tenancy, enum hb_page_counter counter);
/* "high", "low" or "mps server" */
const char *hb_status_role(const struct hb_tenancy *tenancy);
/* "temporal" and so on. */
const char *hb_status_engine(enum hb_engine engine);
/* Adds a value to an array or object and takes its reference. NULL (out of memory) is left out. */
void hb_status_append(struct json_t *array, struct json_t *entry);
void hb_status_set(struct json_t *object, const char *key, struct json_t *value);

#endif
