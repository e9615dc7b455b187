/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests one context shared by several programs (MPS), occupancy, masks, clusters,
 * priorities and graphs of the GPU model. Latencies were measured on an H200; HP is 264 blocks of 20 us, every 3 to 7 ms.
 */
#include "model_rig.h"

#include <stdio.h>

#define TOP (-5)

/* Returns HP's stream in an MPS server in which LP keeps blocks of block_ns queued. */
static int beside_low_client(struct rig *rig, int64_t block_ns, int high_priority, uint32_t low_sms)
{
	struct hb_gpu_model_context server = {.mps = true};
	rig_init(rig);
	int context = rig_context(rig, &server);
	int high = rig_stream(rig, context, 0, high_priority);
	struct hb_gpu_model_work work = rig_kernel(rig, block_ns, 2640, 1024); /* ten waves */
	work.sm_limit = low_sms;
	rig_keep_busy(rig, rig_stream(rig, context, 0, 0), &work, 4);
	rig_run_until(rig, 50 * MS);
	return high;
}

static void with_priorities_high_waits_for_running_blocks_only(void **state)
{
	static const struct {
		int64_t block_us;
		double p50_us, p99_us;
	} rows[] = {{5, 43, 52}, {10, 46, 57}, {20, 51.5, 64}, {50, 64, 90}, {200, 144, 237}, {2000, 1036, 2021}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig rig;
		int high = beside_low_client(&rig, rows[i].block_us * US, TOP, 0);
		struct hb_gpu_model_work work = rig_foreground(&rig);
		struct rig_latency latency = rig_measure(&rig, high, &work, 200, 3 * MS, 7 * MS);
		char what[64];
		snprintf(what, sizeof what, "HP beside LP blocks of %d us", (int)rows[i].block_us);
		rig_assert_near(what, (double)latency.p50_ns, rows[i].p50_us * 1e3, 15);
		rig_assert_near(what, (double)latency.p99_ns, rows[i].p99_us * 1e3, 16);
		rig_fini(&rig);
	}
}

static void without_priorities_high_waits_for_whole_kernels(void **state)
{
	struct rig rig;
	int high = beside_low_client(&rig, 20 * US, 0, 0);
	struct hb_gpu_model_work work = rig_foreground(&rig);
	struct rig_latency latency = rig_measure(&rig, high, &work, 100, 3 * MS, 7 * MS);
	/* Up to four kernels of 200 us are queued before it. */
	assert_true(latency.p50_ns > 100 * US);
	assert_true(latency.max_ns < 900 * US);
	rig_fini(&rig);
}

static void sms_kept_from_low_are_a_landing_strip(void **state)
{
	/* SMs kept free (0, 8 by 4 mask bits, 22 by 16 bits, of which the chip uses fewer), HP's blocks, measured p50. */
	static const struct {
		uint32_t kept;
		uint64_t blocks;
		double p50_us, percent;
	} rows[] = {
		{0, 16, 512, 10}, {0, 64, 512, 10}, {0, 264, 503, 10}, {8, 16, 40, 5},   {8, 64, 60, 5},
		{8, 264, 202, 5}, {22, 16, 41, 6},  {22, 64, 40, 5},   {22, 264, 82, 5},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig rig;
		int high = beside_low_client(&rig, 1000 * US, TOP, rows[i].kept ? 132 - rows[i].kept : 0);
		struct hb_gpu_model_work work = rig_kernel(&rig, 20 * US, rows[i].blocks, 512);
		struct rig_latency latency = rig_measure(&rig, high, &work, 200, 3 * MS, 7 * MS);
		char what[64];
		snprintf(what, sizeof what, "%d SMs kept free, %d blocks", (int)rows[i].kept, (int)rows[i].blocks);
		rig_assert_near(what, (double)latency.p50_ns, rows[i].p50_us * 1e3, rows[i].percent);
		rig_fini(&rig);
	}
}

static void limited_client_leaves_the_other_sms_free(void **state)
{
	struct rig rig;
	struct hb_gpu_model_context server = {.mps = true};
	rig_init(&rig);
	int context = rig_context(&rig, &server);
	int low = rig_stream(&rig, context, 66, 0), high = rig_stream(&rig, context, 0, 0);
	struct hb_gpu_model_work busy = rig_kernel(&rig, 1000 * US, 2640, 1024),
				 work = rig_kernel(&rig, 20 * US, 66, 1024);
	rig_keep_busy(&rig, low, &busy, 4);
	rig_run_until(&rig, 5 * MS);
	rig_assert_near("half of the GPU is free", (double)rig_launch_and_wait(&rig, high, &work), 39e3, 5);
	rig_fini(&rig);
}

