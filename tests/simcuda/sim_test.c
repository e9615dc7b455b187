/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated GPU and the kernels of the tests; see sim_test.h. */
#include "sim_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char sim_test_image[] = "HBSIM1\n"
			      "kernel empty ns=1000\n"
			      "kernel vector_add ns=2000 ns_per_block=10 params=8,8,8,4 host=test_vector_add\n"
			      "kernel add_one ns=1000 params=8 host=test_add_one   # one 32-bit word\n"
			      "kernel times_two ns=1000 params=8 host=test_times_two\n"
			      "kernel wait_us ns_param=0 params=8 registers=64\n"
			      "kernel slow_add ns=300000 params=8 host=test_add_one\n"
			      "kernel big_shared ns=1000 shared=40000 max_threads=256\n"
			      "kernel sum_bytes ns=500 params=1,8,2 host=test_sum_bytes\n"
			      "takeover takeover\n"
			      "global counter bytes=4\n"
			      "global table bytes=4096\n";

/* Exported: the image finds them by name. */
void test_vector_add(const struct hb_sim_launch *launch);
void test_add_one(const struct hb_sim_launch *launch);
void test_times_two(const struct hb_sim_launch *launch);
void test_sum_bytes(const struct hb_sim_launch *launch);
#define EXPORT __attribute__((visibility("default")))

EXPORT void test_vector_add(const struct hb_sim_launch *launch)
{
	const float *a = *(float **)launch->args[0], *b = *(float **)launch->args[1];
	float *sum = *(float **)launch->args[2];
	uint32_t n = *(uint32_t *)launch->args[3];
	for (uint32_t i = 0; i < n; i++)
		sum[i] = a[i] + b[i];
}

EXPORT void test_add_one(const struct hb_sim_launch *launch)
{
	++**(uint32_t **)launch->args[0];
}

EXPORT void test_times_two(const struct hb_sim_launch *launch)
{
	**(uint32_t **)launch->args[0] *= 2;
}

EXPORT void test_sum_bytes(const struct hb_sim_launch *launch)
{
	uint32_t *out = *(uint32_t **)launch->args[1];
	*out = *(uint8_t *)launch->args[0] + *(uint16_t *)launch->args[2] + launch->grid[0] * launch->block[0];
}

static char folder[4096];
static CUcontext context;
static CUmodule module;

const char *sim_test_name(CUresult result)
{
	const char *name = NULL;
	return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "unknown error";
}

void sim_test_environment(void)
{
	const char *base = getenv("TMPDIR");
	snprintf(folder, sizeof folder, "%s/hb-simcuda-XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(folder))
		abort();
	setenv("HB_SIM_GPU", folder, 1);
	setenv("HB_SIM_SCALE", "0.1", 0);
	unsetenv("CUDA_VISIBLE_DEVICES");
	if (!getenv("CUDA_MPS_PIPE_DIRECTORY"))
		setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
}

void sim_test_clean(void)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;
	while (listing && (entry = readdir(listing)))
		unlinkat(dirfd(listing), entry->d_name, 0);
	if (listing)
		closedir(listing);
	rmdir(folder);
}

int sim_test_begin(void **state)
{
	(void)state;
	sim_test_environment();
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&context, 0, 0));
	CU(cuModuleLoadData(&module, sim_test_image));
	return 0;
}

int sim_test_end(void **state)
{
	struct hb_sim_stats stats;
	(void)state;
	CU(cuModuleUnload(module));
	CU(cuCtxDestroy_v2(context));
	CU(sim_test_table()->stats(0, &stats));
	assert_int_equal(stats.memory_own, 0);
	assert_int_equal(stats.memory_free, stats.memory_total);
	sim_test_clean();
	return 0;
}

CUcontext sim_test_context(void)
{
	return context;
}

CUfunction sim_test_function(const char *name)
{
	CUfunction function = NULL;
	CU(cuModuleGetFunction(&function, module, name));
	return function;
}

const struct hb_sim_table *sim_test_table(void)
{
	const void *table;
	CUuuid id = HB_SIM_TABLE_ID;
	CU(cuGetExportTable(&table, &id));
	return table;
}
