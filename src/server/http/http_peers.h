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
#ifndef HB_FRONT_HTTP_PEERS_H
#define HB_FRONT_HTTP_PEERS_H

#include <stdint.h>

struct hb_http_peers;
struct hb_http_peer;

/* NULL = no memory or no thread. */
struct hb_http_peers *hb_http_peers_new(uint32_t idle_s);
/* When every connection is gone. NULL is allowed. */
void hb_http_peers_free(struct hb_http_peers *peers);

/* A connection is there. NULL = no memory: it is not watched. */
struct hb_http_peer *hb_http_peers_add(struct hb_http_peers *peers, int fd);
/* Before its descriptor is closed. NULL is allowed here and below. */
void hb_http_peers_remove(struct hb_http_peers *peers, struct hb_http_peer *peer);
/* The next request may come: its time begins. */
void hb_http_peer_listens(struct hb_http_peer *peer);
/* So many bytes of a body have come. */
void hb_http_peer_came(struct hb_http_peer *peer, uint64_t bytes);
/* The request is whole: its client waits for us now. */
void hb_http_peer_served(struct hb_http_peer *peer);

#endif
