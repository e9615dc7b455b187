/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What REGISTER does: creates or joins a tenant, after checking that it may.
 * Called by server.c for every such message; sends nothing itself.
 */
#ifndef HB_DAEMON_REGISTRATION_H
#define HB_DAEMON_REGISTRATION_H

#include "daemon/daemon.h"

/* What the answer needs. */
struct hb_grant {
	struct hb_tenancy *tenancy;
	uint32_t slot; /* HB_PAGE_PROCESSES = none */
	bool wait;     /* the MPS server is starting: answer when that is decided */
};

/*
 * 0, or negative errno with *error for the client. `peer` is open (hb_peer_open()); page_fd is the descriptor
 * that came along or -1; it stays the caller's.
 */
int hb_register(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		const char *command, size_t command_length, int page_fd, struct hb_grant *grant,
		struct hb_error *error);

/* The environment that `hb run` gives its command: NAME=VALUE with a NUL each. Its length. */
size_t hb_register_environment(struct hb_tenancy *tenancy, char *text, size_t size);

#endif
