/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses of a handle of cuMemCreate, in an elastic program over the simulated driver,
 * with which its memory cannot move: they bring it home for good. Handles with which
 * it never could are the driver's.
 */
#include "elastic_rig.h"
#include "shim/cuda_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
static const CUmemAccessDesc access_here = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
			     access_there = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static struct hb_page_elastic *record;

/* What is elsewhere may come home too late on a busy machine. */
#define OK_SOON(call) \
	({ \
		CUresult soon_; \
		while ((soon_ = (call)) == CUDA_ERROR_NOT_READY) \
			; \
		OK(soon_); \
	})

/* ---- uses that keep it home ---- */

static struct elastic_segment segment;

static void map_twice(void)
{
	CUdeviceptr second;
	OK(CU(cuMemAddressReserve)(&second, segment.bytes, 0, 0, 0));
	OK_SOON(CU(cuMemMap)(second, segment.bytes, 0, segment.handle, 0));
	OK(CU(cuMemSetAccess)(second, segment.bytes, &access_here, 1));
	elastic_launch(second, NULL);
	CHECK(elastic_is_intact(second, segment.bytes, 81, 1) && elastic_is_intact(segment.base, segment.bytes, 81, 1));
	elastic_launch(segment.base, NULL);
	CHECK(elastic_is_intact(second, segment.bytes, 81, 2));
	elastic_unmap(second, segment.bytes);
}

static void map_a_part(void)
{
	CUdeviceptr base;
	elastic_unmap(segment.base, segment.bytes);
	OK(CU(cuMemAddressReserve)(&base, segment.bytes, 0, 0, 0));
	OK_SOON(CU(cuMemMap)(base + 2 * MIB, 2 * MIB, 2 * MIB, segment.handle, 0));
	OK(CU(cuMemUnmap)(base + 2 * MIB, 2 * MIB));
	OK(CU(cuMemAddressFree)(base, segment.bytes));
	segment.base = elastic_map(segment.handle, segment.bytes);
}