/* Training under an MPS limit of 88 % kept 92 to 97 % of its speed, under 60 % it kept 70 to 76 %. */
static void limited_client_is_slower_by_less_than_its_limit(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context server = {.mps = true};
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work work = rig_kernel(&rig, 100 * US, 264 * 50, 1024);
	work.memory_share = 0.6; /* the mean of training kernels, weighted by time */
	int64_t took[3];
	uint32_t limits[3] = {0, 116, 79};
	for (int i = 0; i < 3; i++) {
		int stream = rig_stream(&rig, context, limits[i], 0);
		rig_submit(&rig, stream, &work);
		rig_await(&rig, stream);
		took[i] = rig.last.end_ns - rig.last.start_ns;
	}
	rig_assert_near("88 %", (double)took[0] / (double)took[1], 0.945, 3);
	rig_assert_near("60 %", (double)took[0] / (double)took[2], 0.73, 5);
	rig_fini(&rig);
}

/* Time of one launch of `blocks` blocks that fill an SM each, on fewer SMs by the client's limit or by a mask. */
static double one_wave_us(uint32_t blocks, uint32_t limit, uint32_t mask)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context server = {.mps = true};
	int stream = rig_stream(&rig, rig_context(&rig, &server), limit, 0);
	struct hb_gpu_model_work work = rig_kernel(&rig, 600 * US, blocks, 1024);
	work.registers = 64;
	work.memory_share = 0.3;
	work.sm_limit = mask;
	rig_submit(&rig, stream, &work);
	rig_await(&rig, stream);
	double took_us = (double)(rig.last.end_ns - rig.last.start_ns) / 1e3;
	rig_fini(&rig);
	return took_us;
}

static double persistent_us(uint32_t limit, uint32_t mask)
{
	return one_wave_us(132, limit, mask);
}

/* The blocks of a persistent kernel share the work out as they run, so a mask costs what a limit of the client costs. */
static void persistent_kernel_behind_a_mask_has_no_second_round(void **state)
{
	double alone = persistent_us(0, 0), limited = persistent_us(116, 0), masked = persistent_us(0, 116);
	rig_assert_near("the whole GPU", alone, 600, 1);
	assert_true(limited < 1.1 * alone);
	rig_assert_near("behind a mask", masked, limited, 1);
	assert_true(masked > alone);
	rig_assert_near("on half of the SMs", persistent_us(0, 66), persistent_us(66, 0), 1);
	assert_in_range(persistent_us(0, 66), 700, 1200);
}

/* Blocks with fixed parts of the work: those that find no SM in the first round run in a second one. */
static void other_kernels_of_one_wave_behind_a_mask_have_a_second_round(void **state)
{
	double alone = one_wave_us(120, 0, 0);
	rig_assert_near("all fit", one_wave_us(120, 0, 124), alone, 6);
	rig_assert_near("20 blocks are left over", one_wave_us(120, 0, 100), 1.7 * alone, 3);
	assert_true(one_wave_us(120, 100, 0) < 1.3 * alone); /* a client with a limit launches fewer blocks */
}

static uint32_t occupancy_of(const struct rig *rig, uint32_t threads, uint32_t registers, uint32_t shared_bytes)
{
	struct hb_gpu_model_work work = {
		.kind = HB_GPU_MODEL_KERNEL, .threads = threads, .registers = registers, .shared_bytes = shared_bytes};
	return hb_gpu_model_occupancy(&rig->spec, &work);
}

