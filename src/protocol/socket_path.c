/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the socket and the user's runtime folder; see socket_path.h. */
#include "protocol/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int format_dir(char path[HB_PATH_MAX], const char *base, const char *name)
{
	int n = snprintf(path, HB_PATH_MAX - sizeof "/" HB_SOCKET_NAME_SIMULATED, "%s/%s", base, name);
	return n < 0 || n >= (int)(HB_PATH_MAX - sizeof "/" HB_SOCKET_NAME_SIMULATED) ? -ENAMETOOLONG : 0;
}

static int dir_path(char path[HB_PATH_MAX])
{
	char user[64];
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	if (xdg && xdg[0] == '/')
		return format_dir(path, xdg, "hummingbird");
	snprintf(user, sizeof user, "/run/user/%u", (unsigned)geteuid());
	if (access(user, W_OK | X_OK) == 0)
		return format_dir(path, user, "hummingbird");
	snprintf(user, sizeof user, "hummingbird-%u", (unsigned)geteuid());
	return format_dir(path, "/tmp", user);
}

int hb_runtime_dir(char path[HB_PATH_MAX], struct hb_error *error)
{
	char wanted[HB_PATH_MAX];
	struct stat found;
	int result = dir_path(wanted);
	if (result < 0)
		return hb_error_set(error, result,
				    "$XDG_RUNTIME_DIR is too long for a socket in it; set a shorter one");
	if (mkdir(wanted, 0700) < 0 && errno != EEXIST)
		return hb_error_set(error, -errno,
				    "%s: cannot make this folder: %s; set XDG_RUNTIME_DIR to a folder of your own",
				    wanted, strerror(errno));
	/* lstat(): another user may have put a link into /tmp, which must not be followed. */
	if (lstat(wanted, &found) < 0)
		return hb_error_set(error, -errno, "%s: %s", wanted, strerror(errno));
	if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || found.st_mode & 077)
		return hb_error_set(
			error, -EPERM,
			"%s: must be a folder owned by user %u with mode 0700; remove it or set XDG_RUNTIME_DIR",
			wanted, (unsigned)geteuid());
	memcpy(path, wanted, sizeof wanted);
	return 0;
}

int hb_socket_path(bool simulated, char path[HB_PATH_MAX])
{
	const char *name = simulated ? "/" HB_SOCKET_NAME_SIMULATED : "/" HB_SOCKET_NAME;
	const char *given = getenv("HB_SOCKET");
	if (given && *given) {
		if (strlen(given) >= HB_PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(path, given);
		return 0;
	}
	strcpy(path, HB_SYSTEM_DIR);
	strcat(path, name);
	if (access(path, W_OK) == 0)
		return 0;
	char dir[HB_PATH_MAX];
	int result = dir_path(dir);
	if (result < 0)
		return result;
	size_t length = strlen(dir);
	memcpy(path, dir, length);
	strcpy(path + length, name);
	return 0;
}
