/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections whose requests come too slowly. The HTTP library closes those on
 * which nothing moves; a client that sends a byte now and then would keep its
 * place and its memory for days. Each has until twice the idle limit for a
 * request to come whole, and longer the more of it has come. One thread looks
 * once a second; what a request costs here is two stores.
 *
 * It also finds clients that closed their side together with their last bytes:
 * the library (0.9.75) reads those, asks for no more, and would keep the
 * connection until it is idle for too long.
 */
#ifndef HB_SERVER_HTTP_PEERS_H
#define HB_SERVER_HTTP_PEERS_H

#include <stdint.h>

struct hb_http_timeouts;
struct hb_http_timeout;

/* NULL = no memory or no thread. */
struct hb_http_timeouts *hb_http_timeouts_new(uint32_t idle_s);
/* When every connection is gone. NULL is allowed. */
void hb_http_timeouts_free(struct hb_http_timeouts *peers);

/* A connection is there. NULL = no memory: it is not watched. */
struct hb_http_timeout *hb_http_timeouts_add(struct hb_http_timeouts *peers, int fd);
/* Before its descriptor is closed. NULL is allowed here and below. */
void hb_http_timeouts_remove(struct hb_http_timeouts *peers, struct hb_http_timeout *peer);
/* The next request may come: its time begins. */
void hb_http_timeout_start(struct hb_http_timeout *peer);
/* So many bytes of a body have come. */
void hb_http_timeout_extend(struct hb_http_timeout *peer, uint64_t bytes);
/* The request is whole: its client waits for us now. */
void hb_http_timeout_stop(struct hb_http_timeout *peer);

#endif
