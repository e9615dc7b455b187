/* SPDX-License-Identifier: Apache-2.0 */
/* The shim as a member of a tenant: registration, counting, the gate, and that nothing hangs without a daemon. */
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAM ((CUstream)0x5000)

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	return 0;
}

static int tear_down(void **state)
{
	unsetenv("HB_OFF");
	unsetenv("HB_FAKE_REFUSE");
	hb_page_host_fini(&host);
	return 0;
}

static uint64_t count_of(const struct hb_page_process *process, enum hb_page_counter counter)
{
	return atomic_load(&process->counters[counter]);
}

static void launch(void)
{
	CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL);
}

/* ---- counting ---- */

static void do_some_of_everything(void)
{
	CUDA_MEMCPY2D rect = {.WidthInBytes = 100, .Height = 3};
	size_t sizes[2] = {7, 8};
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 5; i++)
		launch();
	CU(cuLaunchKernelEx_ptsz)(&(CUlaunchConfig){.hStream = STREAM}, NULL, NULL, NULL);
	CU(cuGraphLaunch)(NULL, STREAM);
	CU(cuMemcpyHtoDAsync_v2)(1, NULL, 1000, STREAM);
	CU(cuMemcpyDtoH_v2)(NULL, 1, 500);
	CU(cuMemcpy2D_v2)(&rect);
	((CUresult(*)(void *, void *, size_t *, size_t, void *, void *, size_t, CUstream))hb_test_shim_symbol(
		"cuMemcpyBatchAsync_v2"))(NULL, NULL, sizes, 2, NULL, NULL, 0, STREAM);
	CU(cuMemsetD8Async)(1, 0, 10, STREAM);
	CU(cuLaunchHostFunc)(STREAM, NULL, NULL);
	CU(cuStreamWriteValue32_v2)(STREAM, 1, 2, 0);
	CU(cuModuleLoadData)(NULL, NULL);
	CU(cuStreamSynchronize)(STREAM);
	CU(cuGetExportTable)(NULL, NULL);
}

static void work_is_counted_by_kind(void **state)
{
	struct hb_page_process *process = hb_page_host_run(&host, do_some_of_everything);
	assert_non_null(process);
	assert_int_equal(host.asked.n_gpus, 1);
	assert_memory_equal(host.asked.uuids[0], host.page->gpus[0].uuid, HB_UUID_BYTES);
	assert_int_equal(count_of(process, HB_COUNT_kernels), 6);
	assert_int_equal(count_of(process, HB_COUNT_graphs), 1);
	assert_int_equal(count_of(process, HB_COUNT_copies_to_device), 1);
	assert_int_equal(count_of(process, HB_COUNT_copies_to_host), 1);
	assert_int_equal(count_of(process, HB_COUNT_copies_other), 2);
	assert_int_equal(count_of(process, HB_COUNT_copied), 1000 + 500 + 300 + 15);
	assert_int_equal(count_of(process, HB_COUNT_memsets), 1);
	assert_int_equal(count_of(process, HB_COUNT_host_functions), 1);
	assert_int_equal(count_of(process, HB_COUNT_stream_values), 1);
	assert_int_equal(count_of(process, HB_COUNT_modules), 1);
	assert_int_equal(count_of(process, HB_COUNT_synchronizes), 1);
	assert_int_equal(count_of(process, HB_COUNT_export_tables), 1);
	assert_int_equal(count_of(process, HB_COUNT_captured), 0);
	assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 6 + 1 + 1); /* kernels, graph, memset */
}

static void look_up_functions(void)
{
	void *function;
	CUdriverProcAddressQueryResult status;
	CHECK(CU(cuGetProcAddress_v2)("cuTexObjectDestroy", &function, 13000, 0, &status) == CUDA_SUCCESS);
	CHECK(CU(cuGetProcAddress_v2)("cuLaunchKernel", &function, 13000, 0, &status) == CUDA_SUCCESS);
	CHECK(CU(cuGetProcAddress_v2)("cuLaunchKernel", &function, 14000, 0, &status) == CUDA_SUCCESS);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
}

