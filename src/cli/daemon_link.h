/* SPDX-License-Identifier: Apache-2.0 */
/* How the commands reach the daemon: find its socket, start one where none runs. Used by run, status and doctor. */
#ifndef HB_CLI_DAEMON_LINK_H
#define HB_CLI_DAEMON_LINK_H

#include "base/error.h"
#include "protocol/socket_path.h"

#include <stdbool.h>

/*
 * Connects to the daemon for real or simulated GPUs. `start`: start a per-user
 * one when none answers; many may try at once, one daemon comes of it. A
 * descriptor (and the socket's path) or negative errno with *error.
 */
int hb_daemon_link(bool simulated, bool start, char path[HB_PATH_MAX], struct hb_error *error);

/* This result of talking to the daemon means that there is none, or that it is just ending: link again. */
bool hb_daemon_gone(int result);

#endif
