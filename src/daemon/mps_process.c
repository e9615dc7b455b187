/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_process.h. */
#include "daemon/mps_process.h"

#include "daemon/page_memory.h"
#include "daemon/process.h"
#include "gpu/provider.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t hb_mps_read_program(pid_t pid, char name[256])
{
	char path[32], target[4096];
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	const char *slash = strrchr(target, '/');
	snprintf(name, 256, "%.255s", slash ? slash + 1 : target);
	return strlen(name);
}

/* --- whether a process is the server --------------------------------------------------------- */

static bool runs_program(pid_t pid, const char *program)
{
	char path[32], target[PATH_MAX];
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	size_t length = strlen(program);
	/* The kernel adds " (deleted)" when an update of the driver has replaced the file meanwhile. */
	return strncmp(target, program, length) == 0 && (!target[length] || strcmp(target + length, " (deleted)") == 0);
}

static bool is_control_of_ours(pid_t pid, const char *program)
{
	uid_t uid;
	gid_t gid;
	return hb_process_user(pid, &uid, &gid) && uid == geteuid() && runs_program(pid, program);
}

/* The server has the control program's name with "server" in place of "control". */
static bool has_server_name(pid_t pid, const char *program)
{
	char name[256], expected[256];
	const char *slash = strrchr(program, '/'), *kind = strstr(slash ? slash : program, "control");
	hb_mps_read_program(pid, name);
	name[strcspn(name, " ")] = '\0'; /* "(deleted)" may follow */
	if (!slash || !kind)
		return false;
	snprintf(expected, sizeof expected, "%.*sserver", (int)(kind - slash - 1), slash + 1);
	return strcmp(name, expected) == 0;
}

/*
 * The user of a server can read its environment and could start programs with the same variables. So the token alone
 * does not identify the server. Only the control program starts servers, and no other user can run a process as root's.
 */
bool hb_mps_is_server(bool simulated, pid_t pid)
{
	char found[PATH_MAX], program[PATH_MAX];
	const char *why;
	if (hb_provider_of(simulated)->mps_control(found, sizeof found, &why) < 0 || !realpath(found, program))
		return false;
	pid_t parent = hb_process_parent(pid);
	return parent > 1 && is_control_of_ours(parent, program) && has_server_name(pid, program) &&
	       hb_process_parent(pid) == parent;
}

/* --- its page ---------------------------------------------------------------------------------- */

/* The number of the mount of an open file; -1 = not known. Asks the kernel only, never the file's file system. */
static long mount_of(int fd)
{
	char path[64], line[64];
	long id = -1;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "re");
	while (file && id < 0 && fgets(line, sizeof line, file))
		if (sscanf(line, "mnt_id: %ld", &id) != 1)
			id = -1;
	if (file)
		fclose(file);
	return id;
}

/*
 * Opens a file of another process if it is a memfd. Other files stay untouched, because a file on a file system of the
 * other process (FUSE) could make open() wait. `memfds` is the mount of memfds. Returns a descriptor or -1.
 */
static int open_memfd(int folder, const char *name, long memfds)
{
	char own[32];
	int result = -1, seen = openat(folder, name, O_PATH | O_CLOEXEC);
	if (seen < 0)
		return -1;
	snprintf(own, sizeof own, "/proc/self/fd/%d", seen);
	if (memfds >= 0 && mount_of(seen) == memfds)
		result = open(own, O_RDWR | O_CLOEXEC);
	close(seen);
	return result;
}

/* Whether it is a tenant page on which this very process has a slot. The process may have other tenants' pages open. */
static bool is_page_of(int fd, pid_t pid, uint64_t start_ticks)
{
	struct hb_page *page;
	bool found = false;
	if (hb_page_adopt(fd, &page) < 0)
		return false;
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES && !found; i++)
		found = page->processes[i].state == HB_PAGE_ACTIVE && page->processes[i].pid == (uint32_t)pid &&
			page->processes[i].start_ticks == start_ticks;
	hb_page_free(page, -1);
	return found;
}

int hb_mps_open_page(pid_t pid, uint64_t start_ticks)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	int sample = memfd_create("hb-sample", MFD_CLOEXEC);
	long memfds = sample < 0 ? -1 : mount_of(sample);
	if (sample >= 0)
		close(sample);
	DIR *folder = opendir(path);
	if (!folder)
		return -errno;
	int result = -ENOENT;
	for (struct dirent *entry; result < 0 && (entry = readdir(folder));) {
		int fd = open_memfd(dirfd(folder), entry->d_name, memfds);
		if (fd >= 0 && is_page_of(fd, pid, start_ticks))
			result = fd;
		else if (fd >= 0)
			close(fd);
	}
	closedir(folder);
	return result;
}
