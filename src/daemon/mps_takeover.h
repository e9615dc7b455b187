/* SPDX-License-Identifier: Apache-2.0 */
/* Takes over an MPS server that an earlier daemon of ours started and left. Called by mps_server.c. */
#ifndef HB_DAEMON_MPS_TAKEOVER_H
#define HB_DAEMON_MPS_TAKEOVER_H

#include "daemon/daemon.h"

/*
 * The server does not come back by itself before a program becomes its client: what it would hand over, its page, is had
 * through /proc. 0: it is a tenant as if it had registered. -EPERM: it was not started with our token, or what it was
 * started with cannot be seen; -ENOENT: it has no page; other negative errno.
 */
int hb_mps_take_over(struct hb_daemon *daemon, pid_t server);

#endif
