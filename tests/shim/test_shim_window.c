/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process, over the simulated driver: masks, waiting for
 * a request of high priority and for nobody else, requests told on the page,
 * stream priorities. The test plays the daemon and the other side. What a launch
 * did is read from counters and from the kernel itself, so nothing depends on times.
 */
#include "core/slack.h"
#include "gpu/cuda_abi.h"
#include "gpu/launch_mask.h"
#include "page_host.h"
#include "simcuda/simcuda.h"
#include "unit/unit.h"

#include "base/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define PID 4242

static const char image[] = "HBSIM1\nkernel look ns=10000 host=window_test_look\n";

static struct hb_page_host host;
static char gpu_folder[64];

/* ---- in the child ---- */

static CUcontext context;
static CUmodule module;
static CUfunction look;
static CUstream stream;
static atomic_uint sms_seen;

void window_test_look(const struct hb_sim_launch *launch);
__attribute__((visibility("default"))) void window_test_look(const struct hb_sim_launch *launch)
{
	atomic_store(&sms_seen, launch->sms);
}

static uint64_t count_of(enum hb_page_counter counter)
{
	return atomic_load(&host.page->processes[0].counters[counter]);
}

static struct hb_slack_beacon *beacon(void)
{
	return &((struct hb_slack_board *)host.gpu->slack)->beacons[0];
}

/* Somebody else's request that allows nothing. */
static void raise_beacon(int64_t seen_ns)
{
	beacon()->owner = PID;
	beacon()->seen_ns = seen_ns;
	beacon()->latest_ns = INT64_MAX;
	beacon()->reserve = 32;
	beacon()->allow_ns = 0;
	beacon()->word = 1;
}

static void lower_beacon(void)
{
	beacon()->word = 2;
}

static void launch(CUstream on)
{
	OK(CU(cuLaunchKernel)(look, 264, 1, 1, 512, 1, 1, 0, on, NULL, NULL));
}

static unsigned sms_of_a_launch(void)
{
	atomic_store(&sms_seen, 0);
	launch(stream);
	OK(CU(cuStreamSynchronize)(stream));
	return atomic_load(&sms_seen);
}

static void begin(void)
{
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&look, module, "look"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuCtxSynchronize)()); /* where what the engine needs is made */
}

static void end(void)
{
	OK(CU(cuCtxDestroy_v2)(context));
}

static void launch_beside_high(void)
{
	begin();
	CHECK(sms_of_a_launch() == 100);
	CHECK(count_of(HB_COUNT_masked) >= 1);
	end();
}

static void launch_alone(void)
{
	begin();
	CHECK(sms_of_a_launch() == 132);
	CHECK(count_of(HB_COUNT_masked) == 0);
	end();
}

static void launch_without_masks(void)
{
	begin();
	CHECK(sms_of_a_launch() == 132);
	end();
}

static void launch_cooperatively(void)
{
	begin();
	OK(CU(cuLaunchCooperativeKernel)(look, 132, 1, 1, 512, 1, 1, 0, stream, NULL));
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(atomic_load(&sms_seen) == 132);
	end();
}

static void launch_a_graph_made_beside_high(void)
{
	CUgraph graph;
	CUgraphExec exec;
	begin();
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch(stream);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(CU(cuGraphLaunch)(exec, stream));
	OK(CU(cuStreamSynchronize)(stream));
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	end();
}

static atomic_bool opened;

/* On a machine too busy to keep the request alive, the launch goes after the time that a silent one may hold it. */
static void *launch_and_look(void *unused)
{
	OK(CU(cuCtxSetCurrent)(context));
	int64_t since_ns = hb_clock_now_ns();
	launch(stream);
	CHECK(atomic_load(&opened) || hb_clock_now_ns() - since_ns >= HB_SLACK_SILENT_NS);
	return NULL;
}

