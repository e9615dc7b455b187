/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file under a temporary name and renames it when it is complete; see out_file.h. */
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns whether the path is a pipe, a device or similar, which cannot be replaced by a rename. */
static int is_special(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* The new file gets the mode of the file that it replaces, and its owner and group if this user may set them. */
static void copy_permissions(const char *path, int fd)
{
	struct stat status;
	if (stat(path, &status) < 0)
		return;
	bool same_owner = fchown(fd, status.st_uid, status.st_gid) == 0;
	/* Without the owner, rights for set-user-ID programs would apply to another user. */
	fchmod(fd, status.st_mode & (same_owner ? 07777 : 0777));
}

/* Writes the directory's entry of the path to disk, so that the rename survives a power failure. 0 or a positive errno. */
static int sync_folder(const char *path)
{
	char *copy = strdup(path);
	if (!copy)
		return ENOMEM;
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int failed = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? errno : 0;
	if (fd >= 0)
		close(fd);
	free(copy);
	return failed;
}

/* Writes the data to disk and gives the file its name. 0 or a positive errno. */
static int publish(const struct hb_out_file *file)
{
	if (!file->temporary)
		return 0;
	if (fsync(fileno(file->stream)) < 0)
		return errno;
	return rename(file->temporary, file->path) == 0 ? 0 : errno;
}

int hb_out_file_open(struct hb_out_file *file, const char *path, struct hb_error *error)
{
	*file = (struct hb_out_file){.path = path};
	if (!path)
		return 0;
	if (!is_special(path) && asprintf(&file->temporary, "%s.%d.tmp", path, (int)getpid()) < 0) {
		file->temporary = NULL;
		return hb_error_set(error, -ENOMEM, "out of memory");
	}
	/* The name can be guessed, so another user may have put a link there: remove it and create the file exclusively. */
	if (file->temporary)
		unlink(file->temporary);
	file->stream = fopen(file->temporary ? file->temporary : path, file->temporary ? "wxe" : "we");
	if (file->stream && file->temporary)
		copy_permissions(path, fileno(file->stream));
	if (file->stream)
		return 0;
	int code = -errno;
	free(file->temporary);
	file->temporary = NULL;
	return hb_error_set(error, code, "%s: %s", path, strerror(-code));
}

int hb_out_file_wrote(const struct hb_out_file *file, int result, struct hb_error *error)
{
	if (result == 0 || !file->stream || !ferror(file->stream))
		return result;
	int code = errno ? -errno : -EIO;
	return hb_error_set(error, code, "%s: %s", file->path, strerror(-code));
}

int hb_out_file_commit(struct hb_out_file *file, struct hb_error *error)
{
	if (!file->stream)
		return 0;
	/* After a write that has failed, errno still says why, unless the caller has used it for something else. */
	int earlier = errno ? errno : EIO;
	bool is_incomplete = ferror(file->stream) != 0;
	int failed = fflush(file->stream) != 0 ? errno : is_incomplete ? earlier : publish(file);
	if (!failed && file->temporary) {
		/* The file has its name: it must not be removed any more. */
		free(file->temporary);
		file->temporary = NULL;
		failed = sync_folder(file->path);
	}
	hb_out_file_fini(file);
	if (!failed)
		return 0;
	return hb_error_set(error, -failed, "%s: %s", file->path, strerror(failed));
}

void hb_out_file_fini(struct hb_out_file *file)
{
	if (file->stream)
		fclose(file->stream);
	if (file->temporary)
		unlink(file->temporary);
	free(file->temporary);
	file->stream = NULL;
	file->temporary = NULL;
}
