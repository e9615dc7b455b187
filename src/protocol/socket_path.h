/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the daemon's socket and folder. Used by hbd, hb and the shim. The first
 * of these applies:
 *
 *   $HB_SOCKET, if set
 *   /run/hummingbird/hbd.sock, if a system-wide daemon made it and this user may use it
 *   DIR/hbd.sock, DIR = $XDG_RUNTIME_DIR/hummingbird, else /run/user/UID/hummingbird,
 *   else /tmp/hummingbird-UID, a folder that only this user may enter
 */
#ifndef HB_PROTOCOL_SOCKET_PATH_H
#define HB_PROTOCOL_SOCKET_PATH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define HB_SYSTEM_DIR "/run/hummingbird"
#define HB_SOCKET_NAME "hbd.sock"
#define HB_SOCKET_NAME_SIMULATED "hbd-sim.sock" /* daemons for real and for simulated GPUs may run at the same time */
#define HB_PATH_MAX 108 /* length of a socket's path with its NUL: sizeof sockaddr_un.sun_path */

/*
 * Finds the user's folder and makes it (mode 0700) if it is missing. 0, or
 * negative errno with *error: -EPERM when the folder belongs to another user or
 * other users may enter it.
 */
int hb_runtime_dir(char path[HB_PATH_MAX], struct hb_error *error);

/* Finds the socket to connect to, without making or checking anything. 0 or negative errno. */
int hb_socket_path(bool simulated, char path[HB_PATH_MAX]);

#endif
