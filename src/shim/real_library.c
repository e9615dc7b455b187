/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and opens the driver's own libcuda.so.1 behind the shim, which carries
 * the same name. Called once, from the first call into the shim; must not be
 * called from a constructor (the loader is not ready for a dlopen then).
 *
 * The places are the loader's own, in its order: LD_LIBRARY_PATH, the loader's
 * cache, the usual folders. A file is never taken when it is this very file
 * (device and inode) or another copy of the shim.
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

/* Where drivers are put when nothing else says so; the last ones by container tools, WSL and NixOS. */
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

/* Any address of ours tells the loader's name of this file. */
static bool is_this_file(const struct stat *other)
{
	static const char own_address;
	Dl_info own;
	struct stat st;
	if (!dladdr(&own_address, &own) || stat(own.dli_fname, &st))
		return false;
	return st.st_dev == other->st_dev && st.st_ino == other->st_ino;
}

/* The opened library, or NULL when there is none at path or it is a shim. */
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

/* Folders of a search path; both separators of the loader. */
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

static void *search(void)
{
	/* Said by the user: taken or failed on, never searched past. */
	const char *said = getenv("HB_REAL_LIBCUDA");
	if (said && *said)
		return open_candidate(said);
	void *library = open_in_path(getenv("LD_LIBRARY_PATH"));
	if (!library)
		library = hb_loader_cache_each(HB_LOADER_CACHE, FILE_NAME, open_cached, NULL);
	for (size_t i = 0; i < sizeof(usual_folders) / sizeof(usual_folders[0]) && !library; i++)
		library = open_in_folder(usual_folders[i], strlen(usual_folders[i]));
	return library;
}

/* Channel groups are learned from the driver's first call on; only where somebody will set their slices. */
static void watch(void *library)
{
	static atomic_flag watched = ATOMIC_FLAG_INIT;
	const char *role = getenv("HB_ROLE");
	if (!getenv("HB_TENANT") || hb_shim_off() || atomic_flag_test_and_set(&watched))
		return;
	if (role && strcmp(role, "server") == 0)
		hb_rm_watch_tell(hb_tenant_join_server);
	/* The simulated driver's own way out, where it has one. */
	hb_rm_watch_install(library, (hb_rm_ioctl *)dlsym(library, "hb_sim_ioctl"));
}

void *hb_real_library(void)
{
	/* Opened without a lock: two first callers may both open it (the loader counts), one handle is kept. */
	static _Atomic(void *) opened;
	static char none; /* its address: searched, and there is no driver */
	void *library = atomic_load_explicit(&opened, memory_order_acquire);
	if (!library) {
		library = search();
		if (!library)
			library = &none;
		else
			watch(library);
		void *first = NULL;
		if (!atomic_compare_exchange_strong(&opened, &first, library)) {
			if (library != &none)
				dlclose(library);
			library = first;
		}
	}
	return library == &none ? NULL : library;
}
