/* SPDX-License-Identifier: Apache-2.0 */
/* Finds our own files; see install_path.h. */
#include "base/install_path.h"

#include "base/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#else
#define TRIPLET "x86_64-linux-gnu"
#endif

/* Folders relative to the program's folder: first the build tree, then an installation. */
static const char *const shim_folders[] = {
	"src/shim",           "../shim", "../../src/shim", "../lib/" TRIPLET "/hummingbird", "../lib64/hummingbird",
	"../lib/hummingbird", NULL,
};
static const char *const simcuda_folders[] = {
	"src/simcuda",
	"../simcuda",
	"../../src/simcuda",
	"../lib/" TRIPLET "/hummingbird/simcuda",
	"../lib64/hummingbird/simcuda",
	"../lib/hummingbird/simcuda",
	NULL,
};
static const char *const program_folders[] = {
	".",          "src/daemon",        "../daemon", "../../src/daemon", "src/simcuda",
	"../simcuda", "../../src/simcuda", "../..",     "../sbin",          "../libexec/hummingbird",
	NULL,
};

/* Finds the first of `folders` that contains `file`. Returns the absolute path of the file if `file_path`, else of the folder. */
static int find_in_folders(const char *const *folders, const char *file, int mode, int file_path, char *path,
			   size_t size)
{
	char own[PATH_MAX], joined[2 * PATH_MAX], resolved[PATH_MAX];
	int result = hb_path_own_folder(own);
	if (result < 0)
		return result;
	for (; *folders; folders++) {
		snprintf(joined, sizeof joined, "%s/%s/%s", own, *folders, file);
		if (access(joined, mode) != 0)
			continue;
		snprintf(joined, sizeof joined, "%s/%s", own, *folders);
		if (!realpath(joined, resolved))
			continue;
		int n = snprintf(path, size, file_path ? "%s/%s" : "%s", resolved, file);
		return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
	}
	return -ENOENT;
}

static int find_library(const char *variable, const char *const *folders, char *path, size_t size)
{
	const char *given = getenv(variable);
	if (!given || !*given)
		return find_in_folders(folders, "libcuda.so.1", R_OK, 0, path, size);
	int n = snprintf(path, size, "%s", given);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int hb_install_shim_dir(char *path, size_t size)
{
	return find_library("HB_SHIM_DIR", shim_folders, path, size);
}

/* In an installation the library is in the shim's folder; in a build tree it is in a folder beside the shim's. */
int hb_install_signs(char *path, size_t size)
{
	char folder[PATH_MAX];
	static const char *const places[] = {"libhb-signs.so", "../signs/libhb-signs.so"};
	int result = hb_install_shim_dir(folder, sizeof folder);
	for (size_t i = 0; result == 0 && i < sizeof places / sizeof places[0]; i++) {
		int n = snprintf(path, size, "%s/%s", folder, places[i]);
		if (n > 0 && (size_t)n < size && access(path, R_OK) == 0)
			return 0;
	}
	return result < 0 ? result : -ENOENT;
}

int hb_install_simcuda_dir(char *path, size_t size)
{
	return find_library("HB_SIMCUDA_DIR", simcuda_folders, path, size);
}

static int find_in_path(const char *name, char *path, size_t size)
{
	const char *list = getenv("PATH");
	while (list && *list) {
		size_t length = strcspn(list, ":");
		int n = snprintf(path, size, "%.*s/%s", (int)length, list, name);
		if (n > 0 && (size_t)n < size && access(path, X_OK) == 0)
			return 0;
		list += length + (list[length] == ':');
	}
	return -ENOENT;
}

int hb_install_program(const char *name, char *path, size_t size)
{
	int result = find_in_folders(program_folders, name, X_OK, 1, path, size);
	return result == -ENOENT ? find_in_path(name, path, size) : result;
}

int hb_install_module(const char *name, char *path, size_t size)
{
	static const char *const folders[] = {".", NULL};
	return find_in_folders(folders, name, R_OK, 1, path, size);
}
