/* SPDX-License-Identifier: Apache-2.0 */
/* Finds data files; see paths.h. HB_SOURCE_DATA and HB_BUILD_ROOT come from meson.build; packages are built without them. */
#include "base/paths.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Folders between a file of ours and the parent of share/: one for bin/hb, three for
 * lib/x86_64-linux-gnu/hummingbird/libcuda.so.1.
 */
#define LEVELS_UP 4

int hb_path_own_folder(char folder[static PATH_MAX])
{
	Dl_info self, program;
	char resolved[PATH_MAX];
	bool in_program = !dladdr((void *)&hb_path_data, &self) ||
			  (dladdr((void *)getauxval(AT_PHDR), &program) && program.dli_fbase == self.dli_fbase);

	/*
	 * A program's own name as the loader knows it is argv[0], which may be relative. The file itself may be gone: an
	 * update has replaced it, and the kernel adds " (deleted)" to the link.
	 */
	ssize_t n = in_program ? readlink("/proc/self/exe", resolved, sizeof resolved - 1) : 0;
	if (n < 0 || (!in_program && !realpath(self.dli_fname, resolved)))
		return -errno;
	if (in_program)
		resolved[n] = '\0';
	*strrchr(resolved, '/') = '\0';
	strcpy(folder, resolved);
	return 0;
}

#ifdef HB_BUILD_ROOT
static bool is_inside(const char *folder, const char *root)
{
	size_t length = strlen(root);
	return !strncmp(folder, root, length) && (folder[length] == '/' || folder[length] == '\0');
}
#endif

/* `path` = folder/middle/relative, if that exists. */
static int join_existing(const char *folder, const char *middle, const char *relative, char *path, size_t size)
{
	char joined[PATH_MAX];
	int length = snprintf(joined, sizeof joined, "%s%s/%s", folder, middle, relative);
	if (length >= (int)sizeof joined || (size_t)length >= size)
		return -ENAMETOOLONG;
	if (access(joined, F_OK))
		return -ENOENT;
	memcpy(path, joined, (size_t)length + 1);
	return 0;
}

int hb_path_data(const char *relative, char *path, size_t size, struct hb_error *error)
{
	const char *chosen = getenv("HB_DATA_DIR");
	if (chosen && *chosen) {
		int rc = join_existing(chosen, "", relative, path, size);
		return rc ? hb_error_set(error, rc, "%s: not found in HB_DATA_DIR=%s", relative, chosen) : 0;
	}
	char folder[PATH_MAX];
	if (hb_path_own_folder(folder))
		return hb_error_set(error, -ENOENT, "%s: cannot tell where this program lies; set HB_DATA_DIR",
				    relative);
#ifdef HB_BUILD_ROOT
	if (is_inside(folder, HB_BUILD_ROOT)) {
		int rc = join_existing(HB_SOURCE_DATA, "", relative, path, size);
		return rc ? hb_error_set(error, rc, "%s: not found in %s", relative, HB_SOURCE_DATA) : 0;
	}
#endif
	char above[PATH_MAX];
	strcpy(above, folder);
	for (int level = 0; level < LEVELS_UP; level++) {
		char *slash = strrchr(above, '/');
		if (!slash)
			break;
		*slash = '\0';
		int rc = join_existing(above, "/share/hummingbird", relative, path, size);
		if (rc != -ENOENT)
			return rc;
	}
	return hb_error_set(error, -ENOENT, "%s: not found in share/hummingbird above %s; set HB_DATA_DIR", relative,
			    folder);
}

void hb_path_user_file(const char *xdg, const char *fallback, const char *name, char *path, size_t size)
{
	const char *folder = getenv(xdg), *home = getenv("HOME");
	path[0] = '\0';
	if (folder && folder[0] == '/')
		snprintf(path, size, "%s/hummingbird/%s", folder, name);
	else if (home && home[0] == '/')
		snprintf(path, size, "%s/%s/hummingbird/%s", home, fallback, name);
}

void hb_path_make_folders(const char *path)
{
	char folder[PATH_MAX];
	snprintf(folder, sizeof folder, "%s", path);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(folder, 0700);
		*slash = '/';
	}
}

const char *hb_path_command(const char *command)
{
	const char *name = command;
	for (const char *at = command; *at && *at != ' '; at++)
		if (*at == '/')
			name = at + 1;
	return name;
}
