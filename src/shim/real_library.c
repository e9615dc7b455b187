/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and opens the driver's own libcuda.so.1, which has the same name as the
 * shim. Called once, at the first call into the shim. Must not be called from a
 * constructor, because the loader cannot dlopen then.
 *
 * It searches where the loader does, in the same order: LD_LIBRARY_PATH, the
 * loader's cache, the usual folders. It rejects this very file (by device and
 * inode) and every other copy of the shim.
 */
#include "shim/real_library.h"
#include "nvidia/nvidia_rm.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_NAME "libcuda.so.1"

/* The default folders of drivers; the last three are those of container tools, WSL and NixOS. */
static const char *const usual_folders[] = {
#if defined(__x86_64__)
	"/usr/lib/x86_64-linux-gnu",
	"/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
	"/usr/lib/aarch64-linux-gnu",
	"/lib/aarch64-linux-gnu",
#endif
	"/usr/lib64",
	"/lib64",
	"/usr/lib",
	"/lib",
	"/usr/local/nvidia/lib64",
	"/usr/lib/wsl/lib",
	"/run/opengl-driver/lib",
};

/* Finds the name of this file by an address inside it. */
static bool is_this_file(const struct stat *other)
{
	static const char own_address;
	Dl_info own;
	struct stat st;
	if (!dladdr(&own_address, &own) || stat(own.dli_fname, &st))
		return false;
	return st.st_dev == other->st_dev && st.st_ino == other->st_ino;
}

/* Opens the library. NULL: there is none at this path, or it is a shim. */
static void *open_candidate(const char *path)
{
	struct stat st;
	if (stat(path, &st) || !S_ISREG(st.st_mode) || is_this_file(&st))
		return NULL;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library && dlsym(library, "hb_shim_version")) {
		dlclose(library);
		return NULL;
	}
	return library;
}

static void *open_in_folder(const char *folder, size_t length)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%.*s/" FILE_NAME, (int)length, folder);
	return n > 0 && (size_t)n < sizeof(path) ? open_candidate(path) : NULL;
}

/* Opens the first library in a search path, whose separators are those of the loader. */
static void *open_in_path(const char *search_path)
{
	void *library = NULL;
	while (search_path && *search_path && !library) {
		size_t length = strcspn(search_path, ":;");
		if (length)
			library = open_in_folder(search_path, length);
		search_path += length + (search_path[length] != '\0');
	}
	return library;
}

static void *open_cached(const char *path, void *unused)
{
	return open_candidate(path);
}

static void *find_library(void)
{
	/* A path given by the user is the only candidate. */
	const char *given = getenv("HB_REAL_LIBCUDA");
	if (given && *given)
		return open_candidate(given);
	void *library = open_in_path(getenv("LD_LIBRARY_PATH"));
	if (!library)
		library = hb_loader_cache_each(HB_LOADER_CACHE, FILE_NAME, open_cached, NULL);
	for (size_t i = 0; i < sizeof(usual_folders) / sizeof(usual_folders[0]) && !library; i++)
		library = open_in_folder(usual_folders[i], strlen(usual_folders[i]));
	return library;
}

/* Watches the driver create channel groups, from its first call on, in tenants only: others set no time slices. */
static void watch_channel_groups(void *library)
{
	static atomic_flag watched = ATOMIC_FLAG_INIT;
	const char *role = getenv("HB_ROLE");
	if (!getenv("HB_TENANT") || hb_shim_off() || atomic_flag_test_and_set(&watched))
		return;
	if (role && strcmp(role, "server") == 0)
		hb_rm_watch_notify(hb_tenant_join_server);
	/* The simulated driver exports the function by which it calls its device. */
	hb_rm_watch_install(library, (hb_rm_ioctl *)dlsym(library, "hb_sim_ioctl"));
}

void *hb_real_library(void)
{
	/* No lock: two first callers may both open the library, which the loader counts; one handle is kept. */
	static _Atomic(void *) opened;
	static char none; /* its address in `opened` means: no driver was found */
	void *library = atomic_load_explicit(&opened, memory_order_acquire);
	if (!library) {
		library = find_library();
		if (!library)
			library = &none;
		else
			watch_channel_groups(library);
		void *first = NULL;
		if (!atomic_compare_exchange_strong(&opened, &first, library)) {
			if (library != &none)
				dlclose(library);
			library = first;
		}
	}
	return library == &none ? NULL : library;
}
