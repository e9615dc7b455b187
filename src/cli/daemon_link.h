/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a command to the daemon: finds its socket, and starts a daemon when none runs. */
#ifndef HB_CLI_DAEMON_LINK_H
#define HB_CLI_DAEMON_LINK_H

#include "base/error.h"
#include "protocol/socket_path.h"

#include <stdbool.h>
#include <stdint.h>

/* Limits of a command that waits for the daemon: a daemon that lives answers within milliseconds, also on a busy machine. */
#define HB_ANSWER_LIMIT_MS 10000
#define HB_LINK_LIMIT_MS 30000 /* starting a daemon included: the driver may take seconds to start on several GPUs */

/*
 * Connects to the daemon for real or simulated GPUs. With `start`, starts a per-user daemon when none answers; when several
 * commands do that at the same time, only one daemon remains. Returns a descriptor, with the socket's path in `path`, or a
 * negative errno with *error.
 */
int hb_daemon_link(bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error);

/* As hb_daemon_link() with `start`, but returns before this time of hb_clock_now_ns(). */
int hb_daemon_link_until(int64_t until_ns, bool simulated, char path[HB_PATH_MAX], struct hb_error *error);

/* Returns whether this result means that no daemon runs, or that it is just ending: the caller should connect again. */
bool hb_daemon_gone(int result);

#endif
