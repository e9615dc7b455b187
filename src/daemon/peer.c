/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a socket's peer; see peer.h. */
#include "daemon/peer.h"

#include "daemon/process.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* since Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* By errno: it is we who lack something, which says nothing of the other process. 0 or negative errno. */
static int lack(void)
{
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
}

/* Where that cannot be told no rule for a unit or cgroup fits; but not because we have no descriptor left. */
static int read_cgroup(struct hb_peer *peer)
{
	/* Whole lines: the rest of a long one may look like a line of its own, and users name cgroups as they like. */
	char *line = NULL;
	size_t size = 0;
	FILE *file = hb_process_file(peer->pid, "cgroup");
	if (!file)
		return lack();
	while (getline(&line, &size, file) > 0) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(peer->cgroup, sizeof peer->cgroup, "%.255s", line + 3);
	}
	free(line);
	fclose(file);
	return 0;
}

/* The first service or scope: below it users may have made folders of any name. Where there is none, the last slice. */
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

static void read_user(struct hb_peer *peer)
{
	char buffer[4096];
	struct passwd entry, *found = NULL;
	if (getpwuid_r(peer->uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
		snprintf(peer->user, sizeof peer->user, "%s", found->pw_name);
	else
		snprintf(peer->user, sizeof peer->user, "%u", (unsigned)peer->uid);
}

int hb_peer_read(int socket, struct hb_peer *peer)
{
	struct ucred credentials;
	socklen_t size = sizeof credentials;
	memset(peer, 0, sizeof *peer);
	peer->pidfd = -1;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.pid <= 0) /* lives in a pid namespace that we cannot see into */
		return -ESRCH;
	peer->pid = credentials.pid;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->start_ticks = hb_process_start_ticks(peer->pid);
	read_user(peer);
	return 0;
}

/* Whoever connected has closed its end, as the kernel does at its death where it had not handed it on. */
static bool has_hung_up(int socket)
{
	struct pollfd end = {.fd = socket, .events = POLLRDHUP};
	return poll(&end, 1, 0) != 0;
}

/*
 * The process that connected. Before Linux 6.5 only its pid can be had, and another process may have got that since: then
 * it started later than what was seen at first, or whoever connected has ended, and hung up.
 */
static int open_process(int socket, const struct hb_peer *peer)
{
	int pidfd;
	socklen_t size = sizeof pidfd;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT)
		return errno == EINVAL ? -ESRCH : -errno; /* how some kernels say that it has ended */
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
	int result = same ? 0 : lack();
	if (result == 0)
		result = read_cgroup(peer);
	hb_peer_unit(peer->cgroup, peer->unit, sizeof peer->unit);
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
	read_user(peer);
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
