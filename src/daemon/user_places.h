/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects the budgets of users (user_budget.h) with the daemon: how many places there
 * are, and who is charged for a tenant, a process and a GPU. Called by tenancy.c,
 * registration.c and daemon_loop.c.
 */
#ifndef HB_DAEMON_USER_PLACES_H
#define HB_DAEMON_USER_PLACES_H

#include "base/error.h"
#include "daemon/daemon.h"
#include "daemon/peer.h"

/* Places of tenants that no user can take, because the MPS servers register as tenants, too. */
#define HB_SERVER_PLACES 4
/* Places of GPUs for UUIDs that the driver does not list; the others are for the GPUs of the machine. */
#define HB_UNKNOWN_GPUS_MAX (HB_GPUS_MAX / 2)

/*
 * The most descriptors that the daemon needs: one for each process; two for each tenant; connections, also those that are
 * being closed; the pages and boards of GPUs; and what libraries and commands open.
 */
#define HB_DESCRIPTORS_MAX \
	(HB_TENANCIES_MAX * (HB_PAGE_PROCESSES + 2) + 2 * HB_CONNECTIONS_MAX + HB_GPUS_MAX * (HB_PAGE_BOARDS + 1) + 256)

/* Call it when the configuration was read. A daemon that serves one user keeps no places for others. */
void hb_user_places_init(struct hb_daemon *daemon);
/* Applies the keys user_tenants, user_processes and user_connections when the configuration was read again. */
void hb_user_places_reload(struct hb_daemon *daemon);
/* The record of the peer's user; NULL: too many users hold places. */
struct hb_user *hb_user_of_peer(struct hb_daemon *daemon, const struct hb_peer *peer);
/* Sets the error to the reason why the peer's user gets no place. Returns -EDQUOT. */
int hb_user_places_refuse(struct hb_daemon *daemon, const struct hb_peer *peer, enum hb_place_kind kind,
			  struct hb_error *error);

/*
 * Finds or makes the GPU that a tenant names. The tenant's user is charged for a GPU that the driver does not list,
 * because programs can invent UUIDs. 0, -EDQUOT, -ENODEV (the driver has no such GPU), or what hb_gpu_find_or_add() returns.
 */
int hb_gpu_claim(struct hb_tenancy *tenancy, const unsigned char uuid[HB_UUID_BYTES], struct hb_gpu **gpu);
/* A tenant no longer uses the GPU: another user with a tenant on it is charged, if there is one. */
void hb_gpu_unclaim(struct hb_gpu *gpu);

#endif
