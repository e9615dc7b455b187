/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a socket: identity from SO_PEERCRED, the rest from
 * /proc. What policy rules look at. Nothing here comes from a message.
 */
#ifndef HB_DAEMON_PEER_H
#define HB_DAEMON_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hb_peer {
	pid_t pid; /* in our pid namespace */
	uid_t uid;
	gid_t gid;
	uint64_t start_ticks; /* start of the process since boot; tells it from a later one with the same pid */
	char user[64];        /* login name, or the uid in digits */
	char cgroup[256];     /* path in the unified hierarchy, "" = not known */
	char unit[128];       /* systemd unit of the system: its first service or scope, else its last slice */
};

/* 0, or negative errno when the peer cannot be told. */
int hb_peer_read(int socket, struct hb_peer *peer);
/* Field 22 of /proc/PID/stat; 0 = no such process. */
uint64_t hb_peer_start_ticks(pid_t pid);
/* Stopped by a signal or a debugger. */
bool hb_peer_is_stopped(pid_t pid);
/* The systemd unit in a cgroup path: "" when there is none. */
void hb_peer_unit(const char *cgroup, char *unit, size_t size);

#endif
