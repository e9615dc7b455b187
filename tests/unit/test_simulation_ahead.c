/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of the spatial engine about requests that begin after a pause, and about what the next launches of a request need,
 * in simulations with programs that are hard to share a GPU with.
 */
#include "sim/sim.h"
#include "unit.h"

#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SMALL_OPS 256
#define LARGE_OPS 48
#define GRID 264

static struct hb_op trial_op, gemm_op, long_op, mixed_ops[SMALL_OPS + LARGE_OPS], train_ops[12];
static struct hb_iteration one = {0, 1}, mixed = {0, SMALL_OPS + LARGE_OPS}, train = {0, 12};
static struct hb_workload workloads[] = {
	{.name = "trial", .ops = &trial_op, .iterations = &one, .n_ops = 1, .n_iterations = 1},
	{.name = "gemm", .ops = &gemm_op, .iterations = &one, .n_ops = 1, .n_iterations = 1},
	{.name = "long", .ops = &long_op, .iterations = &one, .n_ops = 1, .n_iterations = 1},
	{.name = "mixed", .ops = mixed_ops, .iterations = &mixed, .n_ops = SMALL_OPS + LARGE_OPS, .n_iterations = 1},
	{.name = "train", .ops = train_ops, .iterations = &train, .n_ops = 12, .n_iterations = 1},
};
static char kernel_name[] = "kernel";
static char *names[] = {kernel_name};
static const struct hb_trace_set set = {.workloads = workloads, .n_workloads = 5, .names = names, .n_names = 1};

static struct hb_op make_op(int64_t start_ns, int64_t duration_ns, uint32_t blocks, uint32_t threads)
{
	return (struct hb_op){.start_ns = start_ns,
			      .duration_ns = duration_ns,
			      .host_ns = 20 * US + start_ns,
			      .blocks = blocks,
			      .grid = {blocks, 1, 1},
			      .block = {threads, 1, 1},
			      .threads = threads,
			      .registers = 32,
			      .kind = HB_OP_KERNEL,
			      .cluster = 1};
}

/* One block on each SM, which has no room for another one, as kernels of cuBLAS on Hopper. */
static struct hb_op make_persistent(int64_t duration_ns)
{
	struct hb_op op = make_op(0, duration_ns, 132, 384);
	op.registers = 168;
	op.shared_bytes = 220000;
	return op;
}

static int make_traces(void **state)
{
	(void)state;
	trial_op = make_op(0, 20 * US, 16, 512);
	gemm_op = make_persistent(1640 * US);
	long_op = make_persistent(20 * MS);
	for (int i = 0; i < SMALL_OPS; i++)
		mixed_ops[i] = make_op(i * 25 * US, 6 * US, 8, 256);
	for (int i = 0; i < LARGE_OPS; i++)
		mixed_ops[SMALL_OPS + i] = make_op(SMALL_OPS * 25 * US + i * 27 * US, 25 * US, GRID, 512);
	for (int i = 0; i < 12; i++)
		train_ops[i] = make_op(i * 20 * US, 100 * US, 1320 + 500 * (uint32_t)i, 256);
	return 0;
}

struct seen {
	int64_t p99_ns;
	double low;
};

static struct seen simulate(const char *sharing, const char *high, const char *arrivals, const char *low,
			    double seconds)
{
	struct hb_sim_options options = {
		.traces = &set, .gpu = GPUS "/h200.yaml", .sharing = sharing, .seconds = seconds, .seed = 1};
	struct hb_sim_result result;
	struct hb_error error = {""};
	options.high[options.n_high++] = (struct hb_sim_tenant){.workload = hb_trace_find(&set, high),
								.arrivals = arrivals};
	options.low[options.n_low++] = (struct hb_sim_tenant){.workload = hb_trace_find(&set, low)};
	strcpy(options.high[0].label, high);
	strcpy(options.low[0].label, low);
	if (hb_sim_run(&options, &result, &error))
		fail_msg("%s: %s", sharing, error.text);
	struct seen seen = {result.high[0].p99_ns, result.low[0].relative};
	hb_sim_result_fini(&result);
	return seen;
}

static void a_request_after_a_pause_finds_room_beside_long_kernels(void **state)
{
	(void)state;
	struct seen seen = simulate("spatial", "trial", "20/s", "long", 60);
	assert_true(seen.p99_ns < 150 * US);
	assert_true(seen.low > 0.9);
}

static void a_foreseen_request_finds_room_beside_matrix_products(void **state)
{
	(void)state;
	struct seen without = simulate("spatial:without=foresight", "trial", "20/s", "gemm", 60);
	struct seen with = simulate("spatial:hints=learned", "trial", "20/s", "gemm", 60);
	assert_true(without.p99_ns > 300 * US);
	assert_true(with.p99_ns < 150 * US);
	assert_true(with.low > without.low - 0.01);
}

static void low_gains_where_the_next_launches_are_small(void **state)
{
	(void)state;
	struct seen without = simulate("spatial:without=following", "mixed", "60/s", "train", 10);
	struct seen with = simulate("spatial", "mixed", "60/s", "train", 10);
	assert_true(with.low > without.low + 0.01);
	assert_true(with.p99_ns < without.p99_ns + without.p99_ns / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_after_a_pause_finds_room_beside_long_kernels),
		cmocka_unit_test(a_foreseen_request_finds_room_beside_matrix_products),
		cmocka_unit_test(low_gains_where_the_next_launches_are_small),
	};
	return cmocka_run_group_tests(tests, make_traces, 0);
}