static void launch_during_a_request(void)
{
	pthread_t thread;
	begin();
	raise_beacon(hb_clock_now_ns());
	CHECK(pthread_create(&thread, NULL, launch_and_look, NULL) == 0);
	while (count_of(HB_COUNT_window_waits) == 0) {
		beacon()->seen_ns = hb_clock_now_ns(); /* it lives */
		usleep(100);
	}
	/* Nobody who waits for the GPU is held, nor what is recorded. */
	OK(CU(cuCtxSynchronize)());
	beacon()->seen_ns = hb_clock_now_ns();
	atomic_store(&opened, true);
	lower_beacon();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sms_of_a_launch() != 0);
	end();
}

static void capture_during_a_request(void)
{
	CUgraph graph;
	begin();
	raise_beacon(hb_clock_now_ns());
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(stream);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	CHECK(count_of(HB_COUNT_window_waits) == 0);
	CHECK(count_of(HB_COUNT_captured) == 1);
	lower_beacon();
	OK(CU(cuGraphDestroy)(graph));
	end();
}

static void launch_beside_a_silent_request(void)
{
	begin();
	raise_beacon(hb_clock_now_ns() - 2 * HB_SLACK_SILENT_NS);
	CHECK(sms_of_a_launch() != 0);
	CHECK(count_of(HB_COUNT_window_waits) == 0);
	raise_beacon(hb_clock_now_ns()); /* falls silent while we wait */
	CHECK(sms_of_a_launch() != 0);
	CHECK(count_of(HB_COUNT_window_waits) >= 1);
	end();
}

enum { THREADS = 4, LAUNCHES = 200 };
static atomic_uint running = THREADS;

static void *launch_many(void *unused)
{
	CUstream own;
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < LAUNCHES; i++)
		launch(i % 3 ? own : stream);
	OK(CU(cuStreamSynchronize)(own));
	OK(CU(cuStreamDestroy_v2)(own));
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void launch_from_threads_while_requests_come_and_go(void)
{
	pthread_t threads[THREADS];
	begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_many, NULL) == 0);
	while (atomic_load(&running)) {
		raise_beacon(hb_clock_now_ns());
		sched_yield();
		lower_beacon();
		usleep(200);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(CU(cuCtxSynchronize)());
	end();
}

static void serve_a_request(void)
{
	begin();
	CHECK(beacon()->owner == 0);
	launch(stream);
	CHECK(beacon()->owner == PID);
	CHECK(beacon()->word & 1);
	CHECK(beacon()->reserve > 0);
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(!(beacon()->word & 1));
	CHECK(count_of(HB_COUNT_requests) == 1);
	end();
}

static int priority_of(int asked)
{
	CUstream made;
	int priority;
	OK(CU(cuStreamCreateWithPriority)(&made, CU_STREAM_NON_BLOCKING, asked));
	OK(CU(cuStreamGetPriority)(made, &priority));
	OK(CU(cuStreamDestroy_v2)(made));
	return priority;
}

/* The simulated driver has the levels 0 to -5. */
static void make_streams_of_low(void)
{
	begin();
	CHECK(priority_of(0) == 0);
	CHECK(priority_of(-3) == -1);
	CHECK(priority_of(-5) == -2);
	CHECK(priority_of(-99) == -2);
	CHECK(priority_of(7) == 0);
	end();
}

static void make_streams_of_high(void)
{
	int plain;
	begin();
	OK(CU(cuStreamGetPriority)(stream, &plain));
	CHECK(plain == -3);
	CHECK(priority_of(-3) == -4);
	CHECK(priority_of(-5) == -5);
	CHECK(count_of(HB_COUNT_streams_moved) == 2);
	end();
}

static void make_streams_outside(void)
{
	begin();
	CHECK(priority_of(-5) == -5);
	CHECK(priority_of(-1) == -1);
	CHECK(count_of(HB_COUNT_streams_moved) == 0);
	end();
}

/* ---- in the test ---- */

