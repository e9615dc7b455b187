/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the copy engines of the GPU model with measurements of an H200: HP
 * copies 600 KB every 2 to 5 ms (alone: 19.7 us) while LP copies 16 MB pieces
 * without pause, 4 queued (alone: 54.9 GB/s).
 */
#include "model_rig.h"

#include <errno.h>
#include <stdio.h>

#define PIECE (UINT64_C(16) << 20)
#define REQUEST 602112

static double low_gb_per_s(const struct rig *rig, uint32_t index)
{
	const struct rig_busy *busy = &rig->busy[index];
	return (double)busy->done * (double)busy->work.bytes / (double)rig->now_ns;
}

static struct rig_latency beside_copying(struct rig *rig, int n_low, int64_t slice_ns, uint64_t piece, uint32_t depth,
					 uint64_t request)
{
	rig_init(rig);
	struct hb_gpu_model_work work = rig_copy(piece), mine = rig_copy(request);
	int high = rig_process(rig, 0, 0);
	for (int i = 0; i < n_low; i++)
		rig_keep_busy(rig, rig_process(rig, 0, slice_ns), &work, depth);
	rig_run_until(rig, 100 * MS);
	struct rig_latency latency = rig_measure(rig, high, &mine, 500, 2 * MS, 5 * MS);
	rig_fini(rig);
	return latency;
}

static void copy_alone_takes_19_7_us(void **state)
{
	struct rig rig;
	rig_assert_near("600 KB", (double)beside_copying(&rig, 0, 0, 0, 0, REQUEST).p50_ns, 19.7e3, 2);
	rig_assert_near("8 MB", (double)beside_copying(&rig, 0, 0, 0, 0, 8 << 20).p50_ns, 160e3, 3);
}

static void slice_of_the_copying_process_bounds_the_wait(void **state)
{
	static const struct {
		int64_t slice_us;
		double p50_us, p99_us;
	} rows[] = {{0, 560, 1072}, {500, 270, 542}, {100, 86, 136}, {20, 45, 56}, {1, 34.9, 43.7}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig rig;
		struct rig_latency latency = beside_copying(&rig, 1, rows[i].slice_us * US, PIECE, 4, REQUEST);
		char what[64];
		snprintf(what, sizeof what, "HP's copy beside slices of %d us", (int)rows[i].slice_us);
		rig_assert_near(what, (double)latency.p50_ns, rows[i].p50_us * 1e3, 6);
		/* The jitter of real hosts adds to the p99 of short copies; the model has no jitter. */
		rig_assert_near(what, (double)latency.p99_ns, rows[i].p99_us * 1e3, 18);
		rig_assert_near("LP's bandwidth", low_gb_per_s(&rig, 0), 54.9, 1);
	}
}

static void large_copy_beside_a_tiny_slice_is_hardly_slower(void **state)
{
	struct rig rig;
	struct rig_latency latency = beside_copying(&rig, 1, 1 * US, PIECE, 4, 8 << 20);
	rig_assert_near("8 MB", (double)latency.p50_ns, 175e3, 5);
	rig_assert_near("LP's bandwidth", low_gb_per_s(&rig, 0), 53.2, 2);
}

static void pieces_one_at_a_time_let_others_in_and_cost_bandwidth(void **state)
{
	struct rig rig;
	struct rig_latency latency = beside_copying(&rig, 1, 0, 1 << 20, 1, REQUEST);
	rig_assert_near("HP p50", (double)latency.p50_ns, 36.5e3, 15);
	rig_assert_near("HP p99", (double)latency.p99_ns, 50e3, 15);
	rig_assert_near("LP's bandwidth", low_gb_per_s(&rig, 0), 39.8, 5);
}

static void two_copying_processes_pay_for_tiny_slices(void **state)
{
	static const struct {
		int64_t slice_us;
		double gb_per_s, p99_us;
	} rows[] = {{1, 40.6, 52}, {20, 50.8, 88}, {100, 54.5, 249}, {0, 54.8, 2128}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct rig rig;
		struct rig_latency latency = beside_copying(&rig, 2, rows[i].slice_us * US, PIECE, 4, REQUEST);
		rig_assert_near("both together", low_gb_per_s(&rig, 0) + low_gb_per_s(&rig, 1), rows[i].gb_per_s, 4);
		rig_assert_near("the same share each", low_gb_per_s(&rig, 0), low_gb_per_s(&rig, 1), 1);
		/* Measured with two HP processes; the rig of the model has one. */
		rig_assert_near("HP p99", (double)latency.p99_ns, rows[i].p99_us * 1e3, 25);
	}
}

