/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of the HTTP server. Each runs the event loop of one libmicrohttpd
 * daemon, and all daemons listen on one socket. Between kserve_http.c and the
 * library; this file knows nothing of requests.
 *
 * libmicrohttpd has threads, too, but those of 0.9.75 (Debian 12) can stall: when
 * epoll_wait() fills its table of 128 events, they wait for more events, until a
 * connection times out, before they serve these 128. Here only our poll() waits,
 * and the library is asked to serve what is ready. It cannot end a wait that is
 * not its own, so code that resumes a connection must wake the connection's loop.
 */
#ifndef HB_SERVER_HTTP_LOOPS_H
#define HB_SERVER_HTTP_LOOPS_H

#include "base/error.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdint.h>

struct hb_http_loops;
struct hb_http_loop;

struct hb_http_loops_config {
	struct sockaddr_storage address;
	int unix_listener;             /* a listening Unix socket, used instead of the address; -1 = none */
	uint32_t threads, connections; /* `connections` is the limit for all threads together */
	/* Starts a daemon with these flags and this connection limit on the listening socket; NULL = failed, see errno. */
	struct MHD_Daemon *(*start)(void *argument, unsigned flags, int listening, uint32_t connections);
	void *argument;
};

/* Opens the listening socket and starts the threads. Returns 0, or negative errno with *error. */
int hb_http_loops_new(const struct hb_http_loops_config *config, struct hb_http_loops **out, struct hb_error *error);
/* Returns the port of the listening socket. */
uint16_t hb_http_loops_port(const struct hb_http_loops *loops);
/* Returns the loop that the calling thread runs; NULL on other threads. */
struct hb_http_loop *hb_http_loop_here(void);
/* Call after MHD_resume_connection() for a connection of this loop; any thread. */
void hb_http_loop_wake(struct hb_http_loop *loop);
/*
 * Call on the loop's thread when one of its connections was closed. If the connection limit or the limit of descriptors was
 * reached, the library accepts connections again only when it is run once more; the loop then does not wait first.
 */
void hb_http_loop_note_closed(struct hb_http_loop *loop);
/*
 * Call when the library reports, on a loop's thread, that it could not accept a connection because no descriptor or memory
 * was free. The loop then lets it try again, also if none of the loop's own connections ends.
 */
void hb_http_loop_note_starved(void);
/* Number of TLS handshakes of this loop's connections that have begun and not ended. Only used on the loop's thread. */
uint32_t *hb_http_loop_handshakes(struct hb_http_loop *loop);
/* Stops accepting connections; existing connections are served. NULL is allowed. */
void hb_http_loops_quiesce(struct hb_http_loops *loops);
/* Ends the threads. No connection may be suspended. NULL is allowed. */
void hb_http_loops_free(struct hb_http_loops *loops);

#endif
