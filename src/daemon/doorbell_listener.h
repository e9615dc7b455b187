/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes the event loop when a shim rings the doorbell of a GPU page
 * (hb_gpu_page.doorbell). A thread sleeps on the futex word, because libuv cannot
 * wait for one. The thread uses only the word and an eventfd (a uv_async_t would
 * let its loop spin until the thread runs again), and wakes the loop at most once
 * a millisecond, however often shims ring. Made by gpu_poll.c.
 */
#ifndef HB_DAEMON_DOORBELL_LISTENER_H
#define HB_DAEMON_DOORBELL_LISTENER_H

#include "hummingbird/page.h"

struct hb_doorbell_listener;

/* `page` and the eventfd must outlive the listener. NULL: the thread could not be made. */
struct hb_doorbell_listener *hb_doorbell_listener_new(struct hb_gpu_page *page, int event_fd);
/* Ends the thread. */
void hb_doorbell_listener_free(struct hb_doorbell_listener *listener);

#endif
