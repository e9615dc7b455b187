/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_takeover.h. */
#include "daemon/mps_takeover.h"

#include "daemon/mps_server.h"
#include "daemon/page_memory.h"
#include "daemon/process.h"
#include "daemon/tenancy.h"
#include "daemon/user_names.h"
#include "gpu/provider.h"
#include "protocol/daemon_client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Writes the program's name, which the server's shim would report as its command. Returns its length. */
static size_t read_program(pid_t pid, char name[256])
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
	read_program(pid, name);
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
bool hb_mps_is_server(const struct hb_daemon *daemon, pid_t pid)
{
	char found[PATH_MAX], program[PATH_MAX];
	const char *why;
	if (hb_provider_of(daemon->options.simulated)->mps_control(found, sizeof found, &why) < 0 ||
	    !realpath(found, program))
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
static bool is_page_of(int fd, const struct hb_peer *process)
{
	struct hb_page *page;
	bool found = false;
	if (hb_page_adopt(fd, &page) < 0)
		return false;
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES && !found; i++)
		found = page->processes[i].state == HB_PAGE_ACTIVE &&
			page->processes[i].pid == (uint32_t)process->pid &&
			page->processes[i].start_ticks == process->start_ticks;
	hb_page_free(page, -1);
	return found;
}

/* Opens the tenant page that the process has mapped. Returns a descriptor or negative errno. */
static int open_page(const struct hb_peer *process)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)process->pid);
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
		if (fd >= 0 && is_page_of(fd, process))
			result = fd;
		else if (fd >= 0)
			close(fd);
	}
	closedir(folder);
	return result;
}

static bool has_our_token(const struct hb_daemon *daemon, pid_t pid)
{
	char variable[sizeof "HB_TENANT=" + 2 * HB_TOKEN_BYTES] = "HB_TENANT=";
	hb_token_format(hb_mps_token(daemon->mps), variable + strlen(variable));
	return hb_process_began_with(pid, variable);
}

/* Registers the server with the request that its shim would send. The GPUs are on its page. */
static int make_tenant(struct hb_daemon *daemon, const struct hb_peer *peer, int page_fd)
{
	char command[256];
	size_t length = read_program(peer->pid, command);
	struct hb_msg_register request = {.priority = HB_PAGE_LOW, .flags = HB_REGISTER_SERVER};
	struct hb_tenancy *tenancy;
	if (daemon->options.simulated)
		request.flags |= HB_REGISTER_SIMULATED;
	memcpy(request.token, hb_mps_token(daemon->mps), sizeof request.token);
	int result = hb_tenancy_new(daemon, peer, &request, command, length, page_fd, &tenancy);
	if (result < 0 || tenancy->n_members)
		return result;
	hb_tenancy_free(tenancy); /* the page belongs to another process */
	return -ESRCH;
}

int hb_mps_take_over(struct hb_daemon *daemon, pid_t server)
{
	struct hb_peer peer;
	if (hb_tenancy_find(daemon, hb_mps_token(daemon->mps)))
		return 0;
	int result = hb_peer_of(server, &peer);
	if (result < 0)
		return result;
	hb_user_names_find(daemon->names, peer.uid, peer.user);
	bool is_ours = hb_mps_is_server(daemon, server) && has_our_token(daemon, server);
	int page_fd = is_ours ? open_page(&peer) : -EPERM;
	result = page_fd;
	if (page_fd >= 0)
		result = hb_process_lives(peer.pidfd) ? make_tenant(daemon, &peer, page_fd) : -ESRCH;
	if (page_fd >= 0)
		close(page_fd);
	hb_peer_close(&peer);
	return result;
}
