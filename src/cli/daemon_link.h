/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a command to the daemon: finds its socket, and starts a daemon when none runs. */
#ifndef HB_CLI_DAEMON_LINK_H
#define HB_CLI_DAEMON_LINK_H

#include "base/error.h"
#include "protocol/socket_path.h"

#include <stdbool.h>

/*
 * Connects to the daemon for real or simulated GPUs. With `start`, starts a per-user daemon when none answers; when several
 * commands do that at the same time, only one daemon remains. Returns a descriptor, with the socket's path in `path`, or a
 * negative errno with *error.
 */
int hb_daemon_link(bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error);

/* Returns whether this result means that no daemon runs, or that it is just ending: the caller should connect again. */
bool hb_daemon_gone(int result);

#endif
