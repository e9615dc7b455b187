/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes connections whose requests arrive, or whose answers are taken, too
 * slowly. libmicrohttpd closes a connection on which nothing is transferred; a
 * client that sends or takes a little now and then would keep its connection and
 * its memory for days. Here a request has twice the idle limit to arrive, an
 * answer to be taken, and more time for each byte (transfer_rate.h). One thread
 * checks once a second; a request costs a few stores.
 *
 * The thread also closes connections whose clients closed their side together
 * with their last bytes: libmicrohttpd 0.9.75 reads those bytes, asks for no
 * more, and would keep the connection until it is idle for too long.
 */
#ifndef HB_SERVER_HTTP_TIMEOUTS_H
#define HB_SERVER_HTTP_TIMEOUTS_H

#include <stdint.h>

struct hb_http_timeouts;
struct hb_http_timeout; /* the timeout of one connection */

/* Starts the checking thread. Returns NULL without memory or threads. */
struct hb_http_timeouts *hb_http_timeouts_new(uint32_t idle_s);
/* Call when all connections are closed. NULL is allowed. */
void hb_http_timeouts_free(struct hb_http_timeouts *timeouts);

/* Starts the timeout of a new connection. Returns NULL without memory; the connection then has no timeout. */
struct hb_http_timeout *hb_http_timeouts_add(struct hb_http_timeouts *timeouts, int fd);
/* Call before the descriptor is closed. A timeout of NULL is allowed here and below. */
void hb_http_timeouts_remove(struct hb_http_timeouts *timeouts, struct hb_http_timeout *timeout);
/* Starts to wait for the client: the server can receive the next request. */
void hb_http_timeout_start(struct hb_http_timeout *timeout);
/* Starts to wait until the client has taken the answer. hb_http_timeout_start() or _remove() ends that. */
void hb_http_timeout_start_answer(struct hb_http_timeout *timeout);
/* Gives the client more time, because `bytes` bytes of a body have arrived, or of an answer were taken. */
void hb_http_timeout_extend(struct hb_http_timeout *timeout, uint64_t bytes);
/* Stops the timeout, because the request is complete and the client now waits for the server. */
void hb_http_timeout_stop(struct hb_http_timeout *timeout);

#endif
