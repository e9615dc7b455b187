/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifies the process at the other end of a socket, for the rules of the
 * configuration. The kernel names the process (SO_PEERCRED, SO_PEERPIDFD), /proc
 * has the rest, and nothing comes from a message.
 */
#ifndef HB_DAEMON_PEER_H
#define HB_DAEMON_PEER_H

#include "daemon/cgroup_place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hb_peer {
	pid_t pid; /* in the daemon's pid namespace */
	uid_t uid;
	gid_t gid;
	uint64_t start_ticks; /* start time in ticks since boot; differs for a later process with the same pid */
	char user[64];        /* the uid in digits; on a connection the login name, if there is one (user_names.h) */
	int pidfd;            /* open between hb_peer_open() or hb_peer_of() and hb_peer_close(); else -1 */
	char cgroup[256];     /* path in the unified hierarchy; "" = not known */
	struct hb_cgroup_place place; /* container, pod, Slurm job: for people, and to tell containers apart */
	bool is_contained; /* it is in a container, or in a pid namespace of its own: its root is not the machine's */
	char unit[128];    /* unit of the system's systemd, see hb_peer_unit(); "" = not known */
	bool by_root;      /* root registered this process for its user (protocol/job_file.h) */
};

/* Reads pid, user, group and start time. 0, or negative errno when the kernel does not name the peer. */
int hb_peer_read(int socket, struct hb_peer *peer);
/*
 * Call it after hb_peer_read(): opens the process and reads cgroup and unit. 0: the process that connected is running, and
 * all fields are about that process. -ESRCH: it has ended. Or another negative errno.
 */
int hb_peer_open(int socket, struct hb_peer *peer);
/* Reads all fields of a process that did not connect. 0, -ESRCH or another negative errno. */
int hb_peer_of(pid_t pid, struct hb_peer *peer);
void hb_peer_close(struct hb_peer *peer);
/* Writes the systemd unit in a cgroup path: its first service or scope, else its last slice; "" = there is none. */
void hb_peer_unit(const char *cgroup, char *unit, size_t size);

#endif
