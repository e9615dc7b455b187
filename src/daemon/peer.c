/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a socket's peer; see peer.h. */
#include "daemon/peer.h"

#include "daemon/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* since Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* Returns negative errno if a call failed because the daemon has no descriptors or memory left; else 0. */
static int check_shortage(void)
{
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
}

/* An unknown cgroup is no error: then no rule for a unit or cgroup fits. A shortage of descriptors is one. */
static int read_cgroup(struct hb_peer *peer)
{
	/* Reads complete lines: users choose the names of cgroups, so the rest of a long line could look like another line. */
	char *line = NULL;
	size_t size = 0;
	FILE *file = hb_process_file(peer->pid, "cgroup");
	if (!file)
		return check_shortage();
	while (getline(&line, &size, file) > 0) {
		const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
		line[strcspn(line, "\n")] = '\0';
		if (path)
			hb_cgroup_place_add(&peer->place, path + 1); /* cgroup v1 has a line for each controller */
		if (strncmp(line, "0::", 3) != 0)
			continue;
		snprintf(peer->cgroup, sizeof peer->cgroup, "%.255s", line + 3);
	}
	free(line);
	fclose(file);
	return 0;
}

/* The daemon itself may run in a container, whose root then is its root. */
static bool is_contained(const struct hb_peer *peer)
{
	struct hb_peer own = {.pid = getpid()};
	if (hb_process_has_own_pids(peer->pid))
		return true;
	return peer->place.container[0] &&
	       (read_cgroup(&own) < 0 || strcmp(own.place.container, peer->place.container) != 0);
}

/* Takes the first service or scope, because users can make cgroups of any name below it. */
void hb_peer_unit(const char *cgroup, char *unit, size_t size)
{
	static const char *const kinds[] = {".slice", ".service", ".scope"};
	bool found = false;
	unit[0] = '\0';
	for (const char *part = cgroup; part && !found; part = strchr(part, '/')) {
		part += *part == '/';
		size_t length = strcspn(part, "/");
		for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
			size_t tail = strlen(kinds[i]);
			if (length <= tail || strncmp(part + length - tail, kinds[i], tail) != 0)
				continue;
			snprintf(unit, size, "%.*s", length < size ? (int)length : 0, part);
			found = i > 0;
		}
	}
}

int hb_peer_read(int socket, struct hb_peer *peer)
{
	struct ucred credentials;
	socklen_t size = sizeof credentials;
	memset(peer, 0, sizeof *peer);
	peer->pidfd = -1;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.pid <= 0) /* the process is in a pid namespace that the daemon cannot see */
		return -ESRCH;
	peer->pid = credentials.pid;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->start_ticks = hb_process_start_ticks(peer->pid);
	snprintf(peer->user, sizeof peer->user, "%u", (unsigned)peer->uid);
	return 0;
}

/* Whether the peer closed its end of the connection, or died and the kernel closed it. */
static bool has_hung_up(int socket)
{
	struct pollfd end = {.fd = socket, .events = POLLRDHUP};
	return poll(&end, 1, 0) > 0;
}

/*
 * Opens the process that connected. Before Linux 6.5 the kernel gives only its pid, which another process may have by now.
 * Then the process that connected has ended: its connection is closed, or the start time differs from the first reading.
 */
static int open_process(int socket, const struct hb_peer *peer)
{
	int pidfd;
	socklen_t size = sizeof pidfd;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT)
		return errno == EINVAL ? -ESRCH
				       : -errno; /* some kernels report in this way that the process has ended */
	pidfd = hb_process_open(peer->pid);
	if (pidfd < 0 || !has_hung_up(socket))
		return pidfd;
	close(pidfd);
	return -ESRCH;
}

int hb_peer_open(int socket, struct hb_peer *peer)
{
	int pidfd = open_process(socket, peer);
	if (pidfd < 0)
		return pidfd;
	peer->pidfd = pidfd;
	errno = 0;
	bool same = hb_process_start_ticks(peer->pid) == peer->start_ticks;
	int result = same ? 0 : check_shortage();
	if (result == 0)
		result = read_cgroup(peer);
	hb_peer_unit(peer->cgroup, peer->unit, sizeof peer->unit);
	peer->is_contained = is_contained(peer);
	if (result == 0 && same && hb_process_lives(peer->pidfd))
		return 0;
	hb_peer_close(peer);
	return result < 0 ? result : -ESRCH;
}

int hb_peer_of(pid_t pid, struct hb_peer *peer)
{
	int pidfd = hb_process_open(pid);
	if (pidfd < 0)
		return pidfd;
	*peer = (struct hb_peer){.pid = pid, .pidfd = pidfd, .start_ticks = hb_process_start_ticks(pid)};
	bool has_user = hb_process_user(pid, &peer->uid, &peer->gid);
	snprintf(peer->user, sizeof peer->user, "%u", (unsigned)peer->uid);
	int result = read_cgroup(peer);
	hb_peer_unit(peer->cgroup, peer->unit, sizeof peer->unit);
	if (result == 0 && has_user && hb_process_lives(pidfd))
		return 0;
	hb_peer_close(peer);
	return result < 0 ? result : -ESRCH;
}

void hb_peer_close(struct hb_peer *peer)
{
	if (peer->pidfd >= 0)
		close(peer->pidfd);
	peer->pidfd = -1;
}
