/* SPDX-License-Identifier: Apache-2.0 */
/* See secret_file.h. */
#include "server/security/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_file(const char *path, int fd, mode_t forbidden, struct hb_error *error)
{
	struct stat file;
	if (fstat(fd, &file) < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(file.st_mode))
		return hb_error_set(error, -EINVAL, "%s: is not a regular file", path);
	if (file.st_uid != geteuid() && file.st_uid != 0)
		return hb_error_set(error, -EPERM,
				    "%s: belongs to user %u; it must belong to the server's user or root", path,
				    (unsigned)file.st_uid);
	if (file.st_mode & forbidden)
		return hb_error_set(error, -EPERM,
				    "%s: its mode is %04o, so others can use the secret in it; run chmod %04o %s", path,
				    (unsigned)file.st_mode & 07777, 0640 & ~(unsigned)forbidden, path);
	if (file.st_size > HB_SECRET_BYTES_MAX)
		return hb_error_set(error, -EFBIG, "%s: is larger than 1 MiB", path);
	return 0;
}

int hb_secret_file_read(const char *path, mode_t forbidden, char **text, size_t *bytes, struct hb_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	int result = check_file(path, fd, forbidden, error);
	char *data = result == 0 ? calloc(1, HB_SECRET_BYTES_MAX + 1) : NULL;
	size_t n = 0;
	if (result == 0 && !data)
		result = hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	while (result == 0 && n < HB_SECRET_BYTES_MAX) {
		ssize_t more = read(fd, data + n, HB_SECRET_BYTES_MAX - n);
		if (more < 0 && errno != EINTR)
			result = hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
		if (more == 0)
			break;
		n += more > 0 ? (size_t)more : 0;
	}
	close(fd);
	if (result < 0) {
		hb_secret_free(data, n);
		return result;
	}
	*text = data;
	*bytes = n;
	return 0;
}

void hb_secret_free(char *text, size_t bytes)
{
	if (text)
		explicit_bzero(text, bytes);
	free(text);
}
