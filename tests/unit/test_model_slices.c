/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares time slices, switches and holds of the GPU model with measurements of
 * an H200. HP is a kernel of 264 blocks of 20 us, launched and awaited
 * every 3 to 7 ms (alone: 28.8 us); LP keeps every SM busy with 20 us blocks.
 */
#include "model_rig.h"

#include <stdio.h>

#define HIGH_SLICE_NS (100 * MS)

static struct hb_gpu_model_work low_kernel(const struct rig *rig, int64_t block_ns)
{
	return rig_kernel(rig, block_ns, (uint64_t)(264 * (20 * MS / block_ns)), 1024);
}

/* Starts LP with this slice in a context of its own. Returns HP's stream. */
static int beside_busy_low(struct rig *rig, int64_t low_slice_ns)
{
	int high = rig_process(rig, HIGH_SLICE_NS, 0);
	int low = rig_process(rig, low_slice_ns, 0);
	struct hb_gpu_model_work work = low_kernel(rig, 20 * US);
	rig_keep_busy(rig, low, &work, 4);
	rig_run_until(rig, 50 * MS);
	return high;
}

static double low_share(const struct rig *rig, uint32_t index)
{
	const struct rig_busy *busy = &rig->busy[index];
	return (double)busy->done * (double)busy->work.duration_ns / (double)rig->now_ns;
}

static void alone_high_takes_28_8_us(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_foreground(&rig);
	int high = rig_process(&rig, 0, 0);
	rig_assert_near("HP alone", (double)rig_launch_and_wait(&rig, high, &work), 28.8e3, 4);
	rig_fini(&rig);
}

static void high_waits_for_the_slice_of_low_and_a_switch(void **state)
{
	static const struct {
		int64_t slice_us;
		double p50_us, p90_us, p99_us;
	} rows[] = {
		{2048, 1340, 2140, 2300}, {1000, 746, 1128, 1230}, {500, 481, 678, 732}, {200, 330, 408, 426},
		{100, 275, 314, 327},     {20, 238, 248, 260},     {1, 225, 233, 245},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig rig;
		rig_init(&rig);
		struct hb_gpu_model_work work = rig_foreground(&rig);
		int high = beside_busy_low(&rig, rows[i].slice_us * US);
		struct rig_latency latency = rig_measure(&rig, high, &work, 600, 3 * MS, 7 * MS);
		char what[64];
		snprintf(what, sizeof what, "HP beside LP with slices of %d us", (int)rows[i].slice_us);
		rig_assert_near(what, (double)latency.p50_ns, rows[i].p50_us * 1e3, 8);
		rig_assert_near(what, (double)latency.p90_ns, rows[i].p90_us * 1e3, 8);
		rig_assert_near(what, (double)latency.p99_ns, rows[i].p99_us * 1e3, 10);
		rig_fini(&rig);
	}
}

static void tiny_slice_costs_low_nothing_while_it_is_alone(void **state)
{
	double share[2];
	for (int i = 0; i < 2; i++) {
		struct rig rig;
		rig_init(&rig);
		struct hb_gpu_model_work work = rig_foreground(&rig);
		int high = beside_busy_low(&rig, i ? 1 * US : 0);
		rig_measure(&rig, high, &work, 400, 3 * MS, 7 * MS);
		share[i] = low_share(&rig, 0);
		rig_fini(&rig);
	}
	rig_assert_near("LP's share with the default slice", share[0], 0.935, 2);
	rig_assert_near("LP's share with 1 us slices", share[1], 0.925, 2);
}

/* Time from the end of HP's kernel to the end of its next one, which arrives gap_ns later. */
static int64_t second_kernel_ns(struct rig *rig, int high, int64_t gap_ns)
{
	struct hb_gpu_model_work work = rig_foreground(rig);
	rig_submit(rig, high, &work);
	int64_t first = rig_await(rig, high);
	rig_run_until(rig, first + gap_ns - (int64_t)rig->spec.launch_latency_ns);
	rig_submit(rig, high, &work);
	return rig_await(rig, high) - first;
}

