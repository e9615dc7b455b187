/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MPS server in which all low-priority tenants run: started for the first
 * one, with pipe and log folders of the daemon's own and the shim in its library
 * path, so that its channel group gets the smallest time slice. Each step is a
 * command to the MPS control program, with a time limit. If a step fails, the
 * state becomes FAILED with the reason, and LP tenants take turns instead.
 *
 * The daemon stops the server that it started, but never while tenants run in
 * it: a daemon that ends or crashes leaves the server running, and the next
 * daemon finds it by asking the control program in the same folder.
 */
#ifndef HB_DAEMON_MPS_SERVER_H
#define HB_DAEMON_MPS_SERVER_H

#include "daemon/tenant_record.h"

struct hb_mps;

#define HB_MPS_STATE_LIST(X) \
	X(OFF, "off") \
	X(IDLE, "not started") \
	X(STARTING, "starting") \
	X(READY, "ready") \
	X(FAILED, "failed") \
	X(STOPPING, "stopping")
enum hb_mps_state {
#define X(name, text) HB_MPS_##name,
	HB_MPS_STATE_LIST(X)
#undef X
};

/* Called in the event loop. */
struct hb_mps_events {
	/* The state has changed, and is not STARTING. */
	void (*changed)(struct hb_daemon *daemon);
	/* An earlier daemon's server runs as process `server`. 0: it is a tenant now; or negative errno. */
	int (*found)(struct hb_daemon *daemon, pid_t server);
};

int hb_mps_new(struct hb_daemon *daemon, const struct hb_mps_events *events, struct hb_mps **mps);
void hb_mps_free(struct hb_mps *mps);
enum hb_mps_state hb_mps_state(const struct hb_mps *mps);
const char *hb_mps_state_text(const struct hb_mps *mps);
/* Why the server is off or failed, "" otherwise. */
const char *hb_mps_why(const struct hb_mps *mps);
const char *hb_mps_pipe_dir(const struct hb_mps *mps);
/* Starts the server for this user's programs, unless it runs. If it serves another user, none of his programs may be left. */
void hb_mps_start(struct hb_mps *mps, uid_t uid);
/* Whether the server is starting, or will start, for programs of another user. */
bool hb_mps_starts_for_other(const struct hb_mps *mps, uid_t uid);
/* Whether programs of this user may be in the server. Clients claim to be (HB_REGISTER_MPS); the daemon knows the server's user. */
bool hb_mps_may_serve(const struct hb_mps *mps, uid_t uid);
/* Whether the tenant says that it is inside the server and may be; false for the server itself. */
bool hb_mps_has_tenant(const struct hb_tenancy *tenancy);
/* Stops the server if this daemon started it, or took it over. */
void hb_mps_stop(struct hb_mps *mps);
/* Call it when the daemon starts: looks for a server that an earlier daemon left. */
void hb_mps_find_old_server(struct hb_mps *mps);
/* The server's own process has registered through its shim, or has ended. */
void hb_mps_server_registered(struct hb_mps *mps, pid_t server);
void hb_mps_server_ended(struct hb_mps *mps);
/* The token by which the server's shim registers. */
const unsigned char *hb_mps_token(const struct hb_mps *mps);
/*
 * Lets the control program end the GPU work of a client of the server. `done` is called in the event loop, also while the
 * daemon ends. 0, or negative errno (then `done` is not called).
 */
int hb_mps_terminate(struct hb_mps *mps, pid_t client, void (*done)(void *argument), void *argument);
/* The server's process; 0 = it is not known, or the server is not ready. */
pid_t hb_mps_server_pid(const struct hb_mps *mps);

#endif
