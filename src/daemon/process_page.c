/* SPDX-License-Identifier: Apache-2.0 */
/* See process_page.h. */
#include "daemon/process_page.h"

#include "daemon/page_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
static bool is_page_of(int fd, pid_t pid, uint64_t start_ticks, uint64_t inode)
{
	struct hb_page *page;
	struct stat file;
	bool found = false;
	if (hb_page_adopt(fd, &page) < 0)
		return false;
	bool is_meant = fstat(fd, &file) == 0 && (!inode || file.st_ino == inode);
	for (uint32_t i = 0; is_meant && i < HB_PAGE_PROCESSES && !found; i++)
		found = page->processes[i].state == HB_PAGE_ACTIVE && page->processes[i].pid == (uint32_t)pid &&
			page->processes[i].start_ticks == start_ticks;
	hb_page_free(page, -1);
	return found;
}

int hb_process_open_page(pid_t pid, uint64_t start_ticks, uint64_t inode)
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
		if (fd >= 0 && is_page_of(fd, pid, start_ticks, inode))
			result = fd;
		else if (fd >= 0)
			close(fd);
	}
	closedir(folder);
	return result;
}