static void queue_that_runs_dry_for_longer_than_the_yield_time_loses_the_gpu(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int high = beside_busy_low(&rig, 1 * US);
	assert_int_equal(second_kernel_ns(&rig, high, 3 * US), 3 * US + 20 * US);
	rig_run_until(&rig, rig.now_ns + 5 * MS);
	int64_t lost = second_kernel_ns(&rig, high, 6 * US);
	rig_assert_near("round trip HP, LP, HP", (double)(lost - 20 * US), 348e3, 3);
	rig_fini(&rig);
}

static void queue_that_runs_dry_keeps_the_gpu_while_nobody_else_wants_it(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int high = rig_process(&rig, HIGH_SLICE_NS, 0);
	rig_process(&rig, 1 * US, 0);
	assert_int_equal(second_kernel_ns(&rig, high, 500 * US), 500 * US + 20 * US);
	assert_int_equal(rig.switches, 0);
	rig_fini(&rig);
}

static void two_low_contexts_with_tiny_slices_livelock(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_kernel(&rig, 20 * US, 2640, 1024);
	for (int i = 0; i < 2; i++)
		rig_keep_busy(&rig, rig_process(&rig, 1 * US, 0), &work, 4);
	rig_run_until(&rig, 500 * MS);
	assert_true(low_share(&rig, 0) < 0.05);
	assert_true(low_share(&rig, 1) < 0.05);
	assert_true(rig.switches > 1000);
	rig_fini(&rig);
}

static void two_low_contexts_with_default_slices_share_alike(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_kernel(&rig, 20 * US, 2640, 1024);
	for (int i = 0; i < 2; i++)
		rig_keep_busy(&rig, rig_process(&rig, 0, 0), &work, 4);
	rig_run_until(&rig, 1000 * MS);
	rig_assert_near("share of the one", low_share(&rig, 0), low_share(&rig, 1), 2);
	assert_true(low_share(&rig, 0) + low_share(&rig, 1) > 0.88);
	rig_fini(&rig);
}

static void high_waits_for_every_low_context_before_its_turn(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_foreground(&rig);
	int high = beside_busy_low(&rig, 2000 * US);
	struct hb_gpu_model_work low = low_kernel(&rig, 20 * US);
	rig_keep_busy(&rig, rig_process(&rig, 2000 * US, 0), &low, 4);
	struct rig_latency latency = rig_measure(&rig, high, &work, 600, 3 * MS, 7 * MS);
	rig_assert_near("longest wait for two LP contexts", (double)latency.max_ns, 4700e3, 8);
	rig_fini(&rig);
}

static void several_low_programs_in_one_server_are_one_context(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context server = {.slice_ns = 1 * US, .mps = true};
	int high = rig_process(&rig, HIGH_SLICE_NS, 0);
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work work = rig_foreground(&rig), low = rig_kernel(&rig, 20 * US, 264 * 10, 1024);
	for (int i = 0; i < 2; i++)
		rig_keep_busy(&rig, rig_stream(&rig, context, 0, 0), &low, 4);
	rig_run_until(&rig, 500 * MS);
	rig_assert_near("LP's share without HP", low_share(&rig, 0), 0.495, 4);
	struct rig_latency latency = rig_measure(&rig, high, &work, 400, 3 * MS, 7 * MS);
	rig_assert_near("HP p50", (double)latency.p50_ns, 229e3, 5);
	rig_assert_near("HP p99", (double)latency.p99_ns, 241e3, 10);
	rig_assert_near("shares of the two", low_share(&rig, 0), low_share(&rig, 1), 3);
	rig_fini(&rig);
}

static void busy_contexts_take_turns_in_order(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = low_kernel(&rig, 20 * US);
	for (int i = 0; i < 3; i++) {
		work.cookie = (uint64_t)i;
		rig_submit(&rig, rig_process(&rig, 500 * US, 0), &work);
	}
	struct hb_gpu_model_switch change;
	hb_gpu_model_advance(rig.model, 30 * MS);
	int32_t expected = 1; /* the first kernel got the idle GPU without the cost of a switch */
	int seen = 0;
	for (; hb_gpu_model_pop_switch(rig.model, &change); seen++) {
		assert_int_equal(change.to_context, expected);
		assert_int_equal(change.end_ns - change.start_ns, (int64_t)rig.spec.switch_ns);
		expected = (expected + 1) % 3;
	}
	assert_true(seen > 30);
	rig_fini(&rig);
}