/* The values are those of CUDA 13's occupancy calculator for compute capability 9.0. */
static void occupancy_is_bound_by_whatever_runs_out_first(void **state)
{
	struct rig rig;
	rig_init(&rig);
	assert_int_equal(occupancy_of(&rig, 1024, 32, 0), 2);       /* threads */
	assert_int_equal(occupancy_of(&rig, 33, 32, 0), 32);        /* slots; a part of a warp counts as one */
	assert_int_equal(occupancy_of(&rig, 96, 16, 0), 21);        /* threads */
	assert_int_equal(occupancy_of(&rig, 256, 64, 0), 4);        /* registers */
	assert_int_equal(occupancy_of(&rig, 256, 65, 0), 3);        /* registers, in units of 256 a warp */
	assert_int_equal(occupancy_of(&rig, 384, 168, 0), 1);       /* registers */
	assert_int_equal(occupancy_of(&rig, 128, 32, 100000), 2);   /* shared memory */
	assert_int_equal(occupancy_of(&rig, 128, 32, 115712), 2);   /* 113 KiB and 1 KiB of the driver, twice */
	assert_int_equal(occupancy_of(&rig, 128, 32, 115713), 1);   /* one byte more */
	assert_int_equal(occupancy_of(&rig, 1024, 255, 300000), 1); /* a recorded kernel did run, so one block fits */
	rig_fini(&rig);
}

/* All resident blocks share the registers of an SM, even where its threads would leave room. */
static void blocks_wait_for_registers_of_others(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context plain = {0};
	int context = rig_context(&rig, &plain);
	int first = rig_stream(&rig, context, 0, 0), second = rig_stream(&rig, context, 0, 0);
	struct hb_gpu_model_work full = rig_kernel(&rig, 100 * US, 132, 256),
				 small = rig_kernel(&rig, 10 * US, 132, 32);
	full.registers = 255; /* 65,280 of 65,536 */
	small.registers = 32; /* 1,024 */
	rig_submit(&rig, first, &full);
	rig_submit(&rig, second, &small);
	rig_await(&rig, second);
	assert_true(rig.last.start_ns >= 103 * US);
	small.registers = 8; /* 256: fits beside */
	rig_submit(&rig, first, &full);
	rig_submit(&rig, second, &small);
	rig_await(&rig, second);
	assert_true(rig.last.end_ns - rig.now_ns <= 0);
	assert_int_equal(rig.last.end_ns - rig.last.start_ns, 10 * US);
	rig_fini(&rig);
}

static void small_gpu(struct rig *rig, int sms, int gpcs)
{
	rig_init(rig);
	hb_gpu_model_free(rig->model);
	rig->spec.sm_count = sms;
	rig->spec.gpc_count = gpcs;
	rig->model = hb_gpu_model_new(&rig->spec);
	assert_non_null(rig->model);
}

static void cluster_needs_room_in_one_gpc(void **state)
{
	for (uint32_t cluster = 1; cluster <= 2; cluster++) {
		struct rig rig;
		small_gpu(&rig, 4, 2); /* GPCs of SMs 0 and 1, 2 and 3 */
		struct hb_gpu_model_context plain = {0};
		int context = rig_context(&rig, &plain);
		int left = rig_stream(&rig, context, 0, 0), right = rig_stream(&rig, context, 0, 0);
		struct hb_gpu_model_work one = {
			.kind = HB_GPU_MODEL_KERNEL, .blocks = 1, .threads = 1024, .duration_ns = 1 * MS};
		one.shared_bytes = 200000;
		one.sm_limit = 1; /* SM 0 */
		rig_submit(&rig, left, &one);
		one.sm_limit = 0; /* SM 3: the last idle one */
		rig_submit(&rig, right, &one);
		rig_run_until(&rig, 100 * US);
		struct hb_gpu_model_work pair = {
			.kind = HB_GPU_MODEL_KERNEL, .blocks = 2, .threads = 1024, .duration_ns = 50 * US};
		pair.shared_bytes = 200000;
		pair.cluster = cluster;
		int last = rig_stream(&rig, context, 0, 0);
		rig_submit(&rig, last, &pair);
		rig_await(&rig, last);
		if (cluster == 1)
			assert_true(rig.last.start_ns < 200 * US);
		else
			assert_true(rig.last.start_ns >= 1 * MS);
		rig_fini(&rig);
	}
}

/* Time until a cluster of eight blocks, one an SM, starts beside LP's blocks of 1 ms on 100 SMs. */
static int64_t cluster_starts_ns(bool spread)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context server = {.mps = true};
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work low = rig_kernel(&rig, 1 * MS, 100, 1024);
	struct hb_gpu_model_work high = rig_kernel(&rig, 10 * US, 8, 1024);
	low.shared_bytes = high.shared_bytes = 200000;
	low.sm_limit = 100;
	low.sm_spread = spread;
	high.cluster = 8;
	rig_submit(&rig, rig_stream(&rig, context, 0, 0), &low);
	rig_run_until(&rig, 100 * US);
	int stream = rig_stream(&rig, context, 0, TOP);
	rig_submit(&rig, stream, &high);
	rig_await(&rig, stream);
	int64_t start_ns = rig.last.start_ns;
	rig_fini(&rig);
	return start_ns;
}

