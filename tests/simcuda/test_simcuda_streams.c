/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order: within a stream, between streams by events, by the default stream, by
 * host functions and memory words. Times are GPU times, exact; nothing depends
 * on how fast the host is.
 */
#include "sim_test.h"

#include <stdatomic.h>
#include <string.h>

static CUdeviceptr word;
static uint64_t long_ns = 5000000; /* 0.5 ms of host time */

static int make_word(void **state)
{
	(void)state;
	CU(cuMemAlloc_v2(&word, 8));
	CU(cuMemsetD32_v2(word, 0, 2));
	CU(cuCtxSynchronize());
	return 0;
}

static int free_word(void **state)
{
	(void)state;
	CU(cuMemFree_v2(word));
	return 0;
}

static uint32_t read_word(void)
{
	uint32_t value;
	CU(cuCtxSynchronize());
	memcpy(&value, (void *)(uintptr_t)word, sizeof value);
	return value;
}

/* Holds back what the streams get next until let_go(): it is all queued at one GPU time, however slow the host is. */
static _Atomic uint32_t *gate;

static void hold_back(CUstream holder, CUstream waiting)
{
	CUevent event;
	void *host;
	CU(cuMemHostAlloc(&host, sizeof *gate, CU_MEMHOSTALLOC_DEVICEMAP));
	gate = host;
	atomic_store(gate, 0);
	LAUNCH(holder, "takeover", &host);
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CU(cuEventRecord(event, holder));
	if (waiting)
		CU(cuStreamWaitEvent(waiting, event, 0));
	CU(cuEventDestroy_v2(event));
}

static void let_go(void)
{
	atomic_store(gate, 1);
	CU(cuCtxSynchronize());
	CU(cuMemFreeHost((void *)(uintptr_t)gate));
}

static void a_stream_keeps_its_order(void **state)
{
	CUstream stream;
	(void)state;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	LAUNCH(stream, "add_one", &word);
	LAUNCH(stream, "add_one", &word);
	LAUNCH(stream, "times_two", &word);
	LAUNCH(stream, "add_one", &word);
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 5);
	CU(cuStreamDestroy_v2(stream));
}

static void an_event_orders_two_streams(void **state)
{
	CUstream first, second;
	CUevent event;
	(void)state;
	CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CU(cuEventQuery(event)); /* never recorded: nothing to wait for */
	hold_back(first, NULL);
	LAUNCH(first, "add_one", &word);
	CU(cuEventRecord(event, first));
	CU_FAILS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	CU(cuStreamWaitEvent(second, event, 0));
	LAUNCH(second, "times_two", &word);
	let_go();
	assert_int_equal(read_word(), 2);
	CU(cuEventQuery(event));
	CU(cuEventDestroy_v2(event));
	CU(cuStreamDestroy_v2(first));
	CU(cuStreamDestroy_v2(second));
}

static void the_legacy_stream_stands_between_blocking_streams(void **state)
{
	CUstream before, after;
	(void)state;
	CU(cuStreamCreate(&before, CU_STREAM_DEFAULT));
	CU(cuStreamCreate(&after, CU_STREAM_DEFAULT));
	LAUNCH(before, "wait_us", &long_ns);
	LAUNCH(before, "add_one", &word);             /* 1 */
	LAUNCH(NULL, "times_two", &word);             /* 2 */
	LAUNCH(after, "add_one", &word);              /* 3 */
	LAUNCH(CU_STREAM_LEGACY, "times_two", &word); /* 6 */
	CU(cuStreamSynchronize(NULL));
	assert_int_equal(read_word(), 6);
	CU(cuStreamDestroy_v2(before));
	CU(cuStreamDestroy_v2(after));
}

static void a_thread_s_own_default_stream_is_not_the_legacy_one(void **state)
{
	unsigned long long legacy, own, explicit_own;
	(void)state;
	CU(cuStreamGetId(NULL, &legacy));
	CU(cuStreamGetId_ptsz(NULL, &own));
	CU(cuStreamGetId(CU_STREAM_PER_THREAD, &explicit_own));
	assert_true(legacy != own && own == explicit_own);
	CU(cuLaunchKernel_ptsz(sim_test_function("add_one"), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL));
	CU(cuStreamSynchronize_ptsz(NULL));
	assert_int_equal(read_word(), 1);
}

static void a_non_blocking_stream_passes_the_legacy_stream(void **state)
{
	CUstream stream;
	CUevent slow, fast;
	float ms;
	(void)state;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&slow, 0));
	CU(cuEventCreate(&fast, 0));
	hold_back(NULL, NULL);
	CU(cuEventRecord(slow, NULL));
	LAUNCH(stream, "empty", NULL);
	CU(cuEventRecord(fast, stream));
	CU(cuEventSynchronize(fast)); /* while the legacy stream is held back */
	let_go();
	CU(cuEventElapsedTime(&ms, fast, slow));
	assert_true(ms > 0);
	CU(cuEventDestroy_v2(slow));
	CU(cuEventDestroy_v2(fast));
	CU(cuStreamDestroy_v2(stream));
}

static void elapsed_time_is_the_model_s(void **state)
{
	CUstream stream;
	CUevent start, end;
	uint64_t one_ms = 1000000;
	float ms;
	(void)state;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&start, 0));
	CU(cuEventCreate(&end, 0));
	hold_back(stream, NULL);
	CU(cuEventRecord(start, stream));
	LAUNCH(stream, "wait_us", &one_ms);
	CU(cuEventRecord(end, stream));
	let_go();
	CU(cuEventElapsedTime(&ms, start, end));
	assert_true(ms >= 1.0f && ms < 1.05f);
	CU(cuEventDestroy_v2(start));
	CU(cuEventDestroy_v2(end));
	CU(cuStreamDestroy_v2(stream));
}

