/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants and their processes. A tenant exists as long as its leader (`hb run`,
 * which then becomes the command) or any other of its processes runs. Each
 * process is watched by a pidfd, so the daemon notices its end at once.
 */
#ifndef HB_DAEMON_TENANCY_H
#define HB_DAEMON_TENANCY_H

#include "base/error.h"
#include "daemon/peer.h"
#include "daemon/tenant_record.h"

/* The first tenant with this token: several may have the token of a container. NULL = none. Not for what clients ask for. */
struct hb_tenancy *hb_tenancy_find(struct hb_daemon *daemon, const unsigned char token[HB_TOKEN_BYTES]);
/* NULL = no tenant has this number. */
struct hb_tenancy *hb_tenancy_numbered(struct hb_daemon *daemon, uint32_t number);
/*
 * The tenant with this token to which the peer may refer; NULL = there is none. Others can guess the token of a container,
 * so that tenant is found only by its own processes, and by processes of the same user in the same container.
 */
struct hb_tenancy *hb_tenancy_find_for(struct hb_daemon *daemon, const unsigned char token[HB_TOKEN_BYTES],
				       const struct hb_peer *peer);

/*
 * Makes a tenant for this request, with a new page or the one that the client
 * handed over (page_fd >= 0; stays the caller's). `peer` must be open
 * (hb_peer_open()), here and below. 0 or negative errno.
 */
int hb_tenancy_new(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		   const char *command, size_t command_length, int page_fd, struct hb_tenancy **tenancy);
void hb_tenancy_free(struct hb_tenancy *tenancy);
/* Adds the request's GPUs that the tenant does not use yet. 0 or negative errno; -ENOSPC: too many. */
int hb_tenancy_add_gpus(struct hb_tenancy *tenancy, const struct hb_msg_register *request);

/* Makes the process the leader, which keeps the tenant while no other process uses CUDA. 0 or negative errno. */
int hb_tenancy_lead(struct hb_tenancy *tenancy, const struct hb_peer *peer);
/*
 * Gives a process that uses CUDA a slot on the page, or the slot that it has (old_slot; HB_PAGE_PROCESSES = none). A
 * known process without old_slot has executed another program: its former slot is freed first. Returns the slot or
 * negative errno.
 */
int hb_tenancy_join(struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t old_slot);
/* The process with this pid leaves; the tenant ends with its last process. -ESRCH: it does not belong to the tenant. */
int hb_tenancy_leave(struct hb_tenancy *tenancy, pid_t pid);

/* Changes what a SET message requests; `rights` were granted already. 0, or negative errno with *error. */
int hb_tenancy_set(struct hb_tenancy *tenancy, const struct hb_msg_set *change, const struct hb_rights *rights,
		   struct hb_error *error);
/* Writes the tenant's rights and GPUs to its page. */
void hb_tenancy_publish(struct hb_tenancy *tenancy);

/*
 * Every HB_TICK_MS the daemon looks for processes that have executed another program. Such a process keeps its pidfd, but its
 * contexts and memory are gone, and no shim will report that its work has ended. It loses its slot, and registers again
 * when it uses CUDA again. May end the tenant.
 */
void hb_tenancy_check_exec(struct hb_tenancy *tenancy, int64_t now_ns);
/* Every HB_TICK_MS: repairs memory sums after the end of a process. */
void hb_tenancy_tick(struct hb_tenancy *tenancy);

#endif
