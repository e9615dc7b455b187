/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of Hummingbird's public headers. Applications may include every
 * header of this folder; none of them needs CUDA or a running daemon.
 */
#ifndef HUMMINGBIRD_H
#define HUMMINGBIRD_H

/* Version of the installed headers; `hb --version` prints the version of the programs. */
#define HB_VERSION_MAJOR 0
#define HB_VERSION_MINOR 1
#define HB_VERSION_PATCH 0

#endif
