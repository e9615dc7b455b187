/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource-manager calls: what one sees who redirects the library's import of
 * ioctl, what the controls answer, and that a slice set on a context's channel
 * group is the model's slice.
 */
#include "sim_test.h"

#include "nvidia/import_redirect.h"
#include "nvidia/nvidia_rm_abi.h"
#include "simcuda/sim_rm_abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#define GROUPS_MAX 64

typedef int ioctl_function(int fd, unsigned long request, ...);

static ioctl_function *forward;
static struct {
	int fd;
	uint32_t client, object, parent, engine;
} groups[GROUPS_MAX];
static size_t n_groups, n_channels, n_schedules, n_frees;

static void note_alloc(int fd, const struct hb_rm_alloc_rights *call)
{
	if (call->class_id == SIM_RM_CLASS_CHANNEL)
		n_channels++;
	if (call->class_id != HB_RM_CLASS_GROUP || call->status != 0 || n_groups == GROUPS_MAX)
		return;
	const struct hb_rm_group_params *params = (const void *)(uintptr_t)call->params;
	groups[n_groups].fd = fd;
	groups[n_groups].client = call->client;
	groups[n_groups].object = call->object;
	groups[n_groups].parent = call->parent;
	groups[n_groups++].engine = params->engine_type;
}

static int watch(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *call = va_arg(arguments, void *);
	va_end(arguments);
	int result = forward(fd, request, call);
	if (_IOC_TYPE(request) != HB_RM_MAGIC || result < 0)
		return result;
	if (_IOC_NR(request) == HB_RM_NR_ALLOC && _IOC_SIZE(request) == sizeof(struct hb_rm_alloc_rights))
		note_alloc(fd, call);
	else if (_IOC_NR(request) == HB_RM_NR_FREE)
		n_frees++;
	else if (_IOC_NR(request) == HB_RM_NR_CONTROL)
		n_schedules += ((struct hb_rm_control *)call)->command == HB_RM_GROUP_SCHEDULE;
	return result;
}

static uint32_t control(size_t group, uint32_t command, void *params, uint32_t size)
{
	struct hb_rm_control call = {.client = groups[group].client,
				     .object = groups[group].object,
				     .command = command,
				     .params = (uintptr_t)params,
				     .params_size = size};
	assert_int_equal(forward(groups[group].fd, HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call), 0);
	return call.status;
}

static int begin(void **state)
{
	Dl_info info;
	assert_int_not_equal(dladdr((void *)(uintptr_t)cuInit, &info), 0);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(library);
	*(void **)&forward = dlsym(library, "hb_sim_ioctl");
	assert_non_null(forward);
	assert_int_equal(hb_import_redirect(library, "ioctl", (void *)(uintptr_t)watch), 0);
	return sim_test_begin(state);
}

static void a_context_is_four_channel_groups(void **state)
{
	CUcontext context;
	(void)state;
	assert_int_equal(n_groups, 4); /* of the test's own context */
	assert_int_equal(groups[0].engine, HB_RM_ENGINE_GRAPHICS_FIRST);
	for (size_t i = 1; i < 4; i++)
		assert_int_equal(groups[i].engine, HB_RM_ENGINE_COPY_FIRST + i - 1);
	assert_true(n_channels >= 4 && n_schedules == 4);
	CU(cuCtxCreate_v2(&context, 0, 0));
	assert_int_equal(n_groups, 8);
	CU(cuCtxDestroy_v2(context));
	assert_int_equal(n_frees, 4);
}

static void slices_are_set_and_read_back(void **state)
{
	uint64_t us = 0;
	(void)state;
	assert_int_equal(control(0, HB_RM_GROUP_GET_TIMESLICE, &us, sizeof us), 0);
	assert_int_equal(us, 2048);
	assert_int_equal(control(1, HB_RM_GROUP_GET_TIMESLICE, &us, sizeof us), 0);
	assert_int_equal(us, 1024);
	us = 5000;
	assert_int_equal(control(0, HB_RM_GROUP_SET_TIMESLICE, &us, sizeof us), 0);
	us = 0;
	assert_int_equal(control(0, HB_RM_GROUP_GET_TIMESLICE, &us, sizeof us), 0);
	assert_int_equal(us, 5000);
}

