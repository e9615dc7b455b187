/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of a tenant's processes about one GPU: MEMORY, BOARD and FETCH_BOARD
 * (protocol/protocol.h). Called by socket_server.c, which sends the answers.
 */
#ifndef HB_DAEMON_TENANT_REQUESTS_H
#define HB_DAEMON_TENANT_REQUESTS_H

#include "base/error.h"
#include "daemon/peer.h"
#include "protocol/protocol.h"

struct hb_daemon;
struct hb_gpu;

/* For whom an answer waits until memory of LP has moved. */
struct hb_memory_waiter {
	const struct hb_gpu *gpu;
	uint32_t tenant; /* number */
};

/*
 * 0, or negative errno with *error for the client. -EINPROGRESS: hb_server_answer_memory() will be called for *waiter. The
 * descriptor of a board stays the caller's.
 */
int hb_tenant_asks_memory(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_memory *request,
			  struct hb_memory_waiter *waiter, struct hb_error *error);
int hb_tenant_gives_board(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_board *request,
			  int fd, struct hb_error *error);
/* The descriptor of the board, which stays the daemon's, or negative errno with *error. */
int hb_tenant_fetches_board(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_board *request,
			    struct hb_error *error);

#endif