/* Another process would map it so. */
static void export_it(void)
{
	int fd;
	CUmemGenericAllocationHandle imported;
	OK_SOON(CU(cuMemExportToShareableHandle)(&fd, segment.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CUdeviceptr second = elastic_map(imported, segment.bytes);
	elastic_launch(second, NULL);
	CHECK(elastic_is_intact(segment.base, segment.bytes, 81, 1));
	elastic_unmap(second, segment.bytes);
	OK(CU(cuMemRelease)(imported));
}

static void export_it_unmapped(void)
{
	elastic_unmap(segment.base, segment.bytes);
	int fd;
	OK_SOON(CU(cuMemExportToShareableHandle)(&fd, segment.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	segment.base = elastic_map(segment.handle, segment.bytes);
}

static void export_it_without_access(void)
{
	int fd;
	elastic_unmap(segment.base, segment.bytes);
	OK(CU(cuMemAddressReserve)(&segment.base, segment.bytes, 0, 0, 0));
	OK(CU(cuMemMap)(segment.base, segment.bytes, 0, segment.handle, 0));
	OK_SOON(CU(cuMemExportToShareableHandle)(&fd, segment.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	OK(CU(cuMemSetAccess)(segment.base, segment.bytes, &access_here, 1));
}

static void give_access_to_a_peer(void)
{
	unsigned long long flags;
	OK_SOON(CU(cuMemSetAccess)(segment.base, segment.bytes, &access_there, 1));
	OK(CU(cuMemGetAccess)(&flags, &there, segment.base));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(CU(cuMemGetAccess)(&flags, &here, segment.base));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void take_access_away(void)
{
	CUmemAccessDesc none = {here, CU_MEM_ACCESS_FLAGS_PROT_READ};
	unsigned long long flags;
	OK_SOON(CU(cuMemSetAccess)(segment.base, segment.bytes, &none, 1));
	OK(CU(cuMemGetAccess)(&flags, &here, segment.base));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
}

static void ask_for_synchronous_copies(void)
{
	int on = 1;
	OK_SOON(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, segment.base + 3 * MIB));
}

/* The simulated driver has no multicast, and cannot tell an address range to other devices. */
static void bind_it_for_multicast(void)
{
	CHECK(CU(cuMulticastBindMem)(1, 0, segment.handle, 0, segment.bytes, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void bind_its_address_for_multicast(void)
{
	CHECK(CU(cuMulticastBindAddr)(1, 0, segment.base - 2 * MIB, 3 * MIB, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void tell_its_address_to_devices(void)
{
	int fd;
	CHECK(CU(cuMemGetHandleForAddressRange)(&fd, segment.base + MIB, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void (*use)(void); /* of the child */

static void use_while_away(void)
{
	elastic_begin();
	segment.bytes = 4 * MIB;
	segment.handle = elastic_create(segment.bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	segment.base = elastic_map(segment.handle, segment.bytes);
	struct elastic_segment other = elastic_open_segment(2 * MIB);
	record = elastic_record_of(0);
	elastic_fill(segment.base, segment.bytes, 81);
	AWAIT(record->local_bytes == 6 * MIB && record->spare_bytes == 6 * MIB);
	uint64_t all = elastic_own_bytes() - ELASTIC_TABLES(6 * MIB);
	elastic_move_away(6 * MIB);
	use();
	AWAIT(record->host_bytes == 2 * MIB && record->stays_bytes[HB_PAGE_STAY_HANDLE] == 4 * MIB);
	AWAIT(elastic_has_own_bytes(record, all - 2 * MIB) && elastic_used_bytes() == 6 * MIB);
	CHECK(elastic_move(HB_ORDER_HOME, 0, 2 * MIB) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 6 * MIB) == HB_MOVE_NOTHING && record->moved_bytes == 2 * MIB);
	CHECK(record->stays_bytes[HB_PAGE_STAY_HANDLE] == 4 * MIB);
	CHECK(elastic_is_intact(segment.base + MIB, segment.bytes - MIB, 81 + elastic_word_of(0, MIB / 4), 0));
	elastic_close_segment(&segment);
	elastic_close_segment(&other);
	CHECK(elastic_used_bytes() == 0);
	AWAIT(elastic_has_own_bytes(record, all - 6 * MIB));
}

/* A page as for a new process. */
static void begin_again(void)
{
	hb_page_host_begin_again(&elastic_host);
	memset(elastic_host.page->elastic_gpus, 0, sizeof(elastic_host.page->elastic_gpus));
	elastic_host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
	elastic_host.page->gpus[0].used_bytes = 0;
}

static void other_uses_bring_it_home_for_good(void **state)
{
	static void (*const uses[])(void) = {map_twice,
					     map_a_part,
					     export_it,
					     export_it_unmapped,
					     export_it_without_access,
					     give_access_to_a_peer,
					     take_access_away,
					     bind_it_for_multicast,
					     bind_its_address_for_multicast,
					     tell_its_address_to_devices,
					     ask_for_synchronous_copies};
	for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
		use = uses[i];
		assert_non_null(hb_page_host_run(&elastic_host, use_while_away));
		begin_again();
	}
}

static void use_without_room(void)
{
	CUdeviceptr second;
	int fd;
	elastic_begin();
	segment.bytes = 4 * MIB;
	segment.handle = elastic_create(segment.bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	segment.base = elastic_map(segment.handle, segment.bytes);
	record = elastic_record_of(0);
	elastic_fill(segment.base, segment.bytes, 82);
	AWAIT(record->spare_bytes == 4 * MIB);
	elastic_move_away(4 * MIB);
	OK(CU(cuMemAddressReserve)(&second, segment.bytes, 0, 0, 0));
	elastic_fail("cuMemCreate:2");
	CHECK(CU(cuMemMap)(second, segment.bytes, 0, segment.handle, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemExportToShareableHandle)(&fd, segment.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	      CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemSetAccess)(segment.base, segment.bytes, &access_there, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	elastic_fail("");
	/* Nothing has changed: it can still move. */
	CHECK(elastic_is_intact(segment.base, segment.bytes, 82, 0));
	AWAIT(record->host_bytes == 4 * MIB);
	CHECK(elastic_move(HB_ORDER_HOME, 0, 4 * MIB) == HB_MOVE_MOVED);
	elastic_move_away(4 * MIB);
	OK_SOON(CU(cuMemMap)(second, segment.bytes, 0, segment.handle, 0));
	OK(CU(cuMemSetAccess)(second, segment.bytes, &access_here, 1));
	CHECK(elastic_is_intact(second, segment.bytes, 82, 0));
}

static void without_room_at_home_such_a_use_is_refused(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, use_without_room));
}

/* The calls on the way home, in about the order in which they are made. */
static const char *const steps[] = {
	"cuMemAddressReserve", "cuMemMap",     "cuMemSetAccess",     "cuMemCreate",
	"cuEventRecord",       "cuEventQuery", "cuStreamCreate",     "cuMemUnmap",
	"cuCtxSetCurrent",     "cuMemRelease", "cuStreamDestroy_v2", "cuMemcpyDtoDAsync_v2",
	"cuMemAddressFree",
};

/* Exports memory that is away while one call fails. Returns whether that call was made. */
static bool export_with_fault(bool mapped, const char *step, unsigned call)
{
	char fault[96];
	int fd;
	snprintf(fault, sizeof(fault), "%s:999:after=%u:times=1", step, call);
	segment.bytes = 4 * MIB;
	segment.handle = elastic_create(segment.bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	segment.base = elastic_map(segment.handle, segment.bytes);
	elastic_fill(segment.base, segment.bytes, 84 + call);
	elastic_move_away(segment.bytes);
	if (!mapped)
		elastic_unmap(segment.base, segment.bytes);
	elastic_fail(fault);
	CUresult result = CU(cuMemExportToShareableHandle)(&fd, segment.handle,
							   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	bool hit = elastic_fail("") > 0;
	OK(CU(cuCtxSetCurrent)(elastic_context)); /* the shim may have failed to set it again */
	CHECK(hit || result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY); /* too late, on a busy machine */
	if (result == CUDA_SUCCESS)
		close(fd);
	if (!mapped)
		segment.base = elastic_map(segment.handle, segment.bytes);
	CHECK(elastic_is_intact(segment.base, segment.bytes, 84 + call, 0));
	if (result != CUDA_SUCCESS) {
		CHECK(elastic_move(HB_ORDER_HOME, 0, segment.bytes) == HB_MOVE_MOVED);
		CHECK(elastic_is_intact(segment.base, segment.bytes, 84 + call, 0));
	}
	elastic_close_segment(&segment);
	CHECK(elastic_used_bytes() == 0);
	return hit;
}

static void fail_on_the_way_home(void)
{
	unsigned hits = 0;
	elastic_begin();
	uint64_t before = elastic_own_bytes();
	for (int mapped = 0; mapped < 2; mapped++)
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			for (unsigned call = 0; export_with_fault(mapped, steps[i], call); call++)
				hits++;
	CHECK(hits >= 2 * (sizeof(steps) / sizeof(steps[0]) - 1));
	segment = elastic_open_segment(2 * MIB);
	elastic_move_away(2 * MIB); /* takes back what was leaked */
	AWAIT(elastic_has_own_bytes(elastic_record_of(0), before));
}

static void a_way_home_that_fails_loses_nothing(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, fail_on_the_way_home));
}

/* ---- handles that stay the driver's ---- */

/* Whether the driver knows the handle. */
static bool is_native(CUmemGenericAllocationHandle handle)
{
	CUmemAllocationProp properties;
	void *driver = dlopen(getenv("HB_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
	CHECK(driver);
	__typeof__(&cuMemGetAllocationPropertiesFromHandle) get = (__typeof__(get))dlsym(
		driver, "cuMemGetAllocationPropertiesFromHandle");
	return get(&properties, handle) == CUDA_SUCCESS;
}

static CUmemGenericAllocationHandle create(size_t bytes, const CUmemAllocationProp *properties)
{
	CUmemGenericAllocationHandle handle;
	OK(CU(cuMemCreate)(&handle, bytes, properties, 0));
	return handle;
}

static void create_other_kinds(void)
{
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	CUmemGenericAllocationHandle handle, imported;
	CUcontext context;
	int fd;
	elastic_begin();
	CHECK(!is_native(create(64 * MIB, &properties)));
	properties.allocFlags.gpuDirectRDMACapable = 1; /* as PyTorch asks for */
	CHECK(!is_native(create(2 * MIB, &properties)));
	CHECK(is_native(create(66 * MIB, &properties)));
	properties.allocFlags.usage = 1;
	CHECK(is_native(create(2 * MIB, &properties)));
	properties.allocFlags.usage = 0;
	properties.allocFlags.compressionType = 1;
	CHECK(is_native(create(2 * MIB, &properties)));
	properties.allocFlags.compressionType = 0;
	properties.location = there; /* not the current device */
	CHECK(is_native(create(2 * MIB, &properties)));
	properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	CHECK(is_native(create(2 * MIB, &properties)));
	handle = elastic_create(2 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CHECK(!is_native(handle));
	OK(CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CHECK(is_native(imported));
	/* Calls for a native handle, beside numbers. */
	CUdeviceptr base = elastic_map(imported, 2 * MIB);
	CUmemGenericAllocationHandle retained;
	OK(CU(cuMemRetainAllocationHandle)(&retained, (void *)(uintptr_t)base));
	CHECK(retained == imported);
	OK(CU(cuMemRelease)(retained));
	elastic_unmap(base, 2 * MIB);
	OK(CU(cuMemRelease)(imported));
	OK(CU(cuMemRelease)(handle));
	OK(CU(cuCtxGetCurrent)(&context));
	OK(CU(cuCtxSetCurrent)(NULL));
	handle = elastic_create(2 * MIB, CU_MEM_HANDLE_TYPE_NONE);
	CHECK(is_native(handle));
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuMemRelease)(handle));
	/* After a first use of legacy IPC, further memory is ordinary. */
	CUipcMemHandle shared;
	CUdeviceptr pointer = elastic_allocate(MIB);
	(void)CU(cuIpcGetMemHandle)(&shared, pointer);
	CHECK(is_native(elastic_create(2 * MIB, CU_MEM_HANDLE_TYPE_NONE)));
}

static void memory_of_other_kinds_keeps_the_handle_of_the_driver(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, create_other_kinds));
}

static void create_without_option(void)
{
	elastic_begin();
	struct elastic_segment made = elastic_open_segment(4 * MIB);
	CHECK(is_native(made.handle) && !elastic_record_of(0));
	elastic_close_segment(&made);
	CHECK(elastic_used_bytes() == 0);
}

static void other_tenants_get_the_handles_of_the_driver(void **state)
{
	elastic_host.page->elastic = 0;
	assert_non_null(hb_page_host_run(&elastic_host, create_without_option));
	elastic_host.page->elastic = HB_ELASTIC_ON;
	elastic_host.page->priority = HB_PAGE_HIGH;
	hb_page_host_begin_again(&elastic_host);
	assert_non_null(hb_page_host_run(&elastic_host, create_without_option));
}

/* ---- functions that the shim does not know ---- */

/* Returns whether handles are the driver's after a look-up of this function. */
static bool ends_numbers(const char *symbol, int version)
{
	void *function = NULL;
	CUdriverProcAddressQueryResult status;
	OK(CU(cuGetProcAddress_v2)(symbol, &function, version, 0, &status));
	CHECK(function);
	return is_native(elastic_create(2 * MIB, CU_MEM_HANDLE_TYPE_NONE));
}

static const char *looked_up;

static void look_functions_up(void)
{
	elastic_begin();
	struct elastic_segment before = elastic_open_segment(4 * MIB);
	CHECK(!is_native(before.handle));
	CHECK(!ends_numbers("cuMemMap", 13000)); /* the one that the shim knows */
	CHECK(!ends_numbers("cuMemAdvise", 14000) && !ends_numbers("cuLaunchKernel", 14000));
	CHECK(!ends_numbers("cuKernelFoo", 14000)); /* unknown, but not about memory */
	CHECK(ends_numbers(looked_up, 14000));
	/* Numbers that were given before remain valid. */
	elastic_fill(before.base, before.bytes, 95);
	elastic_move_away(before.bytes);
	CHECK(elastic_is_intact(before.base, before.bytes, 95, 0));
	elastic_close_segment(&before);
}

static void no_numbers_reach_functions_that_the_shim_does_not_know(void **state)
{
	static const char *const symbols[] = {"cuMemMap", "cuMulticastBindMem", "cuMemFooHandle",
					      "cuLogicalEndpointBindMem"};
	setenv("HB_SIM_NEWER",
	       "cuMemAdvise,cuLaunchKernel,cuKernelFoo,cuMemMap,cuMulticastBindMem,cuMemFooHandle,"
	       "cuLogicalEndpointBindMem",
	       1);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		looked_up = symbols[i];
		assert_non_null(hb_page_host_run(&elastic_host, look_functions_up));
		begin_again();
	}
	unsetenv("HB_SIM_NEWER");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(other_uses_bring_it_home_for_good, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(without_room_at_home_such_a_use_is_refused, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_of_other_kinds_keeps_the_handle_of_the_driver, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_way_home_that_fails_loses_nothing, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(no_numbers_reach_functions_that_the_shim_does_not_know, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(other_tenants_get_the_handles_of_the_driver, elastic_set_up,
						elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim own uses", tests, NULL, NULL);
}
