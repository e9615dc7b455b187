/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing between the GPUs of a node in virtual time: every GPU takes exactly the profiled time. A request goes where it ends
 * first, an idle GPU takes waiting requests, and two GPUs serve about twice as many requests in time as one.
 */
#include "base/rng.h"
#include "server/scheduler/route.h"
#include "unit.h"

#include <string.h>

#define MS INT64_C(1000000)
#define RUN_NS (2 * MS)
#define SLOW_NS (20 * MS)
#define DEADLINE_NS (8 * MS)
#define SPAN_NS (4000 * MS)

static struct {
	struct hb_scheduler *schedulers[HB_ROUTE_GPUS_MAX];
	int64_t end_ns[HB_ROUTE_GPUS_MAX][HB_SCHEDULER_FLIGHTS_MAX]; /* 0 = free */
	int64_t item_ns[2], now_ns;
	uint32_t n, batches[HB_ROUTE_GPUS_MAX];
	uint64_t in_time;
} node;

/* Opens GPUs with two models, one of them slow. A batch fills the GPU, and larger batches save nothing. */
static void open_node(uint32_t n)
{
	struct hb_scheduler_config config;
	struct hb_error error = {""};
	hb_scheduler_config_init(&config);
	config.policy = "edf";
	config.concurrency = 1;
	memset(&node, 0, sizeof node);
	node.now_ns = 1;
	node.n = n;
	node.item_ns[0] = RUN_NS;
	node.item_ns[1] = SLOW_NS;
	for (uint32_t gpu = 0; gpu < n; gpu++) {
		assert_int_equal(hb_scheduler_new(&config, &node.schedulers[gpu], &error), 0);
		for (uint32_t model = 0; model < 2; model++) {
			struct hb_scheduler_model known = {.max_items = 1, .run_guess_ns = 1, .sm_demand = {1, 1}};
			double stage_ns[HB_STAGES] = {0, (double)node.item_ns[model], 0};
			assert_int_equal(hb_scheduler_add_model(node.schedulers[gpu], &known, &error), (int)model);
			hb_scheduler_profiled(node.schedulers[gpu], model, 1, stage_ns);
		}
	}
}

static int closes(void **state)
{
	for (uint32_t gpu = 0; gpu < node.n; gpu++)
		hb_scheduler_free(node.schedulers[gpu]);
	node.n = 0;
	return 0;
}

static struct hb_scheduler_request make_request(uint32_t model)
{
	return (struct hb_scheduler_request){.model = model, .items = 1, .deadline_ns = node.now_ns + DEADLINE_NS};
}

static uint32_t choose(uint32_t model, uint32_t candidates)
{
	const struct hb_scheduler_request request = make_request(model);
	return hb_route_choose(node.schedulers, candidates, node.now_ns, &request);
}

static void submit(uint32_t gpu, uint32_t model)
{
	struct hb_scheduler_request request = make_request(model);
	request.deadline_ns += SLOW_NS;
	assert_true(hb_scheduler_submit(node.schedulers[gpu], node.now_ns, &request));
}

static void start_batches(uint32_t gpu)
{
	struct hb_scheduler_action action;
	while (hb_scheduler_step(node.schedulers[gpu], node.now_ns, &action)) {
		if (action.kind != HB_SCHEDULER_START)
			continue;
		const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(node.schedulers[gpu], action.slot);
		hb_scheduler_stage(node.schedulers[gpu], node.now_ns, action.slot, HB_STAGE_RUN);
		node.end_ns[gpu][action.slot] = node.now_ns + node.item_ns[batch->model];
		node.batches[gpu]++;
	}
}

/* Ends the batches that are due, starts others, and returns when the next one ends. */
static int64_t advance_gpu(uint32_t gpu)
{
	int64_t next_ns = INT64_MAX;
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++)
		if (node.end_ns[gpu][slot] && node.end_ns[gpu][slot] <= node.now_ns) {
			const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(node.schedulers[gpu], slot);
			node.in_time += node.now_ns <= batch->deadline_ns;
			hb_scheduler_end(node.schedulers[gpu], node.now_ns, slot, true);
			node.end_ns[gpu][slot] = 0;
		}
	start_batches(gpu);
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++)
		if (node.end_ns[gpu][slot] && node.end_ns[gpu][slot] < next_ns)
			next_ns = node.end_ns[gpu][slot];
	return next_ns;
}