static int set_up(void **state)
{
	hb_page_host_init(&host);
	strcpy(gpu_folder, "/tmp/hb-window-XXXXXX");
	assert_non_null(mkdtemp(gpu_folder));
	setenv("HB_SIM_GPU", gpu_folder, 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", gpu_folder, 1);
	setenv("HB_MPS", "1", 1);
	unsetenv("HB_SIM_MASKS");
	unsetenv("HB_MASKS");
	unsetenv("CUDA_INJECTION64_PATH");
	host.page->gpus[0].engine = HB_ENGINE_SPATIAL;
	host.page->processes[0].pid = PID;
	host.gpu->tenants_high = 1;
	host.gpu->tenants_low = 1;
	host.gpu->high_at_work = 1;
	host.gpu->window_us = 100000;
	return 0;
}

static int tear_down(void **state)
{
	DIR *folder = opendir(gpu_folder);
	struct dirent *entry;
	while (folder && (entry = readdir(folder)))
		unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		closedir(folder);
	rmdir(gpu_folder);
	hb_page_host_fini(&host);
	return 0;
}

static struct hb_page_process *run(void (*scenario)(void))
{
	pid_t child = hb_page_host_start(scenario);
	struct hb_page_process *process = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	return process;
}

static void low_leaves_sms_to_high(void **state)
{
	host.gpu->low_sms = 100;
	assert_int_equal(run(launch_beside_high)->mask_state, HB_MASK_WORKS);
}

static void low_has_all_sms_while_high_is_idle(void **state)
{
	host.gpu->low_sms = 100;
	host.gpu->high_at_work = 0;
	run(launch_alone);
}

static void cooperative_kernels_are_left_whole(void **state)
{
	host.gpu->low_sms = 100;
	run(launch_cooperatively);
}

static void graphs_get_masks_when_they_are_made(void **state)
{
	host.gpu->low_sms = 100;
	run(launch_a_graph_made_beside_high);
}

static void masks_are_off_where_they_do_not_work(void **state)
{
	static const struct {
		const char *name, *value;
		enum hb_mask_state state;
	} cases[] = {
		{"HB_SIM_MASKS", "none", HB_MASK_NO_TABLE},
		{"HB_SIM_MASKS", "version", HB_MASK_VERSION},
		{"HB_SIM_MASKS", "silent", HB_MASK_NOT_CALLED},
		{"HB_SIM_MASKS", "ignored", HB_MASK_NO_EFFECT},
		{"CUDA_INJECTION64_PATH", "/nonexistent/profiler.so", HB_MASK_PROFILER},
		{"HB_MASKS", "0", HB_MASK_SWITCHED_OFF},
	};
	host.gpu->low_sms = 100;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		host.next_slot = 0;
		setenv(cases[i].name, cases[i].value, 1);
		assert_int_equal(run(launch_without_masks)->mask_state, cases[i].state);
		unsetenv(cases[i].name);
	}
}

static void low_waits_for_a_request_of_high(void **state)
{
	run(launch_during_a_request);
}

static void what_is_recorded_does_not_wait(void **state)
{
	run(capture_during_a_request);
}

static void a_request_without_signs_of_life_holds_nobody(void **state)
{
	run(launch_beside_a_silent_request);
}

static void threads_launch_on_while_requests_come_and_go(void **state)
{
	run(launch_from_threads_while_requests_come_and_go);
}

static void a_request_of_high_is_seen(void **state)
{
	host.page->priority = HB_PAGE_HIGH;
	run(serve_a_request);
}

static void streams_of_low_are_below_those_of_high(void **state)
{
	run(make_streams_of_low);
	host.next_slot = 0;
	memset(&host.page->processes[0].counters, 0, sizeof host.page->processes[0].counters);
	host.page->priority = HB_PAGE_HIGH;
	run(make_streams_of_high);
}

static void outside_the_server_streams_are_as_asked(void **state)
{
	unsetenv("HB_MPS");
	host.page->priority = HB_PAGE_HIGH;
	host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	run(make_streams_outside);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(low_leaves_sms_to_high),
		TEST(low_has_all_sms_while_high_is_idle),
		TEST(cooperative_kernels_are_left_whole),
		TEST(graphs_get_masks_when_they_are_made),
		TEST(masks_are_off_where_they_do_not_work),
		TEST(low_waits_for_a_request_of_high),
		TEST(what_is_recorded_does_not_wait),
		TEST(a_request_without_signs_of_life_holds_nobody),
		TEST(threads_launch_on_while_requests_come_and_go),
		TEST(a_request_of_high_is_seen),
		TEST(streams_of_low_are_below_those_of_high),
		TEST(outside_the_server_streams_are_as_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
