/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a tenant of an MPS server that an earlier daemon of this user started
 * and left. The server's shim registers by itself only when a program becomes
 * its client, so the daemon takes the server's page from /proc instead.
 */
#ifndef HB_DAEMON_MPS_TAKEOVER_H
#define HB_DAEMON_MPS_TAKEOVER_H

#include "daemon/daemon.h"

/*
 * 0: the server is a tenant now, or was one before.
 * -EPERM: the process is not an MPS server, was not started with the daemon's token, or its
 * environment cannot be read. -ENOENT: it has no page. Or another negative errno.
 */
int hb_mps_take_over(struct hb_daemon *daemon, pid_t server);

#endif
