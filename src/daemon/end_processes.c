/* SPDX-License-Identifier: Apache-2.0 */
/* See end_processes.h. */
#include "daemon/end_processes.h"

#include "daemon/process.h"
#include "daemon/process_page.h"
#include "protocol/daemon_client.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A process may start another one while the list is read. */
#define SCANS 3

struct wanted_processes {
	uid_t owner;
	uint64_t page; /* inode number of the tenant's page; 0 = there is none */
	char variable[sizeof "HB_TENANT=" + 2 * HB_TOKEN_BYTES];
};

/* A program may have overwritten its environment, but not the slot that the daemon gave it on a tenant's page. */
static bool has_page(pid_t pid, uint64_t inode)
{
	int page_fd = inode == 0 ? -ENOENT : hb_process_open_page(pid, hb_process_start_ticks(pid), inode);
	if (page_fd >= 0)
		close(page_fd);
	return page_fd >= 0;
}

/* What is read is true of the process behind the pidfd, because that process still exists when the signal is sent. */
static bool end_process(pid_t pid, const struct wanted_processes *wanted)
{
	uid_t uid;
	gid_t gid;
	int pidfd = hb_process_open(pid);
	if (pidfd < 0)
		return false;
	bool is_meant = hb_process_user(pid, &uid, &gid) && uid == wanted->owner &&
			(hb_process_began_with(pid, wanted->variable) || has_page(pid, wanted->page));
	bool ended = is_meant && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
	close(pidfd);
	return ended;
}

static unsigned end_listed(const struct wanted_processes *wanted)
{
	unsigned n = 0;
	DIR *folder = opendir("/proc");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		/* The daemon itself may have been started by a process of the tenant. */
		if (pid > 1 && pid != getpid() && pid != getppid())
			n += end_process(pid, wanted);
	}
	if (folder)
		closedir(folder);
	return n;
}

int hb_end_processes_main(void)
{
	char token[2 * HB_TOKEN_BYTES + 1];
	struct wanted_processes wanted;
	unsigned n = 0;
	_Static_assert(HB_TOKEN_BYTES == 16, "the format below reads 32 digits");
	if (scanf("%u %32s %" SCNu64, &wanted.owner, token, &wanted.page) != 3)
		return 2;
	snprintf(wanted.variable, sizeof wanted.variable, "HB_TENANT=%s", token);
	for (int i = 0; i < SCANS; i++) {
		unsigned found = end_listed(&wanted);
		n += found;
		if (!found)
			break;
	}
	printf("%u\n", n);
	return 0;
}