static void lookups_before_registration_are_counted_too(void **state)
{
	struct hb_page_process *process = hb_page_host_run(&host, look_up_functions);
	assert_non_null(process);
	assert_int_equal(count_of(process, HB_COUNT_pass_through), 1);
	assert_int_equal(count_of(process, HB_COUNT_unknown_versions), 1);
}

/* ---- who joins ---- */

static void initialise_and_launch(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	launch();
}

static void note_signal(int number)
{
}

static void initialise_among_signals(void)
{
	struct itimerval often = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
	signal(SIGALRM, note_signal);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	launch();
}

static void signals_do_not_shorten_the_wait_for_the_daemon(void **state)
{
	pid_t child = hb_page_host_start(initialise_among_signals);
	usleep(300000); /* time for many signals */
	struct hb_page_process *process = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_kernels), 1);
}

static void a_process_without_a_tenant_does_not_register(void **state)
{
	unsetenv("HB_TENANT");
	assert_true(hb_page_host_ended_well(hb_page_host_start(initialise_and_launch)));
	assert_false(hb_page_host_is_wanted(&host));
}

static void a_process_with_the_shim_off_does_not_register(void **state)
{
	setenv("HB_OFF", "1", 1);
	assert_true(hb_page_host_ended_well(hb_page_host_start(initialise_and_launch)));
	assert_false(hb_page_host_is_wanted(&host));
}

static void a_missing_daemon_is_no_error(void **state)
{
	setenv("HB_SOCKET", "/nonexistent/hbd.sock", 1);
	assert_true(hb_page_host_ended_well(hb_page_host_start(initialise_and_launch)));
}

static void fork_and_use_both(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	launch();
	pid_t child = fork();
	if (child == 0) {
		launch(); /* the child is alone: the parent's page does not change */
		CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
		launch();
		_exit(0);
	}
	int status = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_forked_child_is_alone_until_it_initialises(void **state)
{
	pid_t child = hb_page_host_start(fork_and_use_both);
	struct hb_page_process *parent = hb_page_host_serve(&host);
	struct hb_page_process *grandchild = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	assert_ptr_not_equal(parent, grandchild);
	assert_int_equal(host.asked.flags & HB_REGISTER_PAGE, 0);
	assert_int_equal(count_of(parent, HB_COUNT_kernels), 1);
	assert_int_equal(count_of(grandchild, HB_COUNT_kernels),
			 2); /* includes the launches that it counted while alone */
}

/* ---- the gate ---- */

/* The host reports "the gate is closed" in the page's attainment field, which the shim does not read. */
static struct hb_page *shared_page;

static void wait_for_host(void)
{
	while (atomic_load(&shared_page->attainment_ppm) == 0)
		sched_yield();
}

static void tell_child(void)
{
	atomic_store(&host.page->attainment_ppm, 1);
}

static void launch_when_told(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	wait_for_host();
	launch();
}

static void a_closed_gate_blocks_a_launch_until_it_opens(void **state)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(launch_when_told);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	tell_child();
	while (atomic_load(&hb_page_host_gate(process)->waiters) == 0)
		sched_yield();
	assert_int_equal(count_of(process, HB_COUNT_gate_waits), 0);
	assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
	hb_page_host_set_gate(process, HB_GATE_OPEN);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_gate_waits), 1);
	assert_int_equal(count_of(process, HB_COUNT_gate_abandoned), 0);
	assert_true(count_of(process, HB_COUNT_gate_wait) > 0);
	assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 1);
}

