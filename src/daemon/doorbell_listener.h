/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hears the bell of a GPU's page (hb_gpu_page.bell) and calls the event loop: a
 * thread that sleeps on the futex word, for libuv cannot. It touches nothing
 * but the word and one eventfd (a uv_async_t has its loop spin until the caller
 * runs again), and calls at most once a millisecond, however often somebody
 * rings. Made by device_looks.c when there is something to listen for.
 */
#ifndef HB_DAEMON_BELL_LISTENER_H
#define HB_DAEMON_BELL_LISTENER_H

#include "hummingbird/page.h"

struct hb_doorbell_listener;

/* `page` and the eventfd must outlive it. NULL: no thread could be made; then nobody listens. */
struct hb_doorbell_listener *hb_doorbell_listener_new(struct hb_gpu_page *page, int event_fd);
/* Ends the thread. */
void hb_doorbell_listener_free(struct hb_doorbell_listener *listener);

#endif
