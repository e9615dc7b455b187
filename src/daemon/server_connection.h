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

/* Before its answer, a connection waits for at most one thing, and sends nothing. */
enum hb_connection_wait {
	HB_WAIT_NOTHING,
	HB_WAIT_NAME,        /* the name of its user; no request is read before */
	HB_WAIT_MPS,         /* the start of the MPS server, which a registration needs */
	HB_WAIT_FAULT,       /* the cause of a fault, which the answer to BYE names */
	HB_WAIT_TERMINATION, /* the end of a tenant's GPU work */
	HB_WAIT_MEMORY,      /* memory of LP that moves away */
	HB_WAIT_DRIVER,      /* the driver's processes, which the status needs */
	HB_WAIT_STATUS,      /* the next status document */
	HB_WAIT_PLACE,       /* the driver's figures of memory, which a placement needs */
};

/* The longest that a request waits for an answer of the driver. */
#define HB_DRIVER_LIMIT_NS (300 * HB_NS_PER_MS)

struct hb_connection {
	struct hb_server *server;
	uv_poll_t poll;
	int fd;
	struct hb_peer peer;
	struct hb_user *user; /* holds a place for the connection */
	struct hb_fair_entry turn;
	bool greeted;
	uint32_t features; /* of the client: enum hb_protocol_feature */
	int64_t last_ns;
	enum hb_connection_wait wait;
	const struct hb_gpu *wait_gpu; /* HB_WAIT_MEMORY: where */
	uint64_t wait_number;        /* of the tenant to answer, or the one that hb_supervision_terminate() returned */
	struct hb_msg_place *place;  /* the request that waits for HB_WAIT_PLACE; NULL = none */
	struct hb_shared_text *text; /* text being sent; NULL = none */
	size_t text_sent;
};

/* Returns whether the connection's request is not answered yet. */
static inline bool hb_connection_is_asking(const struct hb_connection *connection)
{
	return connection->wait > HB_WAIT_NAME;
}

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