static void what_the_manager_would_refuse_is_refused(void **state)
{
	uint32_t word = 1;
	uint64_t us = UINT64_MAX;
	struct hb_rm_control call = {.client = 0x1234,
				     .object = groups[0].object,
				     .command = HB_RM_GROUP_GET_TIMESLICE,
				     .params = (uintptr_t)&us,
				     .params_size = sizeof us};
	(void)state;
	assert_int_equal(control(0, HB_RM_GROUP_SET_TIMESLICE, &word, sizeof word), SIM_NV_INVALID_PARAM_STRUCT);
	assert_int_equal(control(0, HB_RM_GROUP_SET_TIMESLICE, &us, sizeof us), SIM_NV_INVALID_ARGUMENT);
	assert_int_equal(control(0, 0xA06C0105, &us, sizeof us), SIM_NV_NOT_SUPPORTED);
	assert_int_equal(control(0, 0x2080014A, &us, sizeof us), SIM_NV_NOT_SUPPORTED);
	assert_int_equal(forward(groups[0].fd, HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call), 0);
	assert_int_equal(call.status, SIM_NV_INVALID_CLIENT);
	call.client = groups[0].client;
	call.object = 0x99;
	assert_int_equal(forward(groups[0].fd, HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call), 0);
	assert_int_equal(call.status, SIM_NV_INVALID_OBJECT_HANDLE);
	/* Controls can be refused on request. */
	setenv("HB_SIM_RM_REFUSE", "a06c0103", 1);
	us = 100;
	assert_int_equal(control(0, HB_RM_GROUP_SET_TIMESLICE, &us, sizeof us), SIM_NV_INSUFFICIENT_PERMISSIONS);
	assert_int_equal(control(0, HB_RM_GROUP_GET_TIMESLICE, &us, sizeof us), 0);
	unsetenv("HB_SIM_RM_REFUSE");
}

#define SHORT_KERNELS 8

static CUfunction busy_work;
static CUstream busy_stream;

/* In the busy context: a kernel of some milliseconds that fills the GPU. */
static void busy_kernel(uint64_t ns)
{
	CU(cuLaunchKernel(busy_work, 132, 1, 1, 1024, 1, 1, 0, busy_stream, (void *[]){&ns}, NULL));
}

/*
 * GPU time that short kernels of the test's context take, waiting for the GPU
 * included, while the other context keeps it busy. Each is set off by an event
 * of the busy stream, and everything is queued behind a takeover kernel: the times are the
 * model's alone.
 */
static float short_kernels_ms(CUcontext busy, CUfunction takeover)
{
	CUstream stream;
	CUevent set_off, start[SHORT_KERNELS], end[SHORT_KERNELS];
	void *gate;
	uint64_t ns = 20000;
	float sum = 0, ms;
	CU(cuMemHostAlloc(&gate, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	*(uint32_t *)gate = 0;
	CU(cuCtxSetCurrent(sim_test_context()));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuLaunchKernel(takeover, 1, 1, 1, 32, 1, 1, 0, busy_stream, (void *[]){&gate}, NULL));
	for (int i = 0; i < SHORT_KERNELS; i++) {
		CU(cuCtxSetCurrent(busy)); /* an event belongs to the context of the streams it is recorded in */
		CU(cuEventCreate(&set_off, CU_EVENT_DISABLE_TIMING));
		CU(cuCtxSetCurrent(sim_test_context()));
		CU(cuEventCreate(&start[i], 0));
		CU(cuEventCreate(&end[i], 0));
		busy_kernel(5000000 + 300000 * (uint64_t)i);
		CU(cuEventRecord(set_off, busy_stream));
		CU(cuStreamWaitEvent(stream, set_off, 0));
		CU(cuEventRecord(start[i], stream));
		CU(cuLaunchKernel(sim_test_function("wait_us"), 132, 1, 1, 512, 1, 1, 0, stream, (void *[]){&ns},
				  NULL));
		CU(cuEventRecord(end[i], stream));
		CU(cuEventDestroy_v2(set_off));
	}
	busy_kernel(20000000);
	__atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
	CU(cuStreamSynchronize(stream));
	CU(cuStreamSynchronize(busy_stream));
	for (int i = 0; i < SHORT_KERNELS; i++) {
		CU(cuEventElapsedTime(&ms, start[i], end[i]));
		CU(cuEventDestroy_v2(start[i]));
		CU(cuEventDestroy_v2(end[i]));
		sum += ms;
	}
	CU(cuStreamDestroy_v2(stream));
	CU(cuMemFreeHost(gate));
	return sum;
}

static void a_small_slice_lets_the_other_context_in_soon(void **state)
{
	CUcontext busy;
	CUmodule module;
	CUfunction takeover;
	uint64_t us = 1;
	(void)state;
	size_t first = n_groups;
	CU(cuCtxCreate_v2(&busy, 0, 0));
	CU(cuModuleLoadData(&module, sim_test_image));
	CU(cuModuleGetFunction(&busy_work, module, "wait_us"));
	CU(cuModuleGetFunction(&takeover, module, "takeover"));
	CU(cuStreamCreate(&busy_stream, CU_STREAM_NON_BLOCKING));
	float with_default = short_kernels_ms(busy, takeover);
	assert_int_equal(control(first, HB_RM_GROUP_SET_TIMESLICE, &us, sizeof us), 0);
	float with_smallest = short_kernels_ms(busy, takeover);
	/* A slice of 2 ms is waited out, one of 1 us is not: the switch of about 0.2 ms remains. */
	assert_true(with_smallest < SHORT_KERNELS * 0.5f);
	assert_true(with_default > 2 * with_smallest);
	CU(cuCtxDestroy_v2(busy));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_context_is_four_channel_groups),
		cmocka_unit_test(slices_are_set_and_read_back),
		cmocka_unit_test(what_the_manager_would_refuse_is_refused),
		cmocka_unit_test(a_small_slice_lets_the_other_context_in_soon),
	};
	return cmocka_run_group_tests_name("simcuda_rm", tests, begin, sim_test_end);
}
