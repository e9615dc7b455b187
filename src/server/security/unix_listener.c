/* SPDX-License-Identifier: Apache-2.0 */
/* See unix_listener.h. */
#include "server/security/unix_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096

struct hb_unix_listener {
	struct sockaddr_un address;
	int fd, lock_fd;
};

/* The server that holds the lock is the only one that uses the path. */
static int lock_path(const char *socket_path, struct hb_error *error)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	snprintf(path, sizeof(path), "%s.lock", socket_path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	close(fd);
	return hb_error_set(error, -EADDRINUSE, "%s: another server uses this socket", socket_path);
}

/* With the lock, a socket at the path belongs to a server that has ended. */
static int remove_stale(const char *path, struct hb_error *error)
{
	struct stat found;
	if (lstat(path, &found) < 0)
		return errno == ENOENT ? 0 : hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISSOCK(found.st_mode))
		return hb_error_set(error, -EEXIST, "%s: exists and is not a socket", path);
	return unlink(path) == 0 ? 0 : hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
}

/* The mode is set before the path exists, so at no time can anyone else connect. */
static int bind_path(struct hb_unix_listener *listener, gid_t group)
{
	const char *path = listener->address.sun_path;
	if (fchmod(listener->fd, 0600) < 0 ||
	    bind(listener->fd, (const struct sockaddr *)&listener->address, sizeof(listener->address)) < 0)
		return -errno;
	if (group != HB_NO_GROUP && (lchown(path, (uid_t)-1, group) < 0 || chmod(path, 0660) < 0))
		return -errno;
	return listen(listener->fd, BACKLOG) < 0 ? -errno : 0;
}

static int open_path(struct hb_unix_listener *listener, gid_t group, struct hb_error *error)
{
	const char *path = listener->address.sun_path;
	int result = listener->lock_fd = lock_path(path, error);
	if (result >= 0)
		result = remove_stale(path, error);
	if (result < 0)
		return result;
	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	result = listener->fd < 0 ? -errno : bind_path(listener, group);
	return result < 0 ? hb_error_set(error, result, "%s: %s", path, strerror(-result)) : 0;
}

int hb_unix_listener_open(const char *path, gid_t group, struct hb_unix_listener **out, struct hb_error *error)
{
	struct hb_unix_listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return hb_error_set(error, -ENOMEM, "out of memory");
	listener->fd = listener->lock_fd = -1;
	listener->address.sun_family = AF_UNIX;
	int result = 0;
	if (!path[0] || strlen(path) >= sizeof(listener->address.sun_path))
		result = hb_error_set(error, -EINVAL, "%s: the path of a socket has 1 to %zu characters", path,
				      sizeof(listener->address.sun_path) - 1);
	if (result == 0) {
		strcpy(listener->address.sun_path, path);
		result = open_path(listener, group, error);
	}
	if (result < 0) {
		hb_unix_listener_close(listener);
		return result;
	}
	*out = listener;
	return 0;
}

int hb_unix_listener_fd(const struct hb_unix_listener *listener)
{
	return listener->fd;
}

void hb_unix_listener_close(struct hb_unix_listener *listener)
{
	if (!listener)
		return;
	if (listener->fd >= 0) {
		unlink(listener->address.sun_path);
		close(listener->fd);
	}
	if (listener->lock_fd >= 0)
		close(listener->lock_fd);
	free(listener);
}
