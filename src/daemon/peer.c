/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a socket's peer; see peer.h. */
#include "daemon/peer.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static FILE *open_proc(pid_t pid, const char *file)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	return fopen(path, "re");
}

/* The text of field `number` (3 and up) of /proc/PID/stat and what follows it, in `line`; NULL = no such process. */
static const char *read_stat(pid_t pid, int number, char *line, int size)
{
	FILE *file = open_proc(pid, "stat");
	if (!file)
		return NULL;
	char *read = fgets(line, size, file);
	fclose(file);
	/* The second field is the program's name and may hold anything: count from its last parenthesis. */
	char *field = read ? strrchr(line, ')') : NULL;
	for (int i = 2; field && i < number; i++)
		field = strchr(field + 1, ' ');
	return field ? field + 1 : NULL;
}

uint64_t hb_peer_start_ticks(pid_t pid)
{
	char line[1024];
	const char *field = read_stat(pid, 22, line, sizeof line);
	return field ? strtoull(field, NULL, 10) : 0;
}

bool hb_peer_is_stopped(pid_t pid)
{
	char line[1024];
	const char *state = read_stat(pid, 3, line, sizeof line);
	return state && (*state == 'T' || *state == 't');
}

static void read_cgroup(struct hb_peer *peer)
{
	/* Whole lines: the rest of a long one may look like a line of its own, and users name cgroups as they like. */
	char *line = NULL;
	size_t size = 0;
	FILE *file = open_proc(peer->pid, "cgroup");
	if (!file)
		return;
	while (getline(&line, &size, file) > 0) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(peer->cgroup, sizeof peer->cgroup, "%.255s", line + 3);
	}
	free(line);
	fclose(file);
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
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.pid <= 0) /* lives in a pid namespace that we cannot see into */
		return -ESRCH;
	peer->pid = credentials.pid;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->start_ticks = hb_peer_start_ticks(peer->pid);
	read_cgroup(peer);
	hb_peer_unit(peer->cgroup, peer->unit, sizeof peer->unit);
	read_user(peer);
	return 0;
}
