/* SPDX-License-Identifier: Apache-2.0 */
/* See end_processes.h. */
#include "daemon/end_processes.h"

#include "daemon/process.h"
#include "protocol/daemon_client.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A process may start another one while the list is read. */
#define SCANS 3

/* What is read is true of the process behind the pidfd, because that process still exists when the signal is sent. */
static bool end_process(pid_t pid, uid_t owner, const char *variable)
{
	uid_t uid;
	gid_t gid;
	int pidfd = hb_process_open(pid);
	if (pidfd < 0)
		return false;
	bool is_meant = hb_process_user(pid, &uid, &gid) && uid == owner && hb_process_began_with(pid, variable);
	bool ended = is_meant && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
	close(pidfd);
	return ended;
}

static unsigned end_listed(uid_t owner, const char *variable)
{
	unsigned n = 0;
	DIR *folder = opendir("/proc");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		/* The daemon itself may have been started by a process of the tenant. */
		if (pid > 1 && pid != getpid() && pid != getppid())
			n += end_process(pid, owner, variable);
	}
	if (folder)
		closedir(folder);
	return n;
}

int hb_end_processes_main(void)
{
	char token[2 * HB_TOKEN_BYTES + 1], variable[sizeof "HB_TENANT=" + 2 * HB_TOKEN_BYTES];
	unsigned uid, n = 0;
	_Static_assert(HB_TOKEN_BYTES == 16, "the format below reads 32 digits");
	if (scanf("%u %32s", &uid, token) != 2)
		return 2;
	snprintf(variable, sizeof variable, "HB_TENANT=%s", token);
	for (int i = 0; i < SCANS; i++) {
		unsigned found = end_listed((uid_t)uid, variable);
		n += found;
		if (!found)
			break;
	}
	printf("%u\n", n);
	return 0;
}
