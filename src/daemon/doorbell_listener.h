/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes the event loop when a tenant rings its doorbell for a GPU
 * (hb_page_gpu.doorbell). A thread sleeps on the futex word, because libuv cannot
 * wait for one, and Linux before 5.16 cannot wait for several in one thread. The
 * thread uses only the word and an eventfd (a uv_async_t would let its loop spin
 * until the thread runs again). It wakes the loop at most once a millisecond, and
 * less often for a tenant that rings all the time. Made by gpu_poll.c.
 */
#ifndef HB_DAEMON_DOORBELL_LISTENER_H
#define HB_DAEMON_DOORBELL_LISTENER_H

#include "hummingbird/page.h"

struct hb_doorbell_listener;

/* The word and the eventfd must outlive the listener. NULL: the thread could not be made. */
struct hb_doorbell_listener *hb_doorbell_listener_new(hb_page_u32 *doorbell, int event_fd);
/* Ends the thread and waits for its end, whatever the tenant writes meanwhile. */
void hb_doorbell_listener_free(struct hb_doorbell_listener *listener);

#endif
