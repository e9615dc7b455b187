/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out which process made the clients of the MPS server lose their GPU work. A fault of one client ends the work
 * of all. The driver gives all of them the same error, and its Xid names any of them (docs/daemon.md). So the daemon compares when each process saw the error (its
 * shim writes that to its page), and which processes ended while their kernels ran. This is a guess, and the messages
 * say so.
 */
#ifndef HB_DAEMON_MPS_FAULTS_H
#define HB_DAEMON_MPS_FAULTS_H

#include "daemon/daemon.h"

struct hb_mps_faults;
struct json_t;

int hb_mps_faults_new(struct hb_daemon *daemon, struct hb_mps_faults **faults);
void hb_mps_faults_free(struct hb_mps_faults *faults);
/* The process leaves its slot, which still has what its shim wrote. */
void hb_mps_faults_note_end(struct hb_member *member);
/* Every HB_TICK_MS: looks at all processes in the server, and decides. */
void hb_mps_faults_tick(struct hb_mps_faults *faults, int64_t now_ns);
/* Looks at the processes of one tenant. Whether a fault that concerns the tenant is not decided yet. */
bool hb_mps_faults_wait(struct hb_tenancy *tenancy);
/* Writes what happened to this tenant in the last fault, for its user: one line; "" = the fault did not concern it. */
void hb_mps_faults_text(const struct hb_mps_faults *faults, uint32_t tenant, char *text, size_t size);
/* The last fault for the status: an object, or null. */
struct json_t *hb_mps_faults_json(const struct hb_mps_faults *faults);

#endif
