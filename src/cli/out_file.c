/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file under a temporary name and renames it when it is complete; see out_file.h. */
#include "cli/out_file.h"

#include <errno.h>
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
	int failed = ferror(file->stream);
	if (fclose(file->stream) != 0 || failed)
		failed = errno ? errno : EIO;
	file->stream = NULL;
	if (!failed && file->temporary && rename(file->temporary, file->path) != 0)
		failed = errno;
	if (!failed) {
		free(file->temporary);
		file->temporary = NULL;
		return 0;
	}
	hb_out_file_fini(file);
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