/* Poisson arrivals of model 0 at a rate relative to what one GPU serves. Returns the requests in time. */
static uint64_t serve(uint32_t n, double load)
{
	struct hb_rng rng;
	open_node(n);
	hb_rng_init(&rng, 7, 0);
	double arrival_ns = 0, mean_ns = (double)RUN_NS / load;
	while (node.now_ns < SPAN_NS) {
		int64_t next_ns = (int64_t)arrival_ns + 1;
		for (uint32_t gpu = 0; gpu < n; gpu++) {
			int64_t end_ns = advance_gpu(gpu);
			next_ns = end_ns < next_ns ? end_ns : next_ns;
		}
		node.now_ns = next_ns > node.now_ns ? next_ns : node.now_ns;
		if ((double)node.now_ns < arrival_ns)
			continue;
		const struct hb_scheduler_request request = make_request(0);
		uint32_t gpu = hb_route_choose(node.schedulers, (1u << n) - 1, node.now_ns, &request);
		assert_true(gpu < n);
		hb_scheduler_submit(node.schedulers[gpu], node.now_ns, &request);
		arrival_ns += hb_rng_exponential(&rng, mean_ns);
	}
	uint64_t in_time = node.in_time;
	closes(NULL);
	return in_time;
}

static void a_request_goes_where_it_ends_first(void **state)
{
	open_node(2);
	assert_int_equal(choose(0, 3), 0); /* both are idle */
	submit(0, 1);
	advance_gpu(0);
	assert_int_equal(choose(0, 3), 1); /* GPU 0 runs the slow model */
	for (int i = 0; i < 8; i++)
		submit(1, 0);
	advance_gpu(1);
	assert_int_equal(choose(0, 3), 1); /* eight short requests end before the slow one */
	for (int i = 0; i < 8; i++)
		submit(1, 0);
	assert_int_equal(choose(0, 3), 0);
}

static void only_candidates_are_chosen(void **state)
{
	open_node(3);
	submit(1, 1);
	advance_gpu(1);
	assert_int_equal(choose(0, 2), 1); /* the only one, although it is busy */
	assert_int_equal(choose(0, 6), 2);
	assert_int_equal(choose(0, 0), HB_ROUTE_GPUS_MAX);
}

static void a_prediction_counts_what_waits_before_it(void **state)
{
	open_node(1);
	const struct hb_scheduler_request request = make_request(0);
	double idle_ns = hb_route_predict_ns(node.schedulers[0], node.now_ns, &request);
	assert_true(idle_ns > 0.99 * RUN_NS && idle_ns < 1.01 * RUN_NS);
	submit(0, 0);
	submit(0, 1);
	double behind_ns = hb_route_predict_ns(node.schedulers[0], node.now_ns, &request);
	assert_true(behind_ns > 0.99 * (2 * RUN_NS + SLOW_NS) && behind_ns < 1.01 * (2 * RUN_NS + SLOW_NS));
}

static void an_idle_gpu_takes_waiting_requests(void **state)
{
	open_node(2);
	submit(0, 0);
	assert_int_equal(hb_route_find_waiting(node.schedulers, 2, 1, 0),
			 HB_ROUTE_GPUS_MAX); /* nothing runs on GPU 0 */
	advance_gpu(0);
	assert_int_equal(hb_route_find_waiting(node.schedulers, 2, 1, 0), HB_ROUTE_GPUS_MAX); /* nothing waits there */
	submit(0, 0);
	assert_int_equal(hb_route_find_waiting(node.schedulers, 2, 1, 0), 0);
	assert_int_equal(hb_route_find_waiting(node.schedulers, 2, 1, 1), HB_ROUTE_GPUS_MAX); /* not of that model */
	assert_int_equal(hb_route_find_waiting(node.schedulers, 2, 0, 0), HB_ROUTE_GPUS_MAX); /* GPU 0 is not idle */
}

static void two_gpus_serve_twice_as_many(void **state)
{
	uint64_t one = serve(1, 0.9), two = serve(2, 1.8);
	assert_true(one > 1000);
	assert_true((double)two >= 1.9 * (double)one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_request_goes_where_it_ends_first, closes),
		cmocka_unit_test_teardown(only_candidates_are_chosen, closes),
		cmocka_unit_test_teardown(a_prediction_counts_what_waits_before_it, closes),
		cmocka_unit_test_teardown(an_idle_gpu_takes_waiting_requests, closes),
		cmocka_unit_test_teardown(two_gpus_serve_twice_as_many, closes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
