/* SPDX-License-Identifier: Apache-2.0 */
/* See process.h. */
#include "daemon/process.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int hb_process_open(pid_t pid)
{
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd >= 0)
		return pidfd;
	return pid > 0 ? -errno : -ESRCH;
}

bool hb_process_lives(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	return poll(&end, 1, 0) == 0;
}

FILE *hb_process_file(pid_t pid, const char *file)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	return fopen(path, "re");
}

/* Reads /proc/PID/stat into `line`. Returns the text from field `number` (3 and up) on; NULL = no such process. */
static const char *read_stat(pid_t pid, int number, char *line, int size)
{
	FILE *file = hb_process_file(pid, "stat");
	if (!file)
		return NULL;
	char *read = fgets(line, size, file);
	fclose(file);
	/* The second field is the program's name and may contain any text: fields are counted from its last parenthesis. */
	char *field = read ? strrchr(line, ')') : NULL;
	for (int i = 2; field && i < number; i++)
		field = strchr(field + 1, ' ');
	return field ? field + 1 : NULL;
}

uint64_t hb_process_start_ticks(pid_t pid)
{
	char line[1024];
	const char *field = read_stat(pid, 22, line, sizeof line);
	return field ? strtoull(field, NULL, 10) : 0;
}

uint64_t hb_process_image(pid_t pid)
{
	char line[1024];
	const char *field = read_stat(pid, 28, line, sizeof line);
	return field ? strtoull(field, NULL, 10) : 0;
}

bool hb_process_is_stopped(pid_t pid)
{
	char line[1024];
	const char *state = read_stat(pid, 3, line, sizeof line);
	return state && (*state == 'T' || *state == 't');
}

bool hb_process_user(pid_t pid, uid_t *uid, gid_t *gid)
{
	/* The owner of /proc/PID is root for programs without core dumps, so the user is read from the file. */
	char line[256];
	unsigned real, effective, found = 0;
	FILE *file = hb_process_file(pid, "status");
	while (file && found < 2 && fgets(line, sizeof line, file)) {
		if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
			*uid = effective;
		else if (sscanf(line, "Gid: %u %u", &real, &effective) == 2)
			*gid = effective;
		else
			continue;
		found++;
	}
	if (file)
		fclose(file);
	return found == 2;
}

bool hb_process_began_with(pid_t pid, const char *variable)
{
	char *entry = NULL;
	size_t size = 0;
	bool found = false;
	FILE *file = hb_process_file(pid, "environ");
	while (file && !found && getdelim(&entry, &size, '\0', file) > 0)
		found = strcmp(entry, variable) == 0;
	free(entry);
	if (file)
		fclose(file);
	return found;
}
