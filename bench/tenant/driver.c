/* SPDX-License-Identifier: Apache-2.0 */
/* Finding driver functions by different routes; see driver.h. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver cu;

typedef CUresult (*get_proc_fn)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult (*get_proc_v1_fn)(const char *, void **, int, uint64_t);

/* `base` without version or suffix, `symbol` as exported, `suffix` of the per-thread form or "". */
typedef void *find_fn(const char *base, const char *symbol, const char *suffix);

static void *open_library(void)
{
	static void *library;
	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "cuda-tenant: %s\n", dlerror());
		exit(3);
	}
	return library;
}

static void *find_dlsym(const char *base, const char *symbol, const char *suffix)
{
	return dlsym(open_library(), symbol);
}

static void *find_thread(const char *base, const char *symbol, const char *suffix)
{
	char name[128];
	snprintf(name, sizeof name, "%s%s", symbol, suffix);
	return dlsym(open_library(), name);
}

/* As the CUDA runtime does: one symbol by dlsym, the resolver through itself, everything else through that. */
static void *ask_resolver(const char *base, int version, uint64_t flags)
{
	static get_proc_fn resolve;
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	void *found = NULL;
	if (!resolve) {
		get_proc_fn first = (get_proc_fn)dlsym(open_library(), "cuGetProcAddress_v2");
		if (!first || first("cuGetProcAddress", &found, 12000, 0, &status) != CUDA_SUCCESS || !found)
			return NULL;
		resolve = (get_proc_fn)found;
		found = NULL;
	}
	CUresult result = resolve(base, &found, version, flags, &status);
	return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? found : NULL;
}

static void *find_getproc(const char *base, const char *symbol, const char *suffix)
{
	return ask_resolver(base, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
}

static void *find_getproc_thread(const char *base, const char *symbol, const char *suffix)
{
	return ask_resolver(base, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

static void *find_getproc_v1(const char *base, const char *symbol, const char *suffix)
{
	void *found = NULL;
	get_proc_v1_fn resolve = (get_proc_v1_fn)dlsym(open_library(), "cuGetProcAddress");
	return resolve && resolve(base, &found, 11040, 0) == CUDA_SUCCESS ? found : NULL;
}

#ifdef TENANT_LINKED
static void *find_linked(const char *base, const char *symbol, const char *suffix)
{
#define X(base_, symbol_) \
	if (strcmp(symbol, #symbol_) == 0) \
		return (void *)(uintptr_t)symbol_;
#define PX(base_, symbol_, suffix_) X(base_, symbol_)
	DRIVER_CALLS(X, PX)
#undef X
#undef PX
	return NULL;
}

static void *find_default(const char *base, const char *symbol, const char *suffix)
{
	return dlsym(RTLD_DEFAULT, symbol);
}

static void *find_next(const char *base, const char *symbol, const char *suffix)
{
	return dlsym(RTLD_NEXT, symbol);
}
#endif

static const struct route {
	const char *name;
	find_fn *find;
} routes[] = {
#ifdef TENANT_LINKED
	{"linked", find_linked}, /* the linker's own binding */
	{"default", find_default},
	{"next", find_next},
#endif
	{"dlsym", find_dlsym},
	{"thread", find_thread},
	{"getproc", find_getproc},
	{"getproc-v1", find_getproc_v1},
	{"getproc-thread", find_getproc_thread},
};

void driver_list_routes(void)
{
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		puts(routes[i].name);
}

static find_fn *find_of(const char *route)
{
	if (!route)
		return routes[0].find;
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		if (strcmp(routes[i].name, route) == 0)
			return routes[i].find;
	fprintf(stderr, "cuda-tenant: no route '%s'\n", route);
	exit(2);
}

static void *require_found(void *function, const char *name)
{
	if (function)
		return function;
	fprintf(stderr, "cuda-tenant: the driver has no %s\n", name);
	exit(3);
}

void *driver_find(const char *symbol)
{
	return require_found(find_dlsym(NULL, symbol, ""), symbol);
}

void driver_open(const char *route)
{
	find_fn *find = find_of(route);
#define PX(base, symbol, suffix) cu.base = (__typeof__(cu.base))require_found(find(#base, #symbol, #suffix), #base);
#define X(base, symbol) PX(base, symbol, )
	DRIVER_CALLS(X, PX)
#undef X
#undef PX
}

_Noreturn void driver_failed(const char *call, CUresult result)
{
	const char *name = NULL;
	if (!cu.cuGetErrorName || cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	fprintf(stderr, "cuda-tenant: %s: %d %s\n", call, (int)result, name);
	fflush(stdout);
	_Exit(4);
}
