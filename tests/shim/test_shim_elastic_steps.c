/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A move of elastic memory is all or nothing: at each driver call of a move, that
 * call fails, or the process is killed there. A part of the memory belongs to a
 * handle that the program made. No byte is lost or stale, nothing is
 * leaked, and another process can have all of the GPU's memory afterwards.
 * Without the argument "all": moves to the host only, and a kill at the first call
 * of each function only.
 */
#include "elastic_rig.h"
#include "simcuda/simcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE (4 * MIB)
#define SMALL (2 * MIB)
#define ALL (LARGE + SMALL)

/* The calls of a move, in about the order in which they are made. */
static const char *const steps[] = {
	"cuMemAddressReserve", "cuMemCreate",   "cuMemMap",           "cuMemSetAccess",   "cuEventRecord",
	"cuEventQuery",        "cuStreamQuery", "cuStreamCreate",     "cuCtxSetCurrent",  "cuMemcpyDtoDAsync_v2",
	"cuMemUnmap",          "cuMemRelease",  "cuStreamDestroy_v2", "cuMemAddressFree",
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

/* Shared by the test and its children. */
static struct walk {
	enum hb_order_direction direction;
	bool to_peer;
	size_t step;
	unsigned call; /* of the step */
	atomic_uint hits;
} * walk;

static const struct hb_sim_table *table;
static bool walks_all;

static CUdeviceptr large;
static struct elastic_segment small; /* of a handle that the program made */
static uint32_t added;

static size_t peer_part(void)
{
	return walk->to_peer ? ALL : 0;
}

static void begin_program(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	elastic_begin();
	OK(CU(cuGetExportTable)((const void **)&table, &id));
	large = elastic_allocate(LARGE);
	small = elastic_open_segment(SMALL);
	elastic_fill(large, LARGE, 41);
	elastic_fill(small.base, SMALL, 42);
	added = 0;
}

static void check_memory(void)
{
	elastic_launch(large, NULL);
	added++;
	CHECK(elastic_is_intact(large, LARGE, 41, added) && elastic_is_intact(small.base, SMALL, 42, 0));
}

static void await_spares(void)
{
	const struct hb_page_elastic *record = elastic_record_of(0);
	AWAIT(record->spare_bytes + record->host_bytes >= ALL);
}

/* Brings the memory to where the walk's moves begin. Nothing fails. */
static void prepare(void)
{
	const struct hb_page_elastic *record = elastic_record_of(0);
	while (record->local_bytes < ALL)
		CHECK(elastic_move(HB_ORDER_HOME, record->peer_bytes, record->host_bytes) == HB_MOVE_MOVED);
	await_spares();
	if (walk->direction != HB_ORDER_AWAY)
		CHECK(elastic_move(HB_ORDER_AWAY, peer_part(), ALL - peer_part()) == HB_MOVE_MOVED);
}

static enum hb_move_result move_with_fault(const char *what)
{
	char fault[96];
	snprintf(fault, sizeof(fault), "%s:%s:after=%u:times=1", steps[walk->step], what, walk->call);
	(void)table->set_faults(fault);
	enum hb_move_result result = elastic_try_move(walk->direction, peer_part(), ALL - peer_part());
	atomic_fetch_add(&walk->hits, (unsigned)table->set_faults(""));
	return result;
}

/* Returns whether the failure hit a call. */
static bool fail_once(void)
{
	const struct hb_page_elastic *record = elastic_record_of(0);
	unsigned before = atomic_load(&walk->hits);
	prepare();
	const hb_page_u64 *changes = walk->direction == HB_ORDER_LEAVE ? &record->host_bytes : &record->local_bytes;
	size_t there = *changes;
	enum hb_move_result result = move_with_fault("999");
	CHECK(record->local_bytes + record->peer_bytes + record->host_bytes == ALL);
	if (result == HB_MOVE_MOVED)
		CHECK(record->moved_bytes == ALL && *changes == ALL - there);
	else
		CHECK(record->moved_bytes == 0 && *changes == there);
	CHECK(result != HB_MOVE_BROKEN);
	check_memory();
	return atomic_load(&walk->hits) > before;
}

static uint64_t own_bytes(void)
{
	struct hb_sim_stats stats;
	OK(table->stats(0, &stats));
	return stats.memory_own;
}

static void fail_at_each_call(void)
{
	begin_program();
	const struct hb_page_elastic *record = elastic_record_of(0);
	await_spares();
	uint64_t own = own_bytes();
	for (walk->step = 0; walk->step < N_STEPS; walk->step++)
		for (walk->call = 0; fail_once(); walk->call++)
			;
	walk->direction = HB_ORDER_AWAY;
	prepare();
	CHECK(elastic_move(HB_ORDER_AWAY, 0, ALL) == HB_MOVE_MOVED); /* takes back what was leaked */
	CHECK(elastic_move(HB_ORDER_HOME, 0, ALL) == HB_MOVE_MOVED);
	check_memory();
	AWAIT(record->leaked_bytes == 0);
	AWAIT(record->spare_bytes == ALL && own_bytes() == own);
	OK(CU(cuMemFree_v2)(large));
	elastic_close_segment(&small);
	AWAIT(own_bytes() == own - ALL - ELASTIC_TABLES(ALL)); /* the spare memory goes as well */
}

/* A page as for a new process. */
static void begin_again(void)
{
	hb_page_host_begin_again(&elastic_host);
	memset(elastic_host.page->elastic_gpus, 0, sizeof(elastic_host.page->elastic_gpus));
	elastic_host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
	elastic_host.page->gpus[0].used_bytes = 0;
}

/* Steps that moves in this direction do not make: spare memory of the host exists and is mapped already. */
static unsigned count_other_steps(void)
{
	bool to_host = walk->direction == HB_ORDER_LEAVE || (walk->direction == HB_ORDER_AWAY && !walk->to_peer);
	return to_host ? 4 : 2;
}

static void walk_ways(void (*test)(void))
{
	walk = mmap(NULL, sizeof(*walk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(walk, MAP_FAILED);
	static const struct walk ways[] = {{.direction = HB_ORDER_AWAY},
					   {.direction = HB_ORDER_HOME},
					   {.direction = HB_ORDER_AWAY, .to_peer = true},
					   {.direction = HB_ORDER_HOME, .to_peer = true},
					   {.direction = HB_ORDER_LEAVE, .to_peer = true}};
	for (size_t way = 0; way < (walks_all ? sizeof(ways) / sizeof(ways[0]) : 1); way++) {
		*walk = ways[way];
		test();
		assert_true(atomic_load(&walk->hits) >= N_STEPS - count_other_steps());
	}
	munmap(walk, sizeof(*walk));
}

static void walk_failures(void)
{
	assert_non_null(hb_page_host_run(&elastic_host, fail_at_each_call));
	begin_again();
}

static void a_call_that_fails_loses_nothing(void **state)
{
	walk_ways(walk_failures);
}

/* ---- kills ---- */

static void die_at_call(void)
{
	begin_program();
	await_spares();
	prepare();
	(void)move_with_fault("kill"); /* returns if there are fewer calls */
}

static void see_all_memory_free(void)
{
	CUcontext second;
	size_t free_bytes, total;
	OK(CU(cuInit)(0));
	for (int device = 0; device < 2; device++) {
		OK(CU(cuCtxCreate_v2)(&second, 0, device));
		OK(CU(cuMemGetInfo_v2)(&free_bytes, &total));
		CHECK(total - free_bytes < 1024 * MIB); /* the context */
	}
}

/* Returns whether the process was killed. */
static bool kill_once(void)
{
	bool killed = !hb_page_host_run(&elastic_host, die_at_call);
	atomic_fetch_add(&walk->hits, killed);
	begin_again();
	return killed;
}

static void walk_kills(void)
{
	for (walk->step = 0; walk->step < N_STEPS; walk->step++)
		for (walk->call = 0; kill_once() && walks_all; walk->call++)
			;
	elastic_host.page->elastic = 0;
	assert_non_null(hb_page_host_run(&elastic_host, see_all_memory_free));
	elastic_host.page->elastic = HB_ELASTIC_ON;
	begin_again();
}

static void a_process_killed_at_any_call_leaves_nothing(void **state)
{
	walk_ways(walk_kills);
}

int main(int argc, char **argv)
{
	walks_all = argc > 1 && strcmp(argv[1], "all") == 0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_call_that_fails_loses_nothing, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_process_killed_at_any_call_leaves_nothing, elastic_set_up,
						elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim elastic steps", tests, NULL, NULL);
}
