/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's heartbeat, on a thread of its own: writes the time to all tenant pages and to the lock of the socket, and
 * reports to systemd's watchdog. A slow event loop does not delay it. A hung loop stops the heartbeat: once no turn of the loop
 * has been finished for HB_HEARTBEAT_HANG_NS, nothing is written any more, tenants open their gates, and the watchdog
 * replaces the daemon.
 */
#ifndef HB_DAEMON_HEARTBEAT_H
#define HB_DAEMON_HEARTBEAT_H

#include "hummingbird/page.h"

#define HB_HEARTBEAT_HANG_NS INT64_C(5000000000)

struct hb_heartbeat;
struct hb_socket_lock;

/* `lock` (NULL = none) must live as long as the heartbeat. 0 or negative errno. */
int hb_heartbeat_new(struct hb_socket_lock *lock, struct hb_heartbeat **heartbeat);
/* Stops the thread. NULL is allowed here and below. */
void hb_heartbeat_free(struct hb_heartbeat *heartbeat);
/* A turn of the loop has ended. */
void hb_heartbeat_turn(struct hb_heartbeat *heartbeat);
/* Writes the time to this word from now on; NULL = no longer. `index`: of the tenant. */
void hb_heartbeat_set(struct hb_heartbeat *heartbeat, uint32_t index, hb_page_i64 *word);

#endif