/* A thread at a closed gate rings the tenant's doorbell if the daemon listens for that news. */
static uint32_t rings_while_waiting(uint32_t listening)
{
	shared_page = host.page;
	host.gpu->listening = listening;
	pid_t child = hb_page_host_start(launch_when_told);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	tell_child();
	while (atomic_load(&hb_page_host_gate(process)->waiters) == 0)
		sched_yield();
	hb_page_host_set_gate(process, HB_GATE_OPEN);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(process->rings, HB_PAGE_RINGS);
	return host.page->gpus[0].doorbell;
}

static void a_waiting_thread_rings_the_doorbell(void **state)
{
	assert_int_equal(rings_while_waiting(HB_NEWS_WAITING), 1);
}

static void a_waiting_thread_does_not_ring_if_the_daemon_does_not_listen(void **state)
{
	assert_int_equal(rings_while_waiting(0), 0);
}

static void a_silent_daemon_blocks_no_launch(void **state)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(launch_when_told);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	atomic_store(&host.page->heartbeat_ns, 1);
	tell_child();
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_gate_abandoned), 1);
}

static void a_closed_page_blocks_no_launch(void **state)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(launch_when_told);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	atomic_store(&host.page->state, HB_PAGE_CLOSED);
	tell_child();
	assert_true(hb_page_host_ended_well(child));
}

static void make_calls_that_never_wait(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	wait_for_host();
	CU(cuStreamSynchronize)(STREAM);
	CU(cuCtxSynchronize)();
	CU(cuEventSynchronize)(NULL);
	CU(cuMemcpyHtoDAsync_v2)(1, NULL, 1, STREAM);
	CU(cuMemcpyDtoH_v2)(NULL, 1, 1);
	CU(cuStreamWriteValue32_v2)(STREAM, 1, 2, 0);
	CU(cuLaunchHostFunc)(STREAM, NULL, NULL);
	CU(cuEventRecord)(NULL, STREAM);
	CU(cuStreamQuery)(STREAM);
	CUdeviceptr pointer;
	CHECK(CU(cuMemAlloc_v2)(&pointer, 100) == CUDA_SUCCESS);
	CHECK(CU(cuMemFree_v2)(pointer) == CUDA_SUCCESS);
}

static void calls_that_others_may_wait_for_never_wait_at_the_gate(void **state)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(make_calls_that_never_wait);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	tell_child();
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_gate_waits), 0);
}

static void capture_behind_a_closed_gate(void)
{
	CUgraph graph;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuStreamBeginCapture_v2)(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	wait_for_host();
	launch();
	CU(cuLaunchKernelEx)(&(CUlaunchConfig){.hStream = STREAM}, NULL, NULL, NULL);
	CU(cuMemsetD8Async)(1, 0, 10, STREAM);
	CHECK(CU(cuStreamEndCapture)(STREAM, &graph) == CUDA_SUCCESS);
	unsigned (*calls)(const char *) = (unsigned (*)(const char *))hb_test_fake_symbol("hb_fake_calls");
	/* Only the one call that is always legal was made, once for each of the three launches. */
	CHECK(calls("cuStreamIsCapturing") == 3);
	CHECK(calls("cuStreamQuery") == 0 && calls("cuCtxGetDevice") == 0);
}

static void captured_work_neither_waits_nor_counts_as_work(void **state)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(capture_behind_a_closed_gate);
	struct hb_page_process *process = hb_page_host_serve(&host);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	tell_child();
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_captured), 3);
	assert_int_equal(count_of(process, HB_COUNT_kernels), 0);
	assert_int_equal(count_of(process, HB_COUNT_memsets), 0);
	assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 0);
}

/* ---- work that is done ---- */

static unsigned fake_calls(const char *name)
{
	return ((unsigned (*)(const char *))hb_test_fake_symbol("hb_fake_calls"))(name);
}

static void set_busy(int is_busy)
{
	((void (*)(int))hb_test_fake_symbol("hb_fake_set_busy"))(is_busy);
}

static void tell_host(uint32_t what)
{
	atomic_store(&shared_page->attainment_ppm, what);
}

