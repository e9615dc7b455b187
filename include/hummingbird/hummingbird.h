/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hummingbird's public names. Applications may include what lies in this
 * folder; nothing here needs CUDA or a running daemon.
 */
#ifndef HUMMINGBIRD_H
#define HUMMINGBIRD_H

/* Version of the installed files; the daemon's own is in `hb --version`. */
#define HB_VERSION_MAJOR 0
#define HB_VERSION_MINOR 1
#define HB_VERSION_PATCH 0

#endif