/* The 32 remaining SMs are four in each GPC, or two complete GPCs. */
static void mask_of_whole_gpcs_leaves_room_for_clusters(void **state)
{
	assert_true(cluster_starts_ns(true) >= 1 * MS);
	assert_true(cluster_starts_ns(false) < 200 * US);
}

/* With fewer SMs than a cluster needs the kernel would never start, so the model places its blocks singly. */
static void cluster_larger_than_the_mask_still_runs(void **state)
{
	struct rig rig;
	struct hb_gpu_model_context server = {.mps = true};
	rig_init(&rig);
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work busy = rig_kernel(&rig, 20 * US, 2640, 1024);
	rig_keep_busy(&rig, rig_stream(&rig, context, 0, 0), &busy, 2);
	int high = rig_stream(&rig, context, 4, TOP);
	struct hb_gpu_model_work work = {
		.kind = HB_GPU_MODEL_KERNEL, .blocks = 64, .threads = 1024, .duration_ns = 50 * US};
	work.cluster = 16;
	work.shared_bytes = 200000;
	rig_run_until(&rig, 1 * MS);
	assert_true(rig_launch_and_wait(&rig, high, &work) < 100 * MS);
	rig_fini(&rig);
}

/* The same with a mask that leaves out the largest GPC: of GPCs of 16, 14 and 14 SMs it holds clusters of eight best. */
static void cluster_larger_than_the_gpcs_that_are_left_still_runs(void **state)
{
	struct rig rig;
	struct hb_gpu_model_context server = {.mps = true};
	small_gpu(&rig, 44, 3);
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work busy = rig_kernel(&rig, 20 * US, 880, 1024);
	rig_keep_busy(&rig, rig_stream(&rig, context, 0, 0), &busy, 2);
	int high = rig_stream(&rig, context, 4, TOP);
	struct hb_gpu_model_work work = {
		.kind = HB_GPU_MODEL_KERNEL, .blocks = 32, .threads = 1024, .duration_ns = 50 * US};
	work.cluster = 16;
	work.shared_bytes = 200000;
	work.sm_limit = 28;
	rig_run_until(&rig, 1 * MS);
	assert_true(rig_launch_and_wait(&rig, high, &work) < 100 * MS);
	rig_fini(&rig);
}

/* Three streams wait behind a full GPU: -5 goes before -2 and 0, in whatever order they arrived. */
static void waiting_kernels_go_by_priority(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context plain = {0};
	int context = rig_context(&rig, &plain);
	struct hb_gpu_model_work full = rig_kernel(&rig, 100 * US, 264, 1024);
	rig_submit(&rig, rig_stream(&rig, context, 0, 0), &full);
	rig_run_until(&rig, 10 * US);
	static const int priorities[] = {0, -2, -5};
	for (uint64_t i = 0; i < 3; i++) {
		full.cookie = i + 1;
		rig_submit(&rig, rig_stream(&rig, context, 0, priorities[i]), &full);
	}
	hb_gpu_model_advance(rig.model, 10 * MS);
	struct hb_gpu_model_completion done;
	static const uint64_t order[] = {0, 3, 2, 1};
	for (int i = 0; i < 4; i++) {
		assert_true(hb_gpu_model_pop(rig.model, &done));
		assert_int_equal(done.cookie, order[i]);
	}
	rig_fini(&rig);
}

static void kernels_of_one_priority_go_first_come_first_served(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context plain = {0};
	int context = rig_context(&rig, &plain);
	struct hb_gpu_model_work full = rig_kernel(&rig, 100 * US, 264, 1024);
	for (uint64_t i = 0; i < 4; i++) {
		full.cookie = i;
		rig_submit(&rig, rig_stream(&rig, context, 0, 0), &full);
	}
	hb_gpu_model_advance(rig.model, 10 * MS);
	struct hb_gpu_model_completion done;
	for (uint64_t i = 0; i < 4; i++) {
		assert_true(hb_gpu_model_pop(rig.model, &done));
		assert_int_equal(done.cookie, i);
	}
	rig_fini(&rig);
}

