/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancels the request of a client that closes its connection while the request
 * waits: HTTP/1 has no other way to cancel. One thread waits for closed sockets;
 * the HTTP server says which sockets to watch.
 */
#ifndef HB_SERVER_DISCONNECT_WATCH_H
#define HB_SERVER_DISCONNECT_WATCH_H

#include "server/models/dispatch_load.h"

struct hb_disconnect_watch;

/* The functions with which the watch handles one kind of request. */
struct hb_disconnect_kind {
	void (*hold)(void *request);
	void (*release)(void *request);
	void (*cancel)(struct hb_dispatch *dispatch, void *request);
};

extern const struct hb_disconnect_kind hb_disconnect_inference; /* struct hb_inference */
extern const struct hb_disconnect_kind hb_disconnect_load;      /* struct hb_load */

/* Creates the watch and its thread. Returns NULL without memory, descriptors or threads. */
struct hb_disconnect_watch *hb_disconnect_watch_new(struct hb_dispatch *dispatch);
void hb_disconnect_watch_free(struct hb_disconnect_watch *watch);
/* Cancels the request if the peer of this socket closes it before hb_disconnect_watch_remove(). */
void hb_disconnect_watch_add(struct hb_disconnect_watch *watch, int fd, void *request,
			     const struct hb_disconnect_kind *kind);
void hb_disconnect_watch_remove(struct hb_disconnect_watch *watch, int fd);

#endif
