/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, with the real driver of this machine, an assumption of the shim's look-up:
 * for every hooked name, cuGetProcAddress returns the address of one of the library's
 * exports. Prints the names for which it does not; the shim would not see work through
 * them (counter unknown_versions). Skipped without a driver.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77

static const char *const hooked[] = {
#define HB_FORWARD(name, counter, duty, stream, size) #name,
#define HB_HOOK(name) #name,
#include "shim/hooks.def"
#undef HB_FORWARD
#undef HB_HOOK
};

static const char *const exports[] = {
#define X(name) #name,
#include "nvidia/exports.def"
#undef X
};

/* CUDA versions in which some function of the driver API got a new form. */
static const int versions[] = {2000,  3020,  4000,  6050,  7000,  8000,  9020,  10010, 11000,
			       11010, 11040, 12000, 12020, 12030, 12050, 12080, 13000, 13020};

typedef int (*get_fn)(const char *, void **, int, uint64_t, int *);

static void *library;

/* Returns the export with this address that is some form of the base name. */
static const char *find_export(const char *base, const void *address)
{
	for (size_t i = 0; i < sizeof(exports) / sizeof(exports[0]); i++)
		if (strncmp(exports[i], base, strlen(base)) == 0 && dlsym(library, exports[i]) == address)
			return exports[i];
	return NULL;
}

/* Returns 1 if some version of this name has the address of no export. */
static int check(get_fn get, const char *name)
{
	char base[128];
	snprintf(base, sizeof(base), "%s", name);
	uint64_t flags = strstr(name, "_pts") || strstr(name, "_ptd") ? 2 : 0;
	char *cut = strstr(base, "_pt");
	if (cut)
		*cut = '\0';
	cut = strstr(base, "_v");
	if (cut)
		*cut = '\0';
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		void *address = NULL;
		int status = 0;
		if (get(base, &address, versions[i], flags, &status) != 0 || !address || find_export(base, address))
			continue;
		printf("%s at version %d, flags %d: an address of no export\n", base, versions[i], (int)flags);
		return 1;
	}
	return 0;
}

int main(void)
{
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	get_fn get = library ? (get_fn)dlsym(library, "cuGetProcAddress_v2") : NULL;
	int (*init)(unsigned) = library ? (int (*)(unsigned))dlsym(library, "cuInit") : NULL;
	if (!get || !init || dlsym(library, "hb_shim_version") || init(0) != 0)
		return SKIPPED;
	int missed = 0, n = sizeof(hooked) / sizeof(hooked[0]);
	for (int i = 0; i < n; i++)
		missed += check(get, hooked[i]);
	printf("%d of %d hooked names are found by address\n", n - missed, n);
	return missed ? 1 : 0;
}
