/* SPDX-License-Identifier: Apache-2.0 */
/* An elastic process for tests; see elastic_rig.h. */
#include "elastic_rig.h"

#include "base/clock.h"
#include "simcuda/simcuda.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char image[] = "HBSIM1\nkernel add_one ns=20000 params=8 host=test_elastic_add_one\n";

struct hb_page_host elastic_host;

int elastic_set_up(void **state)
{
	hb_page_host_init(&elastic_host);
	hb_page_host_simulate(&elastic_host);
	setenv("HB_SIM_GPUS", "2", 1);
	unsetenv("HB_SIM_FAIL");
	elastic_host.page->features |= HB_FEATURE_ELASTIC;
	elastic_host.page->elastic = HB_ELASTIC_ON;
	elastic_host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
	return 0;
}

int elastic_tear_down(void **state)
{
	hb_page_host_fini(&elastic_host);
	return 0;
}

/* ---- in the child: the program ---- */

/* The simulated driver finds this function by name. Adds 1 to each of the words. */
void test_elastic_add_one(const struct hb_sim_launch *launch);
__attribute__((visibility("default"))) void test_elastic_add_one(const struct hb_sim_launch *launch)
{
	uint32_t *words = *(uint32_t **)launch->args[0];
	for (int i = 0; i < 256; i++)
		words[i]++;
}

CUcontext elastic_context;
CUfunction elastic_add_one;

void elastic_begin(void)
{
	CUmodule module;
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&elastic_context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&elastic_add_one, module, "add_one"));
}

CUdeviceptr elastic_allocate(size_t bytes)
{
	CUdeviceptr pointer;
	OK(CU(cuMemAlloc_v2)(&pointer, bytes));
	return pointer;
}

CUmemGenericAllocationHandle elastic_create(size_t bytes, CUmemAllocationHandleType types)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.requestedHandleTypes = types,
						.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	OK(CU(cuMemCreate)(&handle, bytes, &properties, 0));
	return handle;
}

CUdeviceptr elastic_map(CUmemGenericAllocationHandle handle, size_t bytes)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr base;
	OK(CU(cuMemAddressReserve)(&base, bytes, 0, 0, 0));
	OK(CU(cuMemMap)(base, bytes, 0, handle, 0));
	OK(CU(cuMemSetAccess)(base, bytes, &access, 1));
	return base;
}

void elastic_unmap(CUdeviceptr base, size_t bytes)
{
	OK(CU(cuMemUnmap)(base, bytes));
	OK(CU(cuMemAddressFree)(base, bytes));
}

struct elastic_segment elastic_open_segment(size_t bytes)
{
	struct elastic_segment segment = {.bytes = bytes, .handle = elastic_create(bytes, CU_MEM_HANDLE_TYPE_NONE)};
	segment.base = elastic_map(segment.handle, bytes);
	return segment;
}

void elastic_close_segment(const struct elastic_segment *segment)
{
	elastic_unmap(segment->base, segment->bytes);
	OK(CU(cuMemRelease)(segment->handle));
}

uint32_t elastic_word_of(uint32_t seed, size_t i)
{
	return seed + (uint32_t)i * 2654435761u;
}

/* The thread sanitizer takes minutes for large blocks, and only one thread uses these. */
#define ONE_THREAD __attribute__((no_sanitize("thread")))

ONE_THREAD void elastic_fill(CUdeviceptr pointer, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);
	CHECK(words);
	for (size_t i = 0; i < bytes / 4; i++)
		words[i] = elastic_word_of(seed, i);
	OK(CU(cuMemcpyHtoD_v2)(pointer, words, bytes));
	free(words);
}

ONE_THREAD bool elastic_is_intact(CUdeviceptr pointer, size_t bytes, uint32_t seed, uint32_t added)
{
	uint32_t *words = malloc(bytes);
	CHECK(words);
	OK(CU(cuMemcpyDtoH_v2)(words, pointer, bytes));
	bool intact = true;
	for (size_t i = 0; i < bytes / 4 && intact; i++)
		intact = words[i] == elastic_word_of(seed, i) + (i < 256 ? added : 0);
	free(words);
	return intact;
}

void elastic_launch(CUdeviceptr pointer, CUstream stream)
{
	OK(CU(cuLaunchKernel)(elastic_add_one, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&pointer}, NULL));
}

static const struct hb_sim_table *find_table(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const struct hb_sim_table *table;
	OK(CU(cuGetExportTable)((const void **)&table, &id));
	return table;
}

uint64_t elastic_fail(const char *faults)
{
	return find_table()->set_faults(faults);
}

uint64_t elastic_own_bytes(void)
{
	struct hb_sim_stats stats;
	OK(find_table()->stats(0, &stats));
	return stats.memory_own;
}

bool elastic_has_own_bytes(const struct hb_page_elastic *record, uint64_t bytes)
{
	uint64_t own = elastic_own_bytes();
	return own >= bytes && own <= bytes + ELASTIC_TABLES(record->spare_bytes + 2 * record->host_bytes);
}

uint64_t elastic_used_bytes(void)
{
	return elastic_host.page->gpus[0].used_bytes;
}

/* ---- in the child: the daemon ---- */

struct hb_page_elastic *elastic_record_of(unsigned slot)
{
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++) {
		struct hb_page_elastic *record = &elastic_host.page->elastic_gpus[i];
		if (record->gpu == 1 && (uint32_t)record->owner == slot + 1)
			return record;
	}
	return NULL;
}

uint32_t elastic_give_order(struct hb_page_elastic *record, const struct test_order *order)
{
	CUuuid peer;
	OK(CU(cuDeviceGetUuid_v2)(&peer, 1));
	memcpy(record->order_peer, peer.bytes, 16);
	record->order_peer_bytes = order->peer_bytes;
	record->order_host_bytes = order->host_bytes;
	record->order_direction = (uint32_t)order->direction;
	record->order_expires_ns = hb_clock_now_ns() + order->expires_ns;
	uint32_t number = record->order + 1;
	atomic_store(&record->order, number);
	atomic_fetch_add(&elastic_host.page->order_bell, 1);
	syscall(SYS_futex, &elastic_host.page->order_bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	return number;
}

enum hb_move_result elastic_try_move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes)
{
	struct hb_page_elastic *record = elastic_record_of(0);
	CHECK(record);
	uint32_t number = elastic_give_order(
		record, &(struct test_order){direction, peer_bytes, host_bytes, 100 * HB_NS_PER_S});
	while (atomic_load(&record->result) != number)
		usleep(100);
	return (enum hb_move_result)record->reason;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* One of an order's two parts may have moved. */
enum hb_move_result elastic_move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes)
{
	const struct hb_page_elastic *record = elastic_record_of(0);
	for (;;) {
		uint64_t peer = record->peer_bytes, on_host = record->host_bytes;
		enum hb_move_result reason = elastic_try_move(direction, peer_bytes, host_bytes);
		if (reason != HB_MOVE_BUSY)
			return reason;
		peer_bytes -= difference(peer, record->peer_bytes);
		host_bytes -= difference(on_host, record->host_bytes);
	}
}

void elastic_move_away(size_t bytes)
{
	CHECK(elastic_move(HB_ORDER_AWAY, 0, bytes) == HB_MOVE_MOVED);
}
