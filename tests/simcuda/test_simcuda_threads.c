/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once: streams, memory, events, default streams of their own, contexts that come and go. */
#include "sim_test.h"

#include <pthread.h>

#define THREADS 6
#define ROUNDS 60

static void run(void *(*body)(void *))
{
	pthread_t threads[THREADS];
	void *result;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		assert_null(result); /* the name of the first call that failed */
	}
}

/* cmocka's assertions belong to its own thread: these return what failed. */
#define TRY(call) \
	do { \
		CUresult tried = call; \
		if (tried != CUDA_SUCCESS) \
			return (void *)(uintptr_t)sim_test_name(tried); \
	} while (0)

static CUfunction add_one;

static void *own_streams(void *argument)
{
	(void)argument;
	TRY(cuCtxSetCurrent(sim_test_context()));
	for (int i = 0; i < ROUNDS; i++) {
		CUstream stream;
		CUevent event;
		CUdeviceptr word;
		uint32_t value;
		TRY(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		TRY(cuEventCreate(&event, 0));
		TRY(cuMemAllocAsync(&word, 4, stream));
		TRY(cuMemsetD32Async(word, 0, 1, stream));
		for (int k = 0; k < 10; k++)
			TRY(cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&word}, NULL));
		TRY(cuEventRecord(event, stream));
		TRY(cuMemcpyDtoHAsync_v2(&value, word, 4, stream));
		TRY(cuMemFreeAsync(word, stream));
		TRY(cuStreamDestroy_v2(stream));
		TRY(cuEventSynchronize(event));
		TRY(cuEventDestroy_v2(event));
		if (value != 10)
			return (void *)(uintptr_t) "wrong sum";
	}
	return NULL;
}

static void threads_with_streams_of_their_own_do_not_mix(void **state)
{
	(void)state;
	run(own_streams);
	CU(cuCtxSynchronize());
}

static CUdeviceptr shared_words;
static CUstream shared_stream;

static void *one_stream(void *argument)
{
	CUdeviceptr word = shared_words + 4 * (uintptr_t)argument;
	TRY(cuCtxSetCurrent(sim_test_context()));
	for (int i = 0; i < ROUNDS * 10; i++) {
		TRY(cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, shared_stream, (void *[]){&word}, NULL));
		if (i % 100 == 99)
			TRY(cuStreamSynchronize(shared_stream));
	}
	return NULL;
}

static void threads_share_a_stream(void **state)
{
	uint32_t values[THREADS];
	(void)state;
	CU(cuMemAlloc_v2(&shared_words, sizeof values));
	CU(cuMemsetD32_v2(shared_words, 0, THREADS));
	CU(cuStreamCreate(&shared_stream, 0));
	run(one_stream);
	CU(cuMemcpyDtoH_v2(values, shared_words, sizeof values));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(values[i], ROUNDS * 10);
	CU(cuStreamDestroy_v2(shared_stream));
	CU(cuMemFree_v2(shared_words));
}

static void *own_default_stream(void *argument)
{
	uint32_t value = 0;
	CUdeviceptr word;
	(void)argument;
	TRY(cuCtxSetCurrent(sim_test_context()));
	TRY(cuMemAlloc_v2(&word, 4));
	TRY(cuMemsetD32_v2_ptds(word, 0, 1));
	for (int i = 0; i < ROUNDS; i++)
		TRY(cuLaunchKernel_ptsz(add_one, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL));
	TRY(cuMemcpyDtoH_v2_ptds(&value, word, 4));
	TRY(cuMemFree_v2(word));
	return value == ROUNDS ? NULL : (void *)(uintptr_t) "wrong sum";
}

static void default_streams_end_with_their_threads(void **state)
{
	(void)state;
	run(own_default_stream);
	run(own_default_stream);
}

static void *own_context(void *argument)
{
	(void)argument;
	for (int i = 0; i < 4; i++) {
		CUcontext context;
		CUmodule module;
		CUfunction function;
		CUdeviceptr word;
		uint32_t value;
		TRY(cuCtxCreate_v2(&context, 0, 0));
		TRY(cuModuleLoadData(&module, sim_test_image));
		TRY(cuModuleGetFunction(&function, module, "add_one"));
		TRY(cuMemAlloc_v2(&word, 4));
		TRY(cuMemsetD32_v2(word, 1, 1));
		TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL));
		TRY(cuMemcpyDtoH_v2(&value, word, 4));
		TRY(cuCtxDestroy_v2(context));
		if (value != 2)
			return (void *)(uintptr_t) "wrong sum";
	}
	return NULL;
}

static void contexts_come_and_go_in_many_threads(void **state)
{
	(void)state;
	run(own_context);
}

static void count_up(void *argument)
{
	++*(int *)argument; /* one helper thread runs them all */
}

static int host_calls;

static void *host_functions(void *argument)
{
	CUstream stream;
	(void)argument;
	TRY(cuCtxSetCurrent(sim_test_context()));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < ROUNDS; i++)
		TRY(cuLaunchHostFunc(stream, count_up, &host_calls));
	TRY(cuStreamSynchronize(stream));
	TRY(cuStreamDestroy_v2(stream));
	return NULL;
}

static void host_functions_of_all_streams_are_run_once(void **state)
{
	(void)state;
	run(host_functions);
	assert_int_equal(host_calls, THREADS * ROUNDS);
}

static int begin(void **state)
{
	sim_test_begin(state);
	add_one = sim_test_function("add_one");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_with_streams_of_their_own_do_not_mix),
		cmocka_unit_test(threads_share_a_stream),
		cmocka_unit_test(default_streams_end_with_their_threads),
		cmocka_unit_test(contexts_come_and_go_in_many_threads),
		cmocka_unit_test(host_functions_of_all_streams_are_run_once),
	};
	return cmocka_run_group_tests_name("simcuda_threads", tests, begin, sim_test_end);
}