static void slice_is_the_weight_of_a_process(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_copy(PIECE);
	rig_keep_busy(&rig, rig_process(&rig, 0, 100 * US), &work, 4);
	rig_keep_busy(&rig, rig_process(&rig, 0, 300 * US), &work, 4);
	rig_run_until(&rig, 1000 * MS);
	rig_assert_near("weights 1:3", low_gb_per_s(&rig, 1) / low_gb_per_s(&rig, 0), 3, 3);
	rig_fini(&rig);
}

/* Clients of an MPS server have copy groups, and so copy slices, of their own. */
static void clients_of_one_context_have_copy_slices_of_their_own(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work work = rig_copy(PIECE), mine = rig_copy(REQUEST);
	struct hb_gpu_model_context mps = {.mps = true};
	int context = rig_context(&rig, &mps), clients[3], streams[3];
	for (int i = 0; i < 3; i++) {
		clients[i] = hb_gpu_model_add_client(rig.model, context, 0);
		streams[i] = hb_gpu_model_add_stream(rig.model, clients[i], 0);
	}
	assert_int_equal(hb_gpu_model_set_copy_slice(rig.model, clients[1], 100 * US), 0);
	assert_int_equal(hb_gpu_model_set_copy_slice(rig.model, clients[2], 300 * US), 0);
	rig_keep_busy(&rig, streams[1], &work, 4);
	rig_keep_busy(&rig, streams[2], &work, 4);
	rig_run_until(&rig, 1000 * MS);
	rig_assert_near("weights 1:3", low_gb_per_s(&rig, 1) / low_gb_per_s(&rig, 0), 3, 3);
	struct rig_latency latency = rig_measure(&rig, streams[0], &mine, 500, 2 * MS, 5 * MS);
	assert_true(latency.p99_ns <
		    450 * US); /* both slices; with the default of 1024 us it would wait for two of those */
	assert_int_equal(hb_gpu_model_set_copy_slice(rig.model, clients[2], -1), -EINVAL);
	assert_int_equal(hb_gpu_model_set_copy_slice(rig.model, 99, 0), -EINVAL);
	rig_fini(&rig);
}

static void directions_do_not_disturb_each_other(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work down = rig_copy(PIECE), up = rig_copy(REQUEST);
	down.kind = HB_GPU_MODEL_COPY_D2H;
	rig_keep_busy(&rig, rig_process(&rig, 0, 0), &down, 4);
	int high = rig_process(&rig, 0, 0);
	rig_run_until(&rig, 10 * MS);
	rig_assert_near("HP's copy", (double)rig_launch_and_wait(&rig, high, &up), 19.7e3, 2);
	rig_fini(&rig);
}

static void copies_need_no_turn_of_the_compute_engine(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_work kernel = rig_kernel(&rig, 20 * US, 264000, 1024), copy = rig_copy(REQUEST);
	rig_keep_busy(&rig, rig_process(&rig, 0, 0), &kernel, 4);
	int high = rig_process(&rig, 0, 0);
	rig_run_until(&rig, 10 * MS);
	rig_assert_near("HP's copy beside kernels", (double)rig_launch_and_wait(&rig, high, &copy), 19.7e3, 2);
	assert_int_equal(rig.switches, 0);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_alone_takes_19_7_us),
		cmocka_unit_test(slice_of_the_copying_process_bounds_the_wait),
		cmocka_unit_test(large_copy_beside_a_tiny_slice_is_hardly_slower),
		cmocka_unit_test(pieces_one_at_a_time_let_others_in_and_cost_bandwidth),
		cmocka_unit_test(two_copying_processes_pay_for_tiny_slices),
		cmocka_unit_test(slice_is_the_weight_of_a_process),
		cmocka_unit_test(clients_of_one_context_have_copy_slices_of_their_own),
		cmocka_unit_test(directions_do_not_disturb_each_other),
		cmocka_unit_test(copies_need_no_turn_of_the_compute_engine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