static void work_of_one_stream_runs_in_order(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int stream = rig_process(&rig, 0, 0);
	struct hb_gpu_model_work small = {
		.kind = HB_GPU_MODEL_KERNEL, .blocks = 1, .threads = 32, .duration_ns = 5 * US};
	struct hb_gpu_model_work copy = rig_copy(600000);
	struct hb_gpu_model_completion done;
	for (uint64_t i = 0; i < 9; i++) {
		small.cookie = copy.cookie = i;
		rig_submit(&rig, stream, i % 3 ? &small : &copy);
	}
	hb_gpu_model_advance(rig.model, 10 * MS);
	int64_t end_ns = 0;
	for (uint64_t i = 0; i < 9; i++) {
		assert_true(hb_gpu_model_pop(rig.model, &done));
		assert_int_equal(done.cookie, i);
		assert_true(done.start_ns >= end_ns);
		end_ns = done.end_ns;
	}
	rig_fini(&rig);
}

static void kernel_alone_takes_its_recorded_time_whatever_its_shape(void **state)
{
	static const uint64_t blocks[] = {1, 7, 132, 264, 1000, 100000, 10000000};
	struct rig rig;
	rig_init(&rig);
	int stream = rig_process(&rig, 0, 0);
	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
		struct hb_gpu_model_work work = {.kind = HB_GPU_MODEL_KERNEL, .duration_ns = 12345, .threads = 384};
		work.blocks = blocks[i];
		rig_submit(&rig, stream, &work);
		rig_await(&rig, stream);
		assert_int_equal(rig.last.end_ns - rig.last.start_ns, 12345);
	}
	rig_fini(&rig);
}

/* resnet50 as a CUDA graph: 280 kernels of 750 us in all take 770 us alone and 940 us under MPS. */
static void graph_is_one_submission_with_cheap_boundaries(void **state)
{
	for (int mps = 0; mps < 2; mps++) {
		struct rig rig;
		rig_init(&rig);
		struct hb_gpu_model_context params = {.mps = mps};
		int stream = rig_stream(&rig, rig_context(&rig, &params), 0, 0);
		struct hb_gpu_model_work kernels[280];
		for (int i = 0; i < 280; i++)
			kernels[i] = (struct hb_gpu_model_work){
				.kind = HB_GPU_MODEL_KERNEL, .duration_ns = 2679, .blocks = 100, .threads = 256};
		assert_int_equal(hb_gpu_model_submit_graph(rig.model, 0, stream, kernels, 280, 77), 0);
		assert_int_equal(hb_gpu_model_pending(rig.model, stream), 1);
		int64_t end_ns = rig_await(&rig, stream) + (int64_t)rig.spec.sync_latency_ns;
		rig_assert_near(mps ? "graph under MPS" : "graph", (double)end_ns, mps ? 940e3 : 770e3, 2);
		assert_int_equal(rig.finished, 1);
		assert_int_equal(rig.last.cookie, 77);
		rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_priorities_high_waits_for_running_blocks_only),
		cmocka_unit_test(without_priorities_high_waits_for_whole_kernels),
		cmocka_unit_test(sms_kept_from_low_are_a_landing_strip),
		cmocka_unit_test(limited_client_leaves_the_other_sms_free),
		cmocka_unit_test(limited_client_is_slower_by_less_than_its_limit),
		cmocka_unit_test(persistent_kernel_behind_a_mask_has_no_second_round),
		cmocka_unit_test(other_kernels_of_one_wave_behind_a_mask_have_a_second_round),
		cmocka_unit_test(occupancy_is_bound_by_whatever_runs_out_first),
		cmocka_unit_test(blocks_wait_for_registers_of_others),
		cmocka_unit_test(cluster_needs_room_in_one_gpc),
		cmocka_unit_test(mask_of_whole_gpcs_leaves_room_for_clusters),
		cmocka_unit_test(cluster_larger_than_the_mask_still_runs),
		cmocka_unit_test(cluster_larger_than_the_gpcs_that_are_left_still_runs),
		cmocka_unit_test(waiting_kernels_go_by_priority),
		cmocka_unit_test(kernels_of_one_priority_go_first_come_first_served),
		cmocka_unit_test(work_of_one_stream_runs_in_order),
		cmocka_unit_test(kernel_alone_takes_its_recorded_time_whatever_its_shape),
		cmocka_unit_test(graph_is_one_submission_with_cheap_boundaries),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
