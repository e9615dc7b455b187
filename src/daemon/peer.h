/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a socket: identity from SO_PEERCRED and
 * SO_PEERPIDFD, the rest from /proc. What policy rules look at. Nothing here
 * comes from a message.
 */
#ifndef HB_DAEMON_PEER_H
#define HB_DAEMON_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hb_peer {
	pid_t pid; /* in our pid namespace */
	uid_t uid;
	gid_t gid;
	uint64_t start_ticks; /* start of the process since boot; tells it from a later one with the same pid */
	char user[64];        /* login name, or the uid in digits */
	int pidfd;            /* between hb_peer_open() or hb_peer_of() and hb_peer_close(); else -1 */
	char cgroup[256];     /* path in the unified hierarchy, "" = not known */
	char unit[128];       /* systemd unit of the system: its first service or scope, else its last slice */
};

/* Who it is, but neither cgroup nor unit. 0, or negative errno when the peer cannot be told. */
int hb_peer_read(int socket, struct hb_peer *peer);
/*
 * After hb_peer_read(): opens the process and reads the rest. 0: all that is known is of the process that connected, which
 * lives. Negative errno; -ESRCH: it has ended.
 */
int hb_peer_open(int socket, struct hb_peer *peer);
/* The same of a process that did not connect. 0, -ESRCH or other negative errno. */
int hb_peer_of(pid_t pid, struct hb_peer *peer);
void hb_peer_close(struct hb_peer *peer);
/* The systemd unit in a cgroup path: "" when there is none. */
void hb_peer_unit(const char *cgroup, char *unit, size_t size);

#endif
