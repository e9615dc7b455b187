/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_takeover.h. */
#include "daemon/mps_takeover.h"

#include "daemon/mps_server.h"
#include "daemon/page_memory.h"
#include "daemon/process.h"
#include "daemon/tenancy.h"
#include "protocol/daemon_client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool is_page(int folder, const char *name)
{
	static const char expected[] = "/memfd:" HB_PAGE_FILE " ";
	char target[64];
	ssize_t n = readlinkat(folder, name, target, sizeof target);
	return n >= (ssize_t)(sizeof expected - 1) && memcmp(target, expected, sizeof expected - 1) == 0;
}

/* Opens the tenant page that the process has mapped. Returns a descriptor or negative errno. */
static int open_page(pid_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	if (!folder)
		return -errno;
	int result = -ENOENT;
	for (struct dirent *entry; result < 0 && (entry = readdir(folder));)
		if (is_page(dirfd(folder), entry->d_name)) {
			int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
			result = fd < 0 ? -errno : fd;
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
	int page_fd = has_our_token(daemon, server) ? open_page(server) : -EPERM;
	result = page_fd;
	if (page_fd >= 0)
		result = hb_process_lives(peer.pidfd) ? make_tenant(daemon, &peer, page_fd) : -ESRCH;
	if (page_fd >= 0)
		close(page_fd);
	hb_peer_close(&peer);
	return result;
}
