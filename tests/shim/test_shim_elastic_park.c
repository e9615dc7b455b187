/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An idle process whose memory has moved away (elastic_park.c): its next call waits
 * until the page orders the memory home, and no longer than 3 s.
 */
#include "base/clock.h"
#include "elastic_rig.h"
#include "simcuda/simcuda.h"

#include <pthread.h>
#include <stdlib.h>

#define ALL (4 * MIB)

static CUdeviceptr memory;
static struct hb_page_elastic *record;
static pthread_t worker;
static atomic_bool has_launched;

static void park(void)
{
	elastic_begin();
	memory = elastic_allocate(ALL);
	elastic_fill(memory, ALL, 41);
	record = elastic_record_of(0);
	AWAIT(record->spare_bytes >= ALL);
	CHECK(elastic_move(HB_ORDER_PAUSE, 0, ALL) == HB_MOVE_MOVED);
	CHECK(record->host_bytes == ALL && record->local_bytes == 0);
	AWAIT(record->parked == HB_PARKED_IDLE);
}

static void *launch(void *unused)
{
	OK(CU(cuCtxSetCurrent)(elastic_context));
	elastic_launch(memory, NULL);
	atomic_store(&has_launched, true);
	return NULL;
}

static void want_to_run(void)
{
	CHECK(pthread_create(&worker, NULL, launch, NULL) == 0);
	AWAIT(record->parked == HB_PARKED_WAITS);
	CHECK(!atomic_load(&has_launched));
}

static void run_to_the_end(void)
{
	CHECK(pthread_join(worker, NULL) == 0 && atomic_load(&has_launched));
	AWAIT(record->parked == HB_PARKED_NOT);
	CHECK(elastic_is_intact(memory, ALL, 41, 1));
}

static void bring_home(void)
{
	park();
	CHECK(CU(cuCtxSynchronize)() == CUDA_SUCCESS); /* a call that only waits does not need the memory */
	CHECK(record->parked == HB_PARKED_IDLE);
	want_to_run();
	CHECK(elastic_move(HB_ORDER_HOME, 0, ALL) == HB_MOVE_MOVED);
	CHECK(record->local_bytes == ALL);
	run_to_the_end();
	/* It is idle again, and then another time. */
	AWAIT(record->spare_bytes >= ALL);
	CHECK(elastic_move(HB_ORDER_PAUSE, 0, ALL) == HB_MOVE_MOVED);
	AWAIT(record->parked == HB_PARKED_IDLE);
	CHECK(pthread_create(&worker, NULL, launch, NULL) == 0);
	AWAIT(record->parked == HB_PARKED_WAITS);
	CHECK(elastic_move(HB_ORDER_HOME, 0, ALL) == HB_MOVE_MOVED);
	CHECK(pthread_join(worker, NULL) == 0 && elastic_is_intact(memory, ALL, 41, 2));
}

static void its_memory_comes_home_before_it_runs(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, bring_home));
}

static const char *form;

/* The simulated driver has not all forms; without memory and a stream, none copies anything. */
static void *call_form(void *unused)
{
	typedef CUresult call(void *, void *, void *, void *, void *, void *, void *, void *, void *);
	OK(CU(cuCtxSetCurrent)(elastic_context));
	((call *)hb_test_shim_symbol(form))(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
	atomic_store(&has_launched, true);
	return NULL;
}

static void copy_in_each_form(void)
{
	static const char *const forms[] = {
		"cuMemcpyAsync",
		"cuMemcpyBatchAsync_v2",
		"cuMemcpy3DBatchAsync_v2",
		"cuMemcpyWithAttributesAsync",
		"cuMemcpyWithAttributesAsync_ptsz",
		"cuMemcpy3DWithAttributesAsync",
		"cuMemcpy3DWithAttributesAsync_ptsz",
	};
	park();
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		form = forms[i];
		atomic_store(&has_launched, false);
		CHECK(pthread_create(&worker, NULL, call_form, NULL) == 0);
		AWAIT(record->parked == HB_PARKED_WAITS || atomic_load(&has_launched));
		CHECK(!atomic_load(&has_launched));
		CHECK(elastic_move(HB_ORDER_HOME, 0, ALL) == HB_MOVE_MOVED);
		CHECK(pthread_join(worker, NULL) == 0);
		AWAIT(record->spare_bytes >= ALL);
		CHECK(elastic_move(HB_ORDER_PAUSE, 0, ALL) == HB_MOVE_MOVED);
		AWAIT(record->parked == HB_PARKED_IDLE);
	}
}

static void each_form_of_copy_waits_for_its_memory(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, copy_in_each_form));
}

static void run_without_room(void)
{
	park();
	want_to_run();
	CHECK(elastic_try_move(HB_ORDER_HOME, 0, 0) == HB_MOVE_MOVED);
	run_to_the_end();
	CHECK(record->host_bytes == ALL);
}

static void without_room_it_runs_where_its_memory_is(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, run_without_room));
}

static void fail_to_return(void)
{
	const struct hb_sim_table *table;
	const CUuuid id = HB_SIM_TABLE_ID;
	OK(CU(cuGetExportTable)((const void **)&table, &id));
	park();
	want_to_run();
	(void)table->set_faults("cuMemcpyDtoDAsync_v2:999:times=1");
	CHECK(elastic_try_move(HB_ORDER_HOME, 0, ALL) == HB_MOVE_FAILED);
	CHECK(table->set_faults("") == 1);
	run_to_the_end();
	CHECK(record->host_bytes == ALL);
}

static void it_runs_when_its_memory_cannot_return(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, fail_to_return));
}

static void run_without_answer(void)
{
	park();
	int64_t begin_ns = hb_clock_now_ns();
	want_to_run();
	run_to_the_end();
	CHECK(hb_clock_now_ns() - begin_ns >= 3 * HB_NS_PER_S);
	CHECK(record->host_bytes == ALL);
}

static void it_runs_when_nobody_answers(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, run_without_answer));
}

static void exit_while_parked(void)
{
	park();
	exit(0);
}

static void it_can_end(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, exit_while_parked));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(its_memory_comes_home_before_it_runs, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(each_form_of_copy_waits_for_its_memory, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(without_room_it_runs_where_its_memory_is, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(it_runs_when_its_memory_cannot_return, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(it_runs_when_nobody_answers, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(it_can_end, elastic_set_up, elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim elastic park", tests, NULL, NULL);
}
