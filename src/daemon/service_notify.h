/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells systemd how the daemon is (sd_notify's protocol: a datagram to the
 * socket in NOTIFY_SOCKET). Nothing happens where nobody asked. Used by
 * daemon.c and hbd.c; one thread.
 */
#ifndef HB_DAEMON_SERVICE_NOTIFY_H
#define HB_DAEMON_SERVICE_NOTIFY_H

#include <stdint.h>

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and takes them out of the environment, so that no child speaks for us. */
void hb_service_init(void);
/* "READY=1", "STOPPING=1", lines separated by newlines. */
void hb_service_report(const char *state);
/* "RELOADING=1" with the time that systemd wants to see. */
void hb_service_report_reloading(int64_t now_ns);
/* Call it from the event loop: pats the watchdog in time, where there is one. */
void hb_service_alive(int64_t now_ns);

#endif
