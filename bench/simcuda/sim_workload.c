/* SPDX-License-Identifier: Apache-2.0 */
/* Start, end, clock and checks of the sample programs; see sim_workload.h. */
#include "sim_workload.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char image[] = "HBSIM1\n"
			    "kernel work ns_param=0 params=8 registers=32 memory_share=0.3\n"
			    "kernel add ns=1000 params=8,8 host=sim_workload_add\n";

static CUcontext context;
static CUmodule module;
static CUdeviceptr sum;
static const struct hb_sim_table *table;
static double scale; /* host time per GPU time */

/* Exported: the image finds it by name. */
__attribute__((visibility("default"))) void sim_workload_add(const struct hb_sim_launch *launch);

void sim_workload_add(const struct hb_sim_launch *launch)
{
	**(uint64_t **)launch->args[0] += *(uint64_t *)launch->args[1];
}

void sim_workload_must(CUresult result, const char *call)
{
	const char *name = "unknown error";
	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "%s: %s\n", call, name);
	exit(1);
}

/* Two looks at both clocks give their ratio, which HB_SIM_SCALE of this process may not be: the GPU's starter set it. */
static double measure_scale(void)
{
	int64_t host_ns = hb_clock_now_ns(), gpu_ns = table->now_ns();
	const struct timespec pause = {0, 20000000};
	nanosleep(&pause, NULL);
	return (double)(hb_clock_now_ns() - host_ns) / (double)(table->now_ns() - gpu_ns);
}

void sim_workload_open(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const void *found = NULL;
	MUST(cuInit(0));
	if (cuGetExportTable(&found, &id) != CUDA_SUCCESS) {
		fprintf(stderr, "this program needs the simulated driver (docs/simcuda.md)\n");
		exit(1);
	}
	table = found;
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, image));
	MUST(cuMemAlloc_v2(&sum, sizeof(uint64_t)));
	MUST(cuMemsetD32_v2(sum, 0, 2));
	MUST(cuCtxSynchronize());
	scale = measure_scale();
}

void sim_workload_close(void)
{
	MUST(cuMemFree_v2(sum));
	MUST(cuModuleUnload(module));
	MUST(cuDevicePrimaryCtxRelease_v2(0));
}

CUfunction sim_workload_kernel(const char *name)
{
	CUfunction function;
	MUST(cuModuleGetFunction(&function, module, name));
	return function;
}

int64_t sim_workload_now_ns(void)
{
	return table->now_ns();
}

void sim_workload_sleep_until(int64_t at_ns)
{
	int64_t left_ns = (int64_t)((double)(at_ns - table->now_ns()) * scale);
	struct timespec time = {left_ns / HB_NS_PER_S, left_ns % HB_NS_PER_S};
	if (left_ns <= 0)
		return;
	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

CUdeviceptr sim_workload_sum(void)
{
	return sum;
}

uint64_t sim_workload_read_sum(void)
{
	uint64_t value;
	MUST(cuCtxSynchronize());
	MUST(cuMemcpyDtoH_v2(&value, sum, sizeof value));
	return value;
}

double sim_workload_number(const char *name, const char *text, double low, double high)
{
	char *end;
	double value = strtod(text, &end);
	if (end == text || *end || !(value >= low && value <= high)) {
		fprintf(stderr, "--%s %s: expected a number from %g to %g\n", name, text, low, high);
		exit(2);
	}
	return value;
}