static struct rig_latency beside_preempted_low(enum hb_gpu_model_preempt preempt, int64_t block_ns)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context params = {.slice_ns = 1 * US, .preempt = preempt};
	int high = rig_process(&rig, HIGH_SLICE_NS, 0);
	int low = rig_stream(&rig, rig_context(&rig, &params), 0, 0);
	struct hb_gpu_model_work work = rig_foreground(&rig), busy = low_kernel(&rig, block_ns);
	rig_keep_busy(&rig, low, &busy, 4);
	rig_run_until(&rig, 50 * MS);
	struct rig_latency latency = rig_measure(&rig, high, &work, 300, 3 * MS, 7 * MS);
	rig_fini(&rig);
	return latency;
}

static void block_level_preemption_waits_for_running_blocks_only(void **state)
{
	enum hb_gpu_model_preempt block = HB_PREEMPT_BLOCK;
	rig_assert_near("5 us blocks", (double)beside_preempted_low(block, 5 * US).p50_ns, 182e3, 5);
	rig_assert_near("20 us blocks", (double)beside_preempted_low(block, 20 * US).p50_ns, 192e3, 5);
	rig_assert_near("200 us blocks", (double)beside_preempted_low(block, 200 * US).p50_ns, 278e3, 5);
}

static void wait_idle_waits_for_the_whole_kernel(void **state)
{
	struct rig_latency latency = beside_preempted_low(HB_PREEMPT_WAIT_IDLE, 20 * US);
	rig_assert_near("behind kernels of 20 ms", (double)latency.p50_ns, 15e6, 10);
}

/* HP's latency from its launch, with n_holds queued lead_ns before it and released once it is queued. */
static double held_p50_ns(unsigned n_holds, int64_t lead_ns, int64_t high_kernel_ns)
{
	struct rig rig;
	int64_t latency[200];
	rig_init(&rig);
	int high = beside_busy_low(&rig, 1 * US);
	struct hb_gpu_model_work work = rig_kernel(&rig, high_kernel_ns, 264, 512),
				 hold = {.kind = HB_GPU_MODEL_TAKEOVER};
	for (int i = 0; i < 200; i++) {
		rig_run_until(&rig, rig.now_ns + 3 * MS + i * 17 * US);
		for (unsigned n = 0; n < n_holds; n++)
			rig_submit(&rig, high, &hold);
		int64_t launch = rig.now_ns + lead_ns;
		rig_run_until(&rig, launch);
		rig_submit(&rig, high, &work);
		rig_run_until(&rig, launch + (int64_t)rig.spec.launch_latency_ns);
		hb_gpu_model_release_takeovers(rig.model, rig.now_ns, high);
		latency[i] = rig_await(&rig, high) - launch + 4900; /* as rig_launch_and_wait() counts */
	}
	double p50 = (double)rig_latency_of(latency, 200).p50_ns;
	rig_fini(&rig);
	return p50;
}

static void two_holds_hide_the_switch(void **state)
{
	double waited = held_p50_ns(2, 400 * US, 20 * US) - 28.8e3;
	assert_true(waited < 10e3);
	rig_assert_near("2 holds, 250 us ahead", held_p50_ns(2, 250 * US, 20 * US), 34.0e3, 15);
	rig_assert_near("2 holds, 400 us ahead", held_p50_ns(2, 400 * US, 20 * US), 33.2e3, 15);
	rig_assert_near("2 holds, 1000 us ahead", held_p50_ns(2, 1000 * US, 20 * US), 34.2e3, 15);
	rig_assert_near("2 holds, HP kernel of 1 ms", held_p50_ns(2, 400 * US, 1000 * US), 1019e3, 2);
}

static void lone_hold_that_runs_costs_two_switches(void **state)
{
	rig_assert_near("1 hold, 250 us ahead", held_p50_ns(1, 250 * US, 20 * US), 377e3, 8);
	/* A lead shorter than the switch is not enough: a lone hold would run and lose the GPU. */
	rig_assert_near("1 hold, 150 us ahead", held_p50_ns(1, 150 * US, 20 * US), 58.7e3, 25);
}

