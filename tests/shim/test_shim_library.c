/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file the shim takes as the driver, what an application sees without a driver,
 * and what it sees of a driver that lacks functions.
 */
#include "fake/fake_driver.h"
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "shim/real_library.h"
#include "unit/unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool runs_well(void (*scenario)(void))
{
	return hb_page_host_ended_well(hb_page_host_start(scenario));
}

/* Reads a variable that the test needs. */
static const char *given(const char *name)
{
	const char *value = getenv(name);
	if (!value)
		hb_test_failed(__FILE__, __LINE__, name);
	return value;
}

/* ---- no driver ---- */

static void see_no_device(void)
{
	void *function = NULL;
	int version = 0;
	CHECK(CU(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
	CHECK(CU(cuDriverGetVersion)(&version) == CUDA_ERROR_NO_DEVICE);
	CHECK(CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_ERROR_NO_DEVICE);
	CHECK(CU(cuGetProcAddress_v2)("cuInit", &function, 13000, 0, NULL) == CUDA_ERROR_NO_DEVICE && !function);
}

static void without_a_driver_there_is_no_device(void **state)
{
	setenv("HB_REAL_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	assert_true(runs_well(see_no_device));
}

static void the_shim_never_takes_itself_for_the_driver(void **state)
{
	setenv("HB_REAL_LIBCUDA", given("HB_TEST_SHIM"), 1);
	assert_true(runs_well(see_no_device));
}

static void copy_file(const char *from, const char *to)
{
	char buffer[65536];
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	assert_true(in && out);
	for (size_t n; (n = fread(buffer, 1, sizeof(buffer), in)) > 0;)
		assert_int_equal(fwrite(buffer, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
}

static void a_copy_of_the_shim_is_no_driver_either(void **state)
{
	char path[] = "/tmp/hb-shim-copy-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	copy_file(given("HB_TEST_SHIM"), path);
	setenv("HB_REAL_LIBCUDA", path, 1);
	bool well = runs_well(see_no_device);
	close(fd);
	unlink(path);
	assert_true(well);
}

/* ---- finding it ---- */

static void see_the_fake_driver(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(dlopen(given("HB_TEST_FAKE"), RTLD_NOW | RTLD_NOLOAD) != NULL);
}

static void the_search_of_the_library_path_skips_the_shim(void **state)
{
	char shim_folder[4096], fake_folder[4096], path[8300];
	snprintf(shim_folder, sizeof(shim_folder), "%s", given("HB_TEST_SHIM"));
	snprintf(fake_folder, sizeof(fake_folder), "%s", given("HB_TEST_FAKE"));
	*strrchr(shim_folder, '/') = '\0';
	*strrchr(fake_folder, '/') = '\0';
	snprintf(path, sizeof(path), "/nonexistent::%s;%s", shim_folder, fake_folder);
	unsetenv("HB_REAL_LIBCUDA");
	setenv("LD_LIBRARY_PATH", path, 1);
	assert_true(runs_well(see_the_fake_driver));
}

/* ---- an old driver ---- */

static void use_an_old_driver(void)
{
	void *launch = NULL, *launch_ex = NULL;
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	/* This driver has no second form of the lookup, so the shim uses the first. */
	CHECK(CU(cuGetProcAddress_v2)("cuLaunchKernel", &launch, 11040, 0, &status) == CUDA_SUCCESS);
	CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
	Dl_info info;
	CHECK(launch && dladdr(launch, &info) && strcmp(info.dli_fname, given("HB_TEST_SHIM")) == 0);
	CHECK(CU(cuGetProcAddress_v2)("cuNoSuchFunction", &launch_ex, 12000, 0, &status) == CUDA_ERROR_NOT_FOUND);
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK(CU(cuLaunchKernelEx)(NULL, NULL, NULL, NULL) == CUDA_ERROR_NOT_SUPPORTED);
	CHECK(CU(cuGraphLaunch)(NULL, NULL) >= HB_FAKE_ANSWER_BASE);
}

static void an_old_driver_lacks_new_functions(void **state)
{
	setenv("HB_REAL_LIBCUDA", given("HB_TEST_FAKE_OLD"), 1);
	assert_true(runs_well(use_an_old_driver));
}

/* ---- the loader's cache ---- */

#define MAGIC "glibc-ld.so.cache1.1"

/* Three entries: another library, the library for another machine, the right one. Offsets are from the start of the file. */
static size_t make_cache(unsigned char *file)
{
	static const char strings[] =
		"libc.so.6\0/lib/libc.so.6\0libcuda.so.1\0/lib32/libcuda.so.1\0/lib64/libcuda.so.1";
	struct entry {
		int32_t flags;
		uint32_t name, path, os_version;
		uint64_t hardware;
	} entries[3] = {{0x0303, 0, 10, 0, 0}, {0x0003, 25, 38, 0, 0}, {0x0303, 25, 58, 0, 0}};
#if defined(__aarch64__)
	entries[0].flags = entries[2].flags = 0x0a03;
#endif
	uint32_t numbers[7] = {3, sizeof(strings)};
	size_t at = 48 + sizeof(entries);
	memcpy(file, MAGIC, 20);
	memcpy(file + 20, numbers, sizeof(numbers));
	for (int i = 0; i < 3; i++) {
		entries[i].name += (uint32_t)at;
		entries[i].path += (uint32_t)at;
	}
	memcpy(file + 48, entries, sizeof(entries));
	memcpy(file + at, strings, sizeof(strings));
	return at + sizeof(strings);
}

static void *note_path(const char *path, void *list)
{
	strcat((char *)list, path);
	strcat((char *)list, " ");
	return NULL;
}

/* Returns the path that the first `size` bytes of a cache list for libcuda.so.1. */
static void list_cache(const unsigned char *file, size_t size, char *list)
{
	char path[] = "/tmp/hb-shim-cache-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, file, size), (ssize_t)size);
	close(fd);
	list[0] = '\0';
	assert_null(hb_loader_cache_each(path, "libcuda.so.1", note_path, list));
	unlink(path);
}

static void the_cache_lists_this_machines_library(void **state)
{
	unsigned char file[512];
	char list[512];
	list_cache(file, make_cache(file), list);
	assert_string_equal(list, "/lib64/libcuda.so.1 ");
}

static void a_damaged_cache_lists_nothing(void **state)
{
	unsigned char file[512];
	char list[512];
	size_t size = make_cache(file);
	for (size_t cut = 0; cut < size; cut++) {
		list_cache(file, cut, list);
		assert_string_equal(list, "");
	}
	memset(file + 48 + 2 * 24 + 4, 0xff, 8); /* offsets of the right entry */
	list_cache(file, size, list);
	assert_string_equal(list, "");
	memset(file + 20, 0xff, 4); /* the number of entries */
	list_cache(file, size, list);
	assert_string_equal(list, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_driver_there_is_no_device),
		cmocka_unit_test(the_shim_never_takes_itself_for_the_driver),
		cmocka_unit_test(a_copy_of_the_shim_is_no_driver_either),
		cmocka_unit_test(the_search_of_the_library_path_skips_the_shim),
		cmocka_unit_test(an_old_driver_lacks_new_functions),
		cmocka_unit_test(the_cache_lists_this_machines_library),
		cmocka_unit_test(a_damaged_cache_lists_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
