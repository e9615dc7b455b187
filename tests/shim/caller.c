/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program in miniature: finds driver functions by the route named on its
 * command line, calls them, and prints what came back and what arrived at the
 * fake driver. run_routes.py compares what it prints with and without the shim.
 *
 *   caller ROUTE [exec]   with ROUTE a row of routes[]; exec: runs itself once more at the end
 *
 * Built twice: as it is, and linked with libcuda (CALLER_LINKED, with plugin.c inside).
 */
#include "fake/fake_driver.h"
#include "nvidia/cuda_abi.h"
#include "plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *(*find_fn)(const char *name);
typedef CUresult (*get_proc_fn)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult (*get_proc_v1_fn)(const char *, void **, int, uint64_t);

static const struct hb_fake_call *(*last_call)(void);
static unsigned (*count_calls)(const char *name);

static void *libcuda(void)
{
	static void *library;
	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("no libcuda: %s\n", dlerror());
		exit(1);
	}
	return library;
}

static void *find_dlsym(const char *name)
{
	return dlsym(libcuda(), name);
}

static void *find_default(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void *find_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Like the CUDA runtime: finds one symbol by dlsym and all others through it. */
static void *find_by(const char *base, int version, uint64_t flags)
{
	get_proc_fn get = (get_proc_fn)dlsym(libcuda(), "cuGetProcAddress_v2");
	/* Looks the look-up function up through itself, and uses the result. */
	void *again = NULL;
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (get("cuGetProcAddress", &again, 13000, flags, &status) != CUDA_SUCCESS || !again)
		return NULL;
	void *function = NULL;
	CUresult result = ((get_proc_fn)again)(base, &function, version, flags, &status);
	printf("  lookup %s %d %d: %d status %d\n", base, version, (int)flags, result, (int)status);
	return result == CUDA_SUCCESS ? function : NULL;
}

static void strip_suffixes(const char *name, char *base, size_t size)
{
	snprintf(base, size, "%s", name);
	char *cut = strstr(base, "_pt");
	if (cut)
		*cut = '\0';
	cut = strstr(base, "_v");
	if (cut)
		*cut = '\0';
}

static void *find_getproc(const char *name)
{
	char base[128];
	strip_suffixes(name, base, sizeof(base));
	return find_by(base, 12000, 0);
}

static void *find_getproc_ptsz(const char *name)
{
	char base[128];
	strip_suffixes(name, base, sizeof(base));
	return find_by(base, 12000, 2);
}

static void *find_getproc_v1(const char *name)
{
	char base[128];
	strip_suffixes(name, base, sizeof(base));
	void *function = NULL;
	get_proc_v1_fn get = (get_proc_v1_fn)dlsym(libcuda(), "cuGetProcAddress");
	CUresult result = get(base, &function, 11030, 0);
	printf("  lookup %s: %d\n", base, result);
	return result == CUDA_SUCCESS ? function : NULL;
}

/* A version newer than the shim, and a function that only this driver has. */
static void *find_future(const char *name)
{
	char base[128];
	strip_suffixes(name, base, sizeof(base));
	return find_by(strcmp(base, "cuMemcpyHtoDAsync") == 0 ? "cuBrandNewFunction" : base, 14000, 0);
}

/* A plug-in linked with libcuda and opened so that its own symbols come first. */
static void *find_deepbind(const char *name)
{
	void *plugin = dlopen(getenv("HB_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!plugin) {
		printf("no plug-in: %s\n", dlerror());
		exit(1);
	}
	find_fn find = (find_fn)dlsym(plugin, "hb_test_plugin_find");
	return find(name);
}

static void report(const char *name, unsigned result)
{
	const struct hb_fake_call *call = last_call();
	printf("%s: %u, driver saw %s(", name, result, call->name ? call->name : "nothing");
	for (int i = 0; i < HB_FAKE_ARGS; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)call->args[i] & 0xffffffffu);
	printf(")\n");
}

/* Eleven different arguments, as many as any function has; the fake records them and uses none. */
static void call_with_numbers(find_fn find, const char *name)
{
	typedef CUresult (*eleven_fn)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long,
				      unsigned long, unsigned long, unsigned long, unsigned long, unsigned long,
				      unsigned long);
	eleven_fn function = (eleven_fn)find(name);
	if (!function) {
		printf("%s: not found\n", name);
		return;
	}
	report(name, function(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21));
}

