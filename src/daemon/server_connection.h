/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the daemon's socket, and the answers that can be sent on it. socket_server.c accepts connections and
 * reads from them, server_requests.c serves what was read. Connections and descriptors that came from clients are closed
 * by fd_closer.h, never in the loop.
 */
#ifndef HB_DAEMON_SERVER_CONNECTION_H
#define HB_DAEMON_SERVER_CONNECTION_H

#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/fair_queue.h"
#include "daemon/fd_closer.h"
#include "daemon/shared_text.h"
#include "protocol/wire.h"

struct hb_connection {
	struct hb_server *server;
	uv_poll_t poll;
	int fd;
	struct hb_peer peer;
	struct hb_user *user; /* holds a place for the connection */
	struct hb_fair_entry turn;
	bool greeted;
	bool waits_for_name; /* nothing is read before the name of its user has been looked up */
	uint32_t features;   /* of the client: enum hb_protocol_feature */
	int64_t last_ns;
	uint32_t
		waits_for_mps; /* number of the tenant whose registration is answered when the MPS server runs; 0 = none */
	uint32_t waits_for_fault; /* number of the tenant whose BYE is answered when a fault is decided; 0 = none */
	uint64_t waits_for_termination; /* number that hb_supervision_terminate() returned; 0 = none */
	bool waits_for_status;          /* its status request is not answered yet */
	bool waits_for_driver;          /* nor has the driver answered, which the status waits for */
	struct hb_shared_text *text;    /* text being sent; NULL = none */
	size_t text_sent;
};

struct hb_server {
	struct hb_daemon *daemon;
	int fd;
	uv_poll_t poll;
	bool is_paused;             /* no descriptor was left for new connections: listening resumes at the next tick */
	bool refuses_fds;           /* descriptors are refused until a connection was accepted */
	uv_check_t serve;           /* serves the requests in `queue` after the loop has seen all that is ready */
	struct hb_fair_queue queue; /* connections that can be read or written */
	uint32_t n_handles;         /* of the loop, which are not closed yet */
	uv_timer_t status_timer;    /* answers status requests */
	struct hb_loop_share status_share;
	struct hb_connection *connections[HB_CONNECTIONS_MAX];
	union hb_msg message; /* the one being read or written */
};

/* Waits for a request, or for room for the rest of a text. */
void hb_connection_poll(struct hb_connection *connection);
/* Called in the loop when the connection can be read, or written if it sends a text. */
void hb_connection_ready(uv_poll_t *poll, int status, int events);
void hb_connection_drop(struct hb_connection *connection);

/*
 * From Linux 6.16 on, decides whether clients can send descriptors to this socket; before, they always can. New
 * connections are like the listening socket. 0 or negative errno.
 */
int hb_connection_take_fds(int fd, bool take);

/* Each sends an answer. 0 or negative errno. */
int hb_connection_answer(struct hb_connection *connection, const int *fds, size_t n_fds);
int hb_connection_done(struct hb_connection *connection);
/* DONE with a text, which only the supervisor of a tenant expects. */
int hb_connection_done_text(struct hb_connection *connection, const char *text);
int hb_connection_error(struct hb_connection *connection, int code, const char *text);
int hb_connection_registered(struct hb_connection *connection, struct hb_tenancy *tenancy, uint32_t slot);
/* Sends as much of the text as the socket accepts now, and the rest when it is writable again. */
int hb_connection_text(struct hb_connection *connection);

#endif
