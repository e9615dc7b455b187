/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of hbd: start, serving the GPUs, the periodic tick, reload and
 * end. No program waits for the daemon: if it dies, its heartbeats stop, shims
 * then treat all gates as open, and every program continues.
 */
#ifndef HB_DAEMON_DAEMON_LOOP_H
#define HB_DAEMON_DAEMON_LOOP_H

#include "base/error.h"
#include "daemon/daemon.h"

/* Runs until a signal or a long time without tenants ends the daemon. 0 or negative errno with *error. */
int hb_daemon_run(const struct hb_daemon_options *options, struct hb_error *error);

#endif