static void wait_for(uint32_t what)
{
	while (atomic_load(&host.page->attainment_ppm) != what)
		sched_yield();
}

static void wait_in_child_for(uint32_t what)
{
	while (atomic_load(&shared_page->attainment_ppm) != what)
		sched_yield();
}

static void wait_until_drained(const struct hb_gate *gate)
{
	while (!hb_gate_drained(gate))
		sched_yield();
}

/* Launches and then makes no more calls, so only the drain thread can report that the work is done. */
static void launch_and_go_quiet(void)
{
	CUcontext context;
	CUstream stream;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	CHECK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	set_busy(1);
	launch();
	launch();
	unsigned before = fake_calls("cuEventQuery");
	tell_host(2);
	while (fake_calls("cuEventQuery") < before + 3) /* polled while the gate is closed and the GPU is busy */
		sched_yield();
	tell_host(3);
	wait_in_child_for(4);
	set_busy(0);
	wait_in_child_for(5);
	CHECK(fake_calls("cuEventRecord") == 1);
}

static void a_closed_gate_drains_though_the_process_is_quiet(void **state)
{
	shared_page = host.page;
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	host.gpu->listening = HB_NEWS_ENDED;
	pid_t child = hb_page_host_start(launch_and_go_quiet);
	struct hb_page_process *process = hb_page_host_serve(&host);
	wait_for(2);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	wait_for(3);
	assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 2);
	assert_int_equal(host.page->gpus[0].doorbell, 0);
	tell_host(4);
	wait_until_drained(hb_page_host_gate(process));
	while (atomic_load(&host.page->gpus[0].doorbell) == 0) /* reported */
		sched_yield();
	tell_host(5);
	assert_true(hb_page_host_ended_well(child));
}

/* Work that lasts until the gate is closed and an event is recorded behind it. */
static void launch_until_marked(int step)
{
	unsigned records = fake_calls("cuEventRecord");
	set_busy(1);
	launch();
	tell_host(step);
	while (fake_calls("cuEventRecord") == records)
		sched_yield();
	set_busy(0);
}

/* The host directs the steps; while the gate is closed, only the fake driver's answer changes. */
static void launch_late(void)
{
	CUcontext context;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	launch_until_marked(2);
	wait_in_child_for(3);
	launch_until_marked(4); /* the old event does not cover the second launch */
	wait_in_child_for(5);
	set_busy(1);
	wait_in_child_for(6);
	set_busy(0);
	wait_in_child_for(7);
}

static void a_late_launch_counts_as_in_flight_again(void **state)
{
	shared_page = host.page;
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	pid_t child = hb_page_host_start(launch_late);
	struct hb_page_process *process = hb_page_host_serve(&host);
	struct hb_gate *gate = hb_page_host_gate(process);
	wait_for(2);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	wait_until_drained(gate);
	hb_page_host_set_gate(process, HB_GATE_OPEN);
	tell_host(3);
	wait_for(4);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	wait_until_drained(gate);
	tell_host(5);
	while (hb_gate_in_flight(gate) == 0)
		sched_yield();
	tell_host(6);
	wait_until_drained(gate);
	tell_host(7);
	assert_true(hb_page_host_ended_well(child));
}

