/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of the HTTP server: each runs the loop of one daemon of
 * libmicrohttpd, and all listen on one socket. The library has threads of its
 * own, but in 0.9.75 (Debian 12) they may stand still: when epoll_wait() fills
 * its table of 128 events they wait for more, until a connection times out,
 * before they serve those 128. Here only our poll() waits; the library is asked
 * for what there is. It does not end a wait that is not its own, so whoever
 * resumes a connection wakes its loop.
 *
 * Between kserve_http.c and the library; knows nothing of requests.
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
	uint32_t threads, connections; /* of all threads together */
	/* A daemon with these flags, and as many connections, that listens on the socket; NULL = failed, see errno. */
	struct MHD_Daemon *(*start)(void *argument, unsigned flags, int listening, uint32_t connections);
	void *argument;
};

/* 0, or negative errno with *error. */
int hb_http_loops_new(const struct hb_http_loops_config *config, struct hb_http_loops **out, struct hb_error *error);
/* The port that it listens on. */
uint16_t hb_http_loops_port(const struct hb_http_loops *loops);
/* The loop whose thread calls; NULL = another thread. */
struct hb_http_loop *hb_http_loop_here(void);
/* After MHD_resume_connection() for a connection of this loop; any thread. */
void hb_http_loop_wake(struct hb_http_loop *loop);
/* No new connections from now on; those that are there go on. */
void hb_http_loops_quiesce(struct hb_http_loops *loops);
/* No connection may be suspended. NULL: nothing. */
void hb_http_loops_free(struct hb_http_loops *loops);

#endif