static void two_holds_keep_the_gpu_and_one_gives_it_away(void **state)
{
	for (unsigned n = 1; n <= 2; n++) {
		struct rig rig;
		rig_init(&rig);
		int high = beside_busy_low(&rig, 1 * US);
		struct hb_gpu_model_work hold = {.kind = HB_GPU_MODEL_TAKEOVER};
		for (unsigned i = 0; i < n; i++)
			rig_submit(&rig, high, &hold);
		rig_run_until(&rig, rig.now_ns + 1 * MS);
		int64_t low_ns = (int64_t)rig.busy[0].done;
		rig_run_until(&rig, rig.now_ns + 60 * MS);
		if (n == 1)
			assert_true((int64_t)rig.busy[0].done > low_ns);
		else
			assert_int_equal(rig.busy[0].done, low_ns);
		hb_gpu_model_release_takeovers(rig.model, rig.now_ns, high);
		rig_await(&rig, high);
		rig_run_until(&rig, rig.now_ns + 60 * MS);
		assert_true((int64_t)rig.busy[0].done > low_ns);
		rig_fini(&rig);
	}
}

static void holds_end_at_their_limit(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int high = beside_busy_low(&rig, 1 * US);
	struct hb_gpu_model_work hold = {.kind = HB_GPU_MODEL_TAKEOVER, .duration_ns = 300 * US};
	int64_t from = rig.now_ns;
	rig_submit(&rig, high, &hold);
	rig_submit(&rig, high, &hold);
	rig_assert_near("both, from their launch", (double)(rig_await(&rig, high) - from), 305e3, 1);
	rig_fini(&rig);
}

static void hold_released_before_it_runs_ends_when_it_has_the_gpu(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int high = beside_busy_low(&rig, 1 * US);
	struct hb_gpu_model_work hold = {.kind = HB_GPU_MODEL_TAKEOVER};
	int64_t from = rig.now_ns;
	rig_submit(&rig, high, &hold);
	hb_gpu_model_release_takeovers(rig.model, rig.now_ns, high);
	rig_assert_near("one switch", (double)(rig_await(&rig, high) - from), 196e3, 2);
	rig_fini(&rig);
}

/* The hold starts in the same instant in which LP gets work, while HP has been idle for longer than the yield time. */
static void released_hold_is_not_left_behind(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int high = rig_process(&rig, HIGH_SLICE_NS, 0), low = rig_process(&rig, 1 * US, 0);
	struct hb_gpu_model_work work = low_kernel(&rig, 20 * US), hold = {.kind = HB_GPU_MODEL_TAKEOVER};
	rig_launch_and_wait(&rig, high, &(struct hb_gpu_model_work){.kind = HB_GPU_MODEL_TAKEOVER, .duration_ns = US});
	rig_run_until(&rig, 5 * MS);
	int64_t from = rig.now_ns;
	rig_submit(&rig, high, &hold);
	hb_gpu_model_release_takeovers(rig.model, rig.now_ns, high);
	rig_keep_busy(&rig, low, &work, 4);
	rig_assert_near("one launch", (double)(rig_await(&rig, high) - from), 5e3, 40);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_high_takes_28_8_us),
		cmocka_unit_test(high_waits_for_the_slice_of_low_and_a_switch),
		cmocka_unit_test(tiny_slice_costs_low_nothing_while_it_is_alone),
		cmocka_unit_test(queue_that_runs_dry_for_longer_than_the_yield_time_loses_the_gpu),
		cmocka_unit_test(queue_that_runs_dry_keeps_the_gpu_while_nobody_else_wants_it),
		cmocka_unit_test(two_low_contexts_with_tiny_slices_livelock),
		cmocka_unit_test(two_low_contexts_with_default_slices_share_alike),
		cmocka_unit_test(high_waits_for_every_low_context_before_its_turn),
		cmocka_unit_test(several_low_programs_in_one_server_are_one_context),
		cmocka_unit_test(busy_contexts_take_turns_in_order),
		cmocka_unit_test(block_level_preemption_waits_for_running_blocks_only),
		cmocka_unit_test(wait_idle_waits_for_the_whole_kernel),
		cmocka_unit_test(two_holds_hide_the_switch),
		cmocka_unit_test(lone_hold_that_runs_costs_two_switches),
		cmocka_unit_test(two_holds_keep_the_gpu_and_one_gives_it_away),
		cmocka_unit_test(holds_end_at_their_limit),
		cmocka_unit_test(hold_released_before_it_runs_ends_when_it_has_the_gpu),
		cmocka_unit_test(released_hold_is_not_left_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
