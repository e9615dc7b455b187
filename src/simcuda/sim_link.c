/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection of this process to the broker: finds or starts it, maps the
 * shared rings, carries requests. One request at a time, under sim.request.
 */
#include "simcuda/sim_driver.h"

#include "base/log.h"
#include "simcuda/sim_folder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int make_folder(char *path, size_t size)
{
	struct stat status;
	int result = sim_folder_path(path, size);
	if (result < 0)
		return result;
	if ((mkdir(path, 0700) < 0 && errno != EEXIST) || stat(path, &status) < 0)
		return -errno;
	/* A folder in /tmp that belongs to another user is not trusted, unless its name was given and all users share it. */
	bool shared = getenv("HB_SIM_GPU") && status.st_mode & S_IWOTH;
	return S_ISDIR(status.st_mode) && (status.st_uid == getuid() || shared) ? 0 : -EPERM;
}

/* Looks at HB_SIM_BROKER, beside this library, and in an installation's folder for helper programs. */
static int broker_path(char *path, size_t size)
{
	const char *given = getenv("HB_SIM_BROKER");
	Dl_info info;
	if (given && *given)
		return snprintf(path, size, "%s", given) < (int)size ? 0 : -ENAMETOOLONG;
	if (!dladdr((void *)(uintptr_t)broker_path, &info) || !info.dli_fname)
		return -ENOENT;
	const char *slash = strrchr(info.dli_fname, '/');
	int length = slash ? (int)(slash - info.dli_fname) : 1;
	snprintf(path, size, "%.*s/hb-simgpu", length, slash ? info.dli_fname : ".");
	return access(path, X_OK) == 0 ? 0 : -ENOENT;
}

/* The broker must not inherit the application's preloaded libraries. */
static char **clean_environment(void)
{
	size_t n = 0, kept = 0;
	while (environ[n])
		n++;
	char **clean = calloc(n + 1, sizeof *clean);
	for (size_t i = 0; clean && i < n; i++)
		if (strncmp(environ[i], "LD_", 3) != 0 && strncmp(environ[i], "MALLOC_", 7) != 0 &&
		    strncmp(environ[i], "HB_TENANT=", 10) != 0) /* the broker belongs to all tenants */
			clean[kept++] = environ[i];
	return clean;
}

/* Waits until the broker listens or has failed. */
static int start_broker(char *folder)
{
	char path[4096];
	int ready[2];
	int result = broker_path(path, sizeof path);
	if (result < 0) {
		hb_log_error("simulated GPU: hb-simgpu not found beside libcuda.so.1; set HB_SIM_BROKER to its path");
		return result;
	}
	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	if (ready[1] == 3) /* dup2 onto itself would leave it close-on-exec */
		fcntl(3, F_SETFD, 0);
	else
		posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
	char *arguments[] = {path, folder, NULL}, **clean = clean_environment();
	pid_t pid;
	result = clean ? -posix_spawn(&pid, path, &actions, NULL, arguments, clean) : -ENOMEM;
	posix_spawn_file_actions_destroy(&actions);
	free(clean);
	close(ready[1]);
	if (result == 0) {
		char byte;
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		while (read(ready[0], &byte, 1) < 0 && errno == EINTR)
			;
	} else {
		hb_log_error("simulated GPU: %s: %s", path, strerror(-result));
	}
	close(ready[0]);
	return result;
}

static int exchange_messages(const struct sim_request *request, size_t request_size, struct sim_reply *reply,
			     size_t reply_size, int *fds, size_t n_fds)
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr header;
	} control;
	struct iovec part = {reply, reply_size};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = n_fds ? sizeof control.bytes : 0};
	ssize_t n;
	do
		n = send(sim.fd, request, request_size, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	do
		n = recvmsg(sim.fd, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)SIM_REPLY_SHORT)
		return n < 0 ? -errno : -EPIPE;
	struct cmsghdr *header = n_fds ? CMSG_FIRSTHDR(&message) : NULL;
	if (n_fds && reply->result == 0) {
		if (!header || header->cmsg_len != CMSG_LEN(n_fds * sizeof(int)))
			return -EPROTO;
		memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int));
	}
	return 0;
}

int sim_request(struct sim_request *request, struct sim_reply *reply)
{
	bool rm = request->kind == SIM_REQ_RM;
	if (atomic_load(&sim.lost))
		return -EPIPE;
	pthread_mutex_lock(&sim.request);
	int result = exchange_messages(request, rm ? sizeof *request : SIM_REQUEST_SHORT, reply,
				       rm ? sizeof *reply : SIM_REPLY_SHORT, NULL, 0);
	pthread_mutex_unlock(&sim.request);
	if (result < 0) {
		atomic_store(&sim.lost, true);
		return result;
	}
	return reply->result;
}

bool sim_broker_alive(void)
{
	struct pollfd fd = {.fd = sim.fd, .events = 0};
	return !(poll(&fd, 1, 0) == 1 && (fd.revents & (POLLHUP | POLLERR)));
}

static int greet_broker(void)
{
	struct sim_request request = {.kind = SIM_REQ_HELLO, .version = SIM_WIRE_VERSION};
	int fds[2];
	int result = exchange_messages(&request, SIM_REQUEST_SHORT, &sim.info, SIM_REPLY_SHORT, fds, 2);
	if (result == 0)
		result = sim.info.result;
	if (result < 0)
		return result;
	sim.doorbell = fds[1];
	void *share = mmap(NULL, sizeof *sim.share, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	close(fds[0]);
	if (share == MAP_FAILED)
		return -errno;
	sim.share = share;
	return 0;
}

/* Whether every user may use the GPU in this folder. */
static bool is_shared(int folder)
{
	struct stat found;
	return fstat(folder, &found) == 0 && found.st_mode & S_IWOTH;
}

/* Runs under DIR/lock, so that no client connects to an ending broker, and only one broker starts. */
int sim_link_open(void)
{
	char path[4096];
	int result = make_folder(path, sizeof path);
	int folder = result < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int lock = folder < 0 ? -1 : openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock >= 0 && is_shared(folder))
		fchmod(lock, 0666);
	if (lock < 0) {
		result = result < 0 ? result : -errno;
		hb_log_error("simulated GPU: folder %s: %s; set HB_SIM_GPU to one of yours", path, strerror(-result));
		if (folder >= 0)
			close(folder);
		return result;
	}
	while (flock(lock, LOCK_EX) < 0 && errno == EINTR)
		;
	sim.fd = sim_folder_connect(folder);
	if (sim.fd < 0) {
		result = start_broker(path);
		sim.fd = result < 0 ? result : sim_folder_connect(folder);
	}
	result = sim.fd < 0 ? sim.fd : greet_broker();
	if (result < 0)
		hb_log_error("simulated GPU: no broker in %s: %s; see %s/broker.log", path, strerror(-result), path);
	close(lock);
	close(folder);
	return result;
}

void sim_link_forget(void)
{
	if (sim.share)
		munmap(sim.share, sizeof *sim.share);
	sim.share = NULL;
	close(sim.fd);
	close(sim.rm_fd);
	close(sim.doorbell);
	sim.fd = sim.rm_fd = sim.doorbell = -1;
}
