/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the daemon's state to systemd (the protocol of sd_notify: a datagram to
 * the socket in NOTIFY_SOCKET). Does nothing if systemd did not start the daemon.
 * For the loop's thread, but for hb_service_alive().
 */
#ifndef HB_DAEMON_SERVICE_NOTIFY_H
#define HB_DAEMON_SERVICE_NOTIFY_H

#include <stdint.h>

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so that no child uses them. */
void hb_service_init(void);
/* Sends a state such as "READY=1" or "STOPPING=1"; several lines are separated by newlines. */
void hb_service_report(const char *state);
/* Sends "RELOADING=1" with the time that systemd requires. */
void hb_service_report_reloading(int64_t now_ns);
/* Called by the thread of the heartbeat: notifies the watchdog in time, if there is one. */
void hb_service_alive(int64_t now_ns);

#endif
