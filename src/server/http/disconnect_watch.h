/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that clients have closed their connection while their request waits,
 * and cancels it. HTTP/1 has no other way to say so. One thread; the HTTP front
 * end tells it which sockets to look at.
 */
#ifndef HB_SERVER_DISCONNECT_WATCH_H
#define HB_SERVER_DISCONNECT_WATCH_H

#include "server/models/dispatch.h"

struct hb_disconnect_watch;

/* NULL = no memory, no descriptor or no thread. */
struct hb_disconnect_watch *hb_disconnect_watch_new(struct hb_dispatch *dispatch);
void hb_disconnect_watch_free(struct hb_disconnect_watch *watch);
/* From now until forget, the request of this socket is cancelled when its peer has gone. */
void hb_disconnect_watch_add(struct hb_disconnect_watch *watch, int fd, struct hb_inference *infer);
void hb_disconnect_watch_forget(struct hb_disconnect_watch *watch, int fd);

#endif
