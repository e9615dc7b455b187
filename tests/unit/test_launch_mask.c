/* SPDX-License-Identifier: Apache-2.0 */
/* What the trial of SM masks (nvidia/launch_mask.h) leaves in a context is used again there, and nowhere else. */
#include "nvidia/launch_mask.h"
#include "unit.h"

static int first_context, second_context;
static void *current = &first_context;
static int modules, allocations, streams;

static int subscribe(uint32_t *handle, void (*called)(void *, int, int, const void *), void *user)
{
	(void)called, (void)user;
	*handle = 1;
	return 0;
}

static int enable(uint32_t on, uint32_t handle, int domain, int id)
{
	(void)on, (void)handle, (void)domain, (void)id;
	return 0;
}

static CUresult get_export_table(const void **table, const CUuuid *id)
{
	static const void *slots[8];
	(void)id;
	slots[0] = (const void *)(uintptr_t)sizeof slots; /* tables begin with their size */
	slots[3] = (const void *)(uintptr_t)subscribe;
	slots[6] = (const void *)(uintptr_t)enable;
	*table = slots;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult get_priorities(int *least, int *greatest)
{
	*least = *greatest = 0;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute, (void)device;
	*value = 132;
	return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *module, const void *image)
{
	(void)image;
	*module = (CUmodule)current;
	modules++;
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
	(void)name;
	*function = (CUfunction)module;
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
	(void)bytes;
	*address = (CUdeviceptr)(uintptr_t)current;
	allocations++;
	return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *stream, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	*stream = (CUstream)current;
	streams++;
	return CUDA_SUCCESS;
}

/* The trial ends here. Everything that it uses must belong to the current context. */
static CUresult set_memory(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
	(void)value, (void)bytes;
	assert_int_equal(address, (uintptr_t)current);
	assert_ptr_equal(stream, current);
	return CUDA_ERROR_NOT_READY;
}

static void make_trial_in(void *context)
{
	static const struct hb_mask_calls calls = {
		.cuGetExportTable = get_export_table,
		.cuCtxGetCurrent = get_current,
		.cuCtxGetDevice = get_device,
		.cuCtxGetStreamPriorityRange = get_priorities,
		.cuDeviceGetAttribute = get_attribute,
		.cuModuleLoadData = load_module,
		.cuModuleGetFunction = get_function,
		.cuMemAlloc_v2 = allocate,
		.cuStreamCreateWithPriority = create_stream,
		.cuMemsetD8Async = set_memory,
	};
	current = context;
	assert_int_equal(hb_mask_probe(&calls, 0), HB_MASK_CALL_FAILED);
}

static void check_made(int times)
{
	assert_int_equal(modules, times);
	assert_int_equal(allocations, times);
	assert_int_equal(streams, times);
}

static void trials_in_one_context_share_what_they_need(void **state)
{
	(void)state;
	make_trial_in(&first_context);
	make_trial_in(&first_context);
	check_made(1);
	make_trial_in(&second_context);
	check_made(2);
}

static void nothing_of_a_context_that_ended_is_used(void **state)
{
	(void)state;
	make_trial_in(&second_context);
	check_made(2);
	hb_mask_forget_context((CUcontext)&first_context); /* another one */
	make_trial_in(&second_context);
	check_made(2);
	hb_mask_forget_context((CUcontext)&second_context);
	make_trial_in(&second_context); /* a new context at the same address */
	check_made(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trials_in_one_context_share_what_they_need),
		cmocka_unit_test(nothing_of_a_context_that_ended_is_used),
	};
	return cmocka_run_group_tests_name("launch mask", tests, NULL, NULL);
}
