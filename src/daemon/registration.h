/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out a REGISTER message: checks it, then creates a tenant or joins one.
 * Called by socket_server.c, which sends the answer.
 */
#ifndef HB_DAEMON_REGISTRATION_H
#define HB_DAEMON_REGISTRATION_H

#include "daemon/daemon.h"
#include "daemon/peer.h"

/* Result of a registration. */
struct hb_grant {
	struct hb_tenancy *tenancy;
	uint32_t slot; /* HB_PAGE_PROCESSES = none */
	bool wait;     /* the MPS server is starting: answer when it runs or has failed */
};

/*
 * 0, or negative errno with *error for the client. `peer` must be open (hb_peer_open()). page_fd is the descriptor that
 * came with the message, or -1; the caller closes it.
 */
int hb_register(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		const char *command, size_t command_length, int page_fd, struct hb_grant *grant,
		struct hb_error *error);

/* Writes the environment for the command of `hb run`: NAME=VALUE strings, each ended by a NUL. Returns its length. */
size_t hb_register_environment(struct hb_tenancy *tenancy, char *text, size_t size);

#endif