static void record_while_others_look(void)
{
	CUgraph graph;
	CUcontext context;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	launch();
	CHECK(CU(cuStreamBeginCapture_v2)(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	unsigned before = fake_calls("cuStreamQuery") + fake_calls("cuEventQuery") + fake_calls("cuEventRecord");
	tell_host(2);
	while (atomic_load(&shared_page->attainment_ppm) != 3)
		sched_yield();
	CHECK(fake_calls("cuStreamQuery") + fake_calls("cuEventQuery") + fake_calls("cuEventRecord") == before);
	CHECK(CU(cuStreamEndCapture)(STREAM, &graph) == CUDA_SUCCESS);
	while (atomic_load(&shared_page->attainment_ppm) != 4)
		sched_yield();
}

static void streams_are_not_polled_during_a_capture(void **state)
{
	shared_page = host.page;
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	pid_t child = hb_page_host_start(record_while_others_look);
	struct hb_page_process *process = hb_page_host_serve(&host);
	wait_for(2);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	tell_host(3);
	while (hb_gate_in_flight(hb_page_host_gate(process)) != 0) /* polled again after the capture */
		sched_yield();
	tell_host(4);
	assert_true(hb_page_host_ended_well(child));
}

static void *launch_2000_times(void *unused)
{
	__typeof__(&cuGraphLaunch) function = CU(cuGraphLaunch);
	for (int i = 0; i < 2000; i++)
		function(NULL, STREAM);
	return NULL;
}

static void launch_in_threads(void)
{
	pthread_t threads[8];
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_2000_times, NULL) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

static void no_launch_is_lost_while_threads_launch_and_the_gate_flaps(void **state)
{
	pid_t child = hb_page_host_start(launch_in_threads);
	struct hb_page_process *process = hb_page_host_serve(&host);
	for (int i = 0; i < 200; i++) {
		hb_page_host_set_gate(process, HB_GATE_CLOSED);
		sched_yield();
		hb_page_host_set_gate(process, HB_GATE_OPEN);
	}
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_graphs), 16000);
	assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 16000);
	assert_int_equal(atomic_load(&hb_page_host_gate(process)->waiters), 0);
}

/* ---- a daemon that comes back ---- */

static void synchronize_until_told(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	launch();
	while (atomic_load(&shared_page->attainment_ppm) == 0) {
		CU(cuStreamSynchronize)(STREAM);
		usleep(5000); /* an application that does other work between its waits */
	}
	launch();
}

static void survive(hb_page_i64 *sign, int64_t news, hb_page_i64 *answer, int64_t known)
{
	shared_page = host.page;
	pid_t child = hb_page_host_start(synchronize_until_told);
	struct hb_page_process *process = hb_page_host_serve(&host);
	atomic_store(sign, news);
	assert_ptr_equal(hb_page_host_serve(&host), process);
	assert_true(host.asked.flags & HB_REGISTER_PAGE);
	atomic_store(answer, known);
	tell_child();
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(count_of(process, HB_COUNT_kernels), 2);
}

static void a_process_registers_its_page_with_a_new_daemon(void **state)
{
	survive(&host.page->heartbeat_ns, 1, &host.page->heartbeat_ns, INT64_MAX);
}

/* The heartbeat is fresh because another process registered first. */
static void the_second_process_of_a_tenant_registers_again_too(void **state)
{
	survive(&host.page->daemon_since_ns, 7, &host.gpu->daemon_since_ns, 7);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(work_is_counted_by_kind),
		T(lookups_before_registration_are_counted_too),
		T(a_process_without_a_tenant_does_not_register),
		T(a_process_with_the_shim_off_does_not_register),
		T(a_missing_daemon_is_no_error),
		T(signals_do_not_shorten_the_wait_for_the_daemon),
		T(a_forked_child_is_alone_until_it_initialises),
		T(a_closed_gate_blocks_a_launch_until_it_opens),
		T(a_waiting_thread_rings_the_doorbell),
		T(a_waiting_thread_does_not_ring_if_the_daemon_does_not_listen),
		T(a_silent_daemon_blocks_no_launch),
		T(a_closed_page_blocks_no_launch),
		T(calls_that_others_may_wait_for_never_wait_at_the_gate),
		T(captured_work_neither_waits_nor_counts_as_work),
		T(a_closed_gate_drains_though_the_process_is_quiet),
		T(a_late_launch_counts_as_in_flight_again),
		T(streams_are_not_polled_during_a_capture),
		T(no_launch_is_lost_while_threads_launch_and_the_gate_flaps),
		T(a_process_registers_its_page_with_a_new_daemon),
		T(the_second_process_of_a_tenant_registers_again_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
