/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's socket and files are. Used by hbd, hb and the shim.
 *
 *   $HB_SOCKET, where it is set
 *   /run/hummingbird/hbd.sock, where a system-wide daemon has made one we may use
 *   DIR/hbd.sock, DIR = $XDG_RUNTIME_DIR/hummingbird, else /run/user/UID/hummingbird,
 *   else /tmp/hummingbird-UID: a folder of our own that nobody else may enter
 */
#ifndef HB_DAEMON_SOCKET_PATH_H
#define HB_DAEMON_SOCKET_PATH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define HB_SYSTEM_DIR "/run/hummingbird"
#define HB_SOCKET_NAME "hbd.sock"
#define HB_SOCKET_NAME_SIMULATED "hbd-sim.sock" /* daemons for real and simulated GPUs live side by side */
#define HB_PATH_MAX 108                         /* a socket's path with its NUL: sizeof sockaddr_un.sun_path */

/*
 * The user's folder, made (mode 0700) when it is missing. 0, or negative errno
 * with *error: -EPERM when a folder is there that is not ours alone.
 */
int hb_runtime_dir(char path[HB_PATH_MAX], struct hb_error *error);

/* The socket to connect to; makes nothing and checks nothing. 0 or negative errno. */
int hb_socket_path(bool simulated, char path[HB_PATH_MAX]);

#endif