static void a_high_priority_stream_overtakes_waiting_blocks(void **state)
{
	CUstream low, high;
	CUevent low_end, high_end;
	uint64_t ns = 1000000;
	float ms;
	(void)state;
	CU(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -5));
	CU(cuEventCreate(&low_end, 0));
	CU(cuEventCreate(&high_end, 0));
	hold_back(low, high);
	/* Twice ten times what the GPU holds, and a kernel that fills it once. */
	CU(cuLaunchKernel(sim_test_function("wait_us"), 1320, 1, 1, 1024, 1, 1, 0, low, (void *[]){&ns}, NULL));
	CU(cuLaunchKernel(sim_test_function("wait_us"), 1320, 1, 1, 1024, 1, 1, 0, low, (void *[]){&ns}, NULL));
	CU(cuEventRecord(low_end, low));
	CU(cuLaunchKernel(sim_test_function("wait_us"), 132, 1, 1, 1024, 1, 1, 0, high, (void *[]){&ns}, NULL));
	CU(cuEventRecord(high_end, high));
	let_go();
	CU(cuEventElapsedTime(&ms, high_end, low_end));
	assert_true(ms > 0);
	CU(cuEventDestroy_v2(low_end));
	CU(cuEventDestroy_v2(high_end));
	CU(cuStreamDestroy_v2(low));
	CU(cuStreamDestroy_v2(high));
}

static void double_the_word(void *argument)
{
	uint32_t *value = argument;
	*value *= 2;
}

static void callback(CUstream stream, CUresult status, void *argument)
{
	uint32_t *value = argument;
	*value = stream && status == CUDA_SUCCESS ? *value + 10 : 0;
}

static void host_functions_run_in_their_place(void **state)
{
	CUstream stream;
	void *place = (void *)(uintptr_t)word;
	(void)state;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	LAUNCH(stream, "slow_add", &word);                    /* 1 */
	CU(cuLaunchHostFunc(stream, double_the_word, place)); /* 2 */
	LAUNCH(stream, "add_one", &word);                     /* 3 */
	CU(cuStreamAddCallback(stream, callback, place, 0));  /* 13 */
	LAUNCH(stream, "times_two", &word);                   /* 26 */
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 26);
	CU_FAILS(cuLaunchHostFunc(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CU(cuStreamDestroy_v2(stream));
}

static void streams_wait_for_words_in_memory(void **state)
{
	CUstream waiting, writing;
	(void)state;
	CU(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&writing, CU_STREAM_NON_BLOCKING));
	CU(cuStreamWaitValue32_v2(waiting, word + 4, 7, CU_STREAM_WAIT_VALUE_EQ));
	LAUNCH(waiting, "times_two", &word);
	CU_FAILS(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	LAUNCH(writing, "slow_add", &word);
	CU(cuStreamWriteValue32_v2(writing, word + 4, 7, 0));
	CU(cuStreamSynchronize(waiting));
	assert_int_equal(read_word(), 2);
	CU(cuStreamDestroy_v2(waiting));
	CU(cuStreamDestroy_v2(writing));
}

static void a_hold_lasts_until_its_word_is_set(void **state)
{
	_Atomic uint32_t *release;
	void *host;
	CUstream stream;
	(void)state;
	CU(cuMemHostAlloc(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	release = host;
	atomic_store(release, 0);
	CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -5));
	LAUNCH(stream, "takeover", &host);
	LAUNCH(stream, "takeover", &host);
	LAUNCH(stream, "add_one", &word);
	CU_FAILS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	atomic_store(release, 1);
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 1);
	CU(cuStreamDestroy_v2(stream));
	CU(cuMemFreeHost(host));
}

static void thousands_of_launches_fit_through_the_queue(void **state)
{
	CUstream stream;
	(void)state;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 10000; i++)
		LAUNCH(stream, "add_one", &word);
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 10000);
	CU(cuStreamDestroy_v2(stream));
}

static void a_destroyed_stream_finishes_its_work(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 100; i++) {
		CUstream stream;
		CU(cuStreamCreate(&stream, 0));
		LAUNCH(stream, "slow_add", &word);
		CU(cuStreamDestroy_v2(stream));
	}
	LAUNCH(NULL, "times_two", &word); /* the legacy stream waits for streams that are gone, too */
	assert_int_equal(read_word(), 200);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_word, free_word)
	const struct CMUnitTest tests[] = {
		T(a_stream_keeps_its_order),
		T(an_event_orders_two_streams),
		T(the_legacy_stream_stands_between_blocking_streams),
		T(a_non_blocking_stream_passes_the_legacy_stream),
		T(a_thread_s_own_default_stream_is_not_the_legacy_one),
		T(elapsed_time_is_the_model_s),
		T(a_high_priority_stream_overtakes_waiting_blocks),
		T(host_functions_run_in_their_place),
		T(streams_wait_for_words_in_memory),
		T(a_hold_lasts_until_its_word_is_set),
		T(thousands_of_launches_fit_through_the_queue),
		T(a_destroyed_stream_finishes_its_work),
	};
	return cmocka_run_group_tests_name("simcuda_streams", tests, sim_test_begin, sim_test_end);
}
