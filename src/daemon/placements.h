/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The placements that the daemon has chosen (message PLACE; core/placement.h): a table, bounded by the places of users
 * (user_places.def). A placement without a tenant ends after a while; with one it ends with the tenant, and counts on the
 * GPUs that no process of the tenant has registered yet only until then. The loop's thread only.
 */
#ifndef HB_DAEMON_PLACEMENTS_H
#define HB_DAEMON_PLACEMENTS_H

#include "base/error.h"
#include "daemon/peer.h"
#include "protocol/protocol.h"

#include <jansson.h>

struct hb_daemon;
struct hb_placements;
struct hb_tenancy;

/* NULL when out of memory. */
struct hb_placements *hb_placements_new(struct hb_daemon *daemon);
void hb_placements_free(struct hb_placements *placements);
/* Every HB_TICK_MS: ends those that are over. */
void hb_placements_tick(struct hb_placements *placements, int64_t now_ns);

/*
 * Before the driver is asked about memory: makes records of all GPUs of the machine. 0, or -ENOTSUP (the driver does not
 * list them), -ENOSPC, -ENOMEM with *error.
 */
int hb_placements_prepare(struct hb_placements *placements, struct hb_error *error);
/*
 * Serves the request: chooses with what is known now and writes the answer PLACED; or ends a placement (no GPUs in the
 * answer). A placement with the same token is replaced. 0, or negative errno with *error.
 */
int hb_placements_serve(struct hb_placements *placements, const struct hb_peer *peer,
			const struct hb_msg_place *request, union hb_msg *answer, struct hb_error *error);

/* {gpus: [uuid], text, waiting: no process has registered on some of them}; null = the tenant was not placed. */
json_t *hb_placements_tenant_json(const struct hb_placements *placements, const struct hb_tenancy *tenancy);
/* The placements without a tenant: [{user, gpus, text, left_ns}]. */
json_t *hb_placements_json(const struct hb_placements *placements, int64_t now_ns);

#endif
