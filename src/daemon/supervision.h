/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the work of MPS clients before they are killed, because a client that dies with work in flight can take the
 * others with it. `hb run` asks for that before it passes a deadly signal on (TERMINATE). When `hb run` itself was
 * killed, the daemon does the same and then kills the processes of its tenant; it never kills those of other tenants.
 */
#ifndef HB_DAEMON_SUPERVISION_H
#define HB_DAEMON_SUPERVISION_H

#include "daemon/daemon.h"

struct hb_supervision;

int hb_supervision_new(struct hb_daemon *daemon, struct hb_supervision **supervision);
/* Call it before the tenants are freed. Commands that run may end later. */
void hb_supervision_free(struct hb_supervision *supervision);

/*
 * Ends the work of the tenant's processes that this signal would kill (0 = of all). If that is being done for an earlier
 * call, this call only waits for it. Returns 0 if there is nothing to wait for, else a number with which
 * hb_server_answer_terminated() is called within HB_TERMINATE_LIMIT_MS.
 */
uint64_t hb_supervision_terminate(struct hb_tenancy *tenancy, int signal);
/* The leader of a tenant has ended. If it was a supervisor that sent no BYE, its tenant is ended. */
void hb_supervision_leader_ended(struct hb_tenancy *tenancy);
/* BYE of a supervisor whose end was noticed before the message was read. False: there is none. */
bool hb_supervision_leave(struct hb_supervision *supervision, const unsigned char token[HB_TOKEN_BYTES], pid_t leader);
/* Every HB_TICK_MS. */
void hb_supervision_tick(struct hb_supervision *supervision, int64_t now_ns);

#endif
