/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource-manager calls: what one sees who redirects the library's import of
 * ioctl, what the controls answer, and that a slice set on a context's channel
 * group is the model's slice.
 */
#include "sim_test.h"

#include "gpu/import_redirect.h"
#include "gpu/nvidia_rm_abi.h"
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

/* GPU time that `n` short kernels of the test's context take, alone or not, waiting for the GPU included. */
static float short_kernels_ms(int n)
{
	CUstream stream;
	CUevent start, end;
	uint64_t ns = 20000;
	float sum = 0, ms;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&start, 0));
	CU(cuEventCreate(&end, 0));
	for (int i = 0; i < n; i++) {
		CU(cuEventRecord(start, stream));
		CU(cuLaunchKernel(sim_test_function("wait_us"), 132, 1, 1, 512, 1, 1, 0, stream, (void *[]){&ns},
				  NULL));
		CU(cuEventRecord(end, stream));
		CU(cuEventSynchronize(end));
		CU(cuEventElapsedTime(&ms, start, end));
		sum += ms;
	}
	CU(cuEventDestroy_v2(start));
	CU(cuEventDestroy_v2(end));
	CU(cuStreamDestroy_v2(stream));
	return sum;
}

static void a_small_slice_lets_the_other_context_in_soon(void **state)
{
	CUcontext busy;
	CUmodule module;
	CUfunction work;
	CUstream stream;
	uint64_t ns = 400000000, us = 1; /* 0.4 s of the GPU: longer than the rest takes */
	(void)state;
	size_t first = n_groups;
	CU(cuCtxCreate_v2(&busy, 0, 0));
	CU(cuModuleLoadData(&module, sim_test_image));
	CU(cuModuleGetFunction(&work, module, "wait_us"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuLaunchKernel(work, 132, 1, 1, 1024, 1, 1, 0, stream, (void *[]){&ns}, NULL));
	CU(cuCtxSetCurrent(sim_test_context()));
	float with_default = short_kernels_ms(8);
	CU_FAILS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	assert_int_equal(control(first, HB_RM_GROUP_SET_TIMESLICE, &us, sizeof us), 0);
	float with_smallest = short_kernels_ms(8);
	CU_FAILS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	/* A slice of 2 ms is waited out, one of 1 us is not: the switch of about 0.2 ms remains. */
	assert_true(with_smallest < 8 * 0.5f);
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
