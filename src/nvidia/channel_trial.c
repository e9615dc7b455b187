/* SPDX-License-Identifier: Apache-2.0 */
/* Hammers pairs of addresses on the GPU; see channel_trial.h. */
#include "nvidia/channel_trial.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

/* Reductions of one warp in one test. 12 of each of 8 warps on 132 SMs keep an L2 slice busy for 7 or 13 us on an H200. */
#define REDUCTIONS 12u
#define THREADS 256
/* Tests before the first calibration, which let the GPU's clocks rise. */
#define WARM_TESTS 4096u
#define KERNEL_NAME "hb_hammer"

/*
 * One lane of each warp adds to one of the two addresses: even warps to the first, odd warps to the second. Each block adds
 * its cycles to the result. The fence waits until the reductions are done.
 */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry " KERNEL_NAME "(.param .u64 a, .param .u64 b, .param .u64 sum, "
			  ".param .u64 n)\n{\n"
			  ".reg .u64 %at, %other, %sum, %begin, %end;\n.reg .u32 %thread, %warp, %lane, %left, %took;\n"
			  ".reg .pred %even, %idle, %more, %reports;\n"
			  "ld.param.u64 %at, [a];\nld.param.u64 %other, [b];\nld.param.u64 %sum, [sum];\n"
			  "ld.param.u32 %left, [n];\nmov.u32 %thread, %tid.x;\nand.b32 %warp, %thread, 32;\n"
			  "setp.eq.u32 %even, %warp, 0;\nselp.b64 %at, %at, %other, %even;\n"
			  "and.b32 %lane, %thread, 31;\nsetp.ne.u32 %idle, %lane, 0;\n"
			  "bar.sync 0;\nmov.u64 %begin, %clock64;\n@%idle bra DONE;\n"
			  "NEXT: red.global.add.u32 [%at], 1;\nsub.u32 %left, %left, 1;\n"
			  "setp.ne.u32 %more, %left, 0;\n@%more bra NEXT;\n"
			  "DONE: membar.gl;\nbar.sync 0;\nmov.u64 %end, %clock64;\nsub.u64 %end, %end, %begin;\n"
			  "cvt.u32.u64 %took, %end;\nsetp.eq.u32 %reports, %thread, 0;\n"
			  "@%reports red.global.add.u32 [%sum], %took;\nret;\n}\n";
static const char simulated[] = "HBSIM1\nhammers " KERNEL_NAME "\n";

struct channel_trial {
	const struct hb_channel_calls *cuda;
	struct hb_channel_finding *finding;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr memory, pages, sums; /* `pages` is the first page boundary in `memory` */
	CUstream stream;
	unsigned sms;
	int64_t until_ns;
};

/* Notes the first call that failed. Returns whether this one succeeded. */
static bool note_call(struct channel_trial *trial, const char *name, CUresult code)
{
	if (code != CUDA_SUCCESS && !trial->finding->failed) {
		trial->finding->failed = name;
		trial->finding->code = code;
	}
	return code == CUDA_SUCCESS;
}

#define CALL(trial, name, ...) note_call(trial, #name, (trial)->cuda->name(__VA_ARGS__))

static bool launch_test(struct channel_trial *trial, const struct hb_channel_pair *pair, uint32_t index)
{
	uint64_t a = trial->pages + pair->a, b = trial->pages + pair->b, n = REDUCTIONS;
	uint64_t sum = trial->sums + index * sizeof(uint32_t);
	void *arguments[] = {&a, &b, &sum, &n};
	return CALL(trial, cuLaunchKernel, trial->kernel, trial->sms, 1, 1, THREADS, 1, 1, 0, trial->stream, arguments,
		    NULL);
}

/* An hb_channel_measure. */
static int measure_pairs(void *user, const struct hb_channel_pair *pairs, uint32_t n, uint32_t *cycles)
{
	struct channel_trial *trial = user;
	if (hb_clock_now_ns() > trial->until_ns)
		return -ETIME;
	bool made = CALL(trial, cuMemsetD8Async, trial->sums, 0, n * sizeof *cycles, trial->stream);
	for (uint32_t i = 0; made && i < n; i++)
		made = launch_test(trial, &pairs[i], i);
	made = made && CALL(trial, cuMemcpyDtoHAsync_v2, cycles, trial->sums, n * sizeof *cycles, trial->stream) &&
	       CALL(trial, cuStreamSynchronize, trial->stream);
	for (uint32_t i = 0; made && i < n; i++)
		cycles[i] /= trial->sms;
	return made ? 0 : -EIO;
}

/* A real driver refuses one image and the simulated driver the other. */
static bool load_kernel(struct channel_trial *trial)
{
	const struct hb_channel_calls *cuda = trial->cuda;
	CUresult code = cuda->cuModuleLoadData(&trial->module, ptx);
	if (code != CUDA_SUCCESS && cuda->cuModuleLoadData(&trial->module, simulated) != CUDA_SUCCESS) {
		trial->module = NULL;
		return note_call(trial, "cuModuleLoadData", code);
	}
	return CALL(trial, cuModuleGetFunction, &trial->kernel, trial->module, KERNEL_NAME);
}

static bool need_memory(struct channel_trial *trial, const struct hb_channel_request *request)
{
	size_t bytes = (size_t)(request->pages + 1) * HB_CHANNEL_PAGE_BYTES;
	trial->pages = request->memory;
	if (request->memory)
		return true;
	bool made = CALL(trial, cuMemAlloc_v2, &trial->memory, bytes);
	trial->pages = (trial->memory + HB_CHANNEL_PAGE_BYTES - 1) / HB_CHANNEL_PAGE_BYTES * HB_CHANNEL_PAGE_BYTES;
	return made;
}

static bool begin_trial(struct channel_trial *trial, const struct hb_channel_request *request)
{
	CUdevice device;
	int sms = 0;
	size_t bytes = (size_t)request->pages * HB_CHANNEL_PAGE_BYTES;
	bool made = CALL(trial, cuCtxGetDevice, &device) &&
		    CALL(trial, cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) &&
		    load_kernel(trial) && need_memory(trial, request) &&
		    CALL(trial, cuMemAlloc_v2, &trial->sums, HB_CHANNEL_TESTS_MOST * sizeof(uint32_t)) &&
		    CALL(trial, cuStreamCreate, &trial->stream, CU_STREAM_NON_BLOCKING) &&
		    CALL(trial, cuMemsetD8Async, trial->pages, 0, bytes, trial->stream);
	trial->sms = (unsigned)sms;
	return made;
}

static int warm_up(struct channel_trial *trial)
{
	static struct hb_channel_pair pairs[WARM_TESTS];
	static uint32_t cycles[WARM_TESTS];
	for (uint32_t i = 0; i < WARM_TESTS; i++)
		pairs[i].b = (uint64_t)(i % HB_CHANNEL_PAGE_UNITS) * HB_CHANNEL_UNIT_BYTES;
	return measure_pairs(trial, pairs, WARM_TESTS, cycles);
}

static void end_trial(struct channel_trial *trial)
{
	const struct hb_channel_calls *cuda = trial->cuda;
	if (trial->stream)
		cuda->cuStreamDestroy_v2(trial->stream);
	if (trial->sums)
		cuda->cuMemFree_v2(trial->sums);
	if (trial->memory)
		cuda->cuMemFree_v2(trial->memory);
	if (trial->module)
		cuda->cuModuleUnload(trial->module);
}

static int map_and_check(struct channel_trial *trial, const struct hb_channel_request *request)
{
	struct hb_channel_finder *finder = trial->finding->finder;
	int64_t began_ns = hb_clock_now_ns();
	trial->until_ns = began_ns + request->limit_ns / 10 * 9;
	int result = warm_up(trial);
	if (result == 0)
		result = hb_channel_find(finder, request->pages);
	int64_t mapped_ns = hb_clock_now_ns();
	trial->finding->map_ns = mapped_ns - began_ns;
	if (result < 0 && (result != -ETIME || !hb_channel_map_of(finder)->n_pages))
		return result;
	trial->until_ns = began_ns + request->limit_ns;
	result = hb_channel_check_units(finder, request->check_units, &trial->finding->check);
	trial->finding->check_ns = hb_clock_now_ns() - mapped_ns;
	return result == -ETIME ? 0 : result;
}

int hb_channel_trial(const struct hb_channel_calls *cuda, const struct hb_channel_request *request,
		     struct hb_channel_finding *finding)
{
	struct channel_trial trial = {.cuda = cuda, .finding = finding};
	memset(finding, 0, sizeof *finding);
	finding->finder = hb_channel_finder_new(measure_pairs, &trial, 1);
	if (!finding->finder)
		return -ENOMEM;
	int result = begin_trial(&trial, request) ? map_and_check(&trial, request) : -EIO;
	end_trial(&trial);
	return result;
}