static void call_with_float(find_fn find)
{
	typedef CUresult (*param_fn)(void *, int, float);
	param_fn function = (param_fn)find("cuParamSetf");
	if (!function) {
		printf("cuParamSetf: not found\n");
		return;
	}
	unsigned result = function(NULL, 7, 2.5f);
	printf("cuParamSetf: %u, float %.1f\n", result, (double)last_call()->floats[0]);
}

static const char *const called[] = {
	"cuLaunchKernel",        "cuLaunchKernel_ptsz",  "cuLaunchCooperativeKernel",
	"cuGraphLaunch",         "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoD_v2",
	"cuMemsetD2D8Async",     "cuStreamSynchronize",  "cuLaunchHostFunc_ptsz",
	"cuTexObjectDestroy",    "cuGLGetDevices",       "cuMemPrefetchAsync",
	"cuNoSuchFunctionAtAll",
};

/* With the shim, the first call opens the driver, so this searches for it after a call. */
static void find_fake(find_fn find)
{
	((CUresult(*)(unsigned))find("cuInit"))(0);
	void *driver = dlopen(getenv("HB_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
	if (!driver) {
		printf("the fake driver is not loaded\n");
		exit(1);
	}
	last_call = (const struct hb_fake_call *(*)(void))dlsym(driver, "hb_fake_last_call");
	count_calls = (unsigned (*)(const char *))dlsym(driver, "hb_fake_calls");
}

static void make_calls(find_fn find)
{
	typedef CUresult (*init_fn)(unsigned);
	init_fn init = (init_fn)find("cuInit");
	if (init)
		printf("cuInit: %d, with flags: %d\n", init(0), init(1));
	for (size_t i = 0; i < sizeof(called) / sizeof(called[0]); i++)
		call_with_numbers(find, called[i]);
	call_with_float(find);
}

/* The negative control of the comparison: the shim is used, or not, as run_routes.py requests. */
static void check_who_answers(find_fn find)
{
	Dl_info info;
	const char *expected = getenv("HB_TEST_SHIM");
	if (!dladdr(find("cuGraphLaunch"), &info) || !expected) {
		printf("cuGraphLaunch is nowhere\n");
		exit(3);
	}
	bool is_shim = strncmp(info.dli_fname, expected, strlen(expected)) == 0;
	if (!getenv("HB_OFF") && is_shim != (getenv("HB_TEST_SHIM_EXPECTED") != NULL)) {
		printf("cuGraphLaunch comes from %s\n", info.dli_fname);
		exit(3);
	}
}

static void make_calls_in_child(find_fn find)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		find_fake(find);
		make_calls(find);
		fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	printf("child: %d\n", status);
}

static void *call_in_thread(void *find)
{
	typedef CUresult (*two_fn)(unsigned long, unsigned long);
	for (int i = 0; i < 1000; i++) {
		two_fn launch = (two_fn)((find_fn)find)("cuGraphLaunch");
		launch(1, 2);
	}
	return NULL;
}

/* Eight threads make the first calls at the same time, while slots and tables are filled. */
static void make_calls_in_threads(find_fn find)
{
	pthread_t threads[8];
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, call_in_thread, (void *)find);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

static const struct route {
	const char *name;
	find_fn find;
} routes[] = {
	{"dlsym", find_dlsym},
	{"default", find_default},
	{"next", find_next},
	{"getproc", find_getproc},
	{"getproc-ptsz", find_getproc_ptsz},
	{"getproc-v1", find_getproc_v1},
	{"future", find_future},
	{"deepbind", find_deepbind},
	{"threads", find_dlsym},
	{"fork", find_dlsym},
#ifdef CALLER_LINKED
	{"linked", hb_test_plugin_find},
#endif
};

static find_fn find_route(const char *name)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		if (strcmp(routes[i].name, name) == 0)
			return routes[i].find;
	fprintf(stderr, "no such route: %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *route = argc > 1 ? argv[1] : "dlsym";
	find_fn find = find_route(route);
	bool forks = strcmp(route, "fork") == 0;
	if (forks) /* before this process has used CUDA */
		make_calls_in_child(find);
	find_fake(find);
	check_who_answers(find);
	if (strcmp(route, "threads") == 0)
		make_calls_in_threads(find);
	make_calls(find);
	if (forks)
		make_calls_in_child(find);
	if (argc > 2) /* and again in the program that exec starts */
		execl("/proc/self/exe", argv[0], route, (char *)NULL);
	printf("calls that arrived: cuLaunchKernel %u, cuGraphLaunch %u, cuInit %u\n", count_calls("cuLaunchKernel"),
	       count_calls("cuGraphLaunch"), count_calls("cuInit"));
	return 0;
}
