/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what callers of the GPU model rely on besides its numbers: every object
 * can be removed at any moment, bad calls are refused, the same calls give the same
 * completions however time is advanced, and a long run allocates nothing. These
 * tests are also useful under the address sanitizer.
 */
#include "counted_malloc.h"
#include "model_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Two processes of two streams each, with all kinds of work queued. Each test removes something at some moment. */
struct scene {
	struct rig rig;
	int context[2], client[2], stream[2][2];
};

static void scene_init(struct scene *scene, enum hb_gpu_model_preempt preempt)
{
	struct rig *rig = &scene->rig;
	rig_init(rig);
	for (int i = 0; i < 2; i++) {
		struct hb_gpu_model_context params = {
			.slice_ns = 200 * US, .copy_slice_ns = 50 * US, .preempt = preempt};
		params.mps = i;
		scene->context[i] = rig_context(rig, &params);
		scene->client[i] = hb_gpu_model_add_client(rig->model, scene->context[i], 0);
		for (int j = 0; j < 2; j++)
			scene->stream[i][j] = hb_gpu_model_add_stream(rig->model, scene->client[i], -j);
		struct hb_gpu_model_work kernel = rig_kernel(rig, 30 * US, 264 * 20, 1024), copy = rig_copy(3 << 20);
		struct hb_gpu_model_work hold = {.kind = HB_GPU_MODEL_TAKEOVER},
					 small = rig_kernel(rig, 3 * US, 10, 64);
		kernel.block_spread = 0.1;
		for (int n = 0; n < 20; n++) {
			rig_submit(rig, scene->stream[i][0], n % 5 == 4 ? &copy : n % 5 == 2 ? &small : &kernel);
			rig_submit(rig, scene->stream[i][1], n % 7 == 5 ? &hold : &kernel);
		}
	}
}

/* All work that was not removed continues and ends. */
static void finish_scene(struct scene *scene, int removed_context)
{
	struct rig *rig = &scene->rig;
	for (int round = 0; round < 100; round++) {
		rig_run_until(rig, rig->now_ns + 10 * MS);
		for (int i = 0; i < 2; i++)
			for (int j = 0; j < 2; j++)
				hb_gpu_model_release_takeovers(rig->model, rig->now_ns, scene->stream[i][j]);
	}
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			assert_int_equal(hb_gpu_model_pending(rig->model, scene->stream[i][j]), 0);
	if (removed_context >= 0) {
		struct hb_gpu_model_context params = {0};
		assert_int_equal(hb_gpu_model_add_context(rig->model, &params), scene->context[removed_context]);
	}
	rig_fini(rig);
}

static const enum hb_gpu_model_preempt preempts[] = {HB_PREEMPT_INSTRUCTION, HB_PREEMPT_BLOCK, HB_PREEMPT_WAIT_IDLE};

/* Steps of 37 us through the first 8 ms meet every state: running, switching, draining, between kernels, holding, copying. */
static void contexts_are_removed_in_any_state(void **state)
{
	for (size_t p = 0; p < 3; p++)
		for (int64_t at_ns = 0; at_ns < 8 * MS; at_ns += 37 * US) {
			struct scene scene;
			scene_init(&scene, preempts[p]);
			int which = (int)(at_ns / (37 * US) % 2);
			rig_run_until(&scene.rig, at_ns);
			hb_gpu_model_remove_context(scene.rig.model, at_ns, scene.context[which]);
			hb_gpu_model_remove_context(scene.rig.model, at_ns, scene.context[which]);
			finish_scene(&scene, which);
		}
}

static void clients_are_removed_in_any_state(void **state)
{
	for (size_t p = 0; p < 3; p++)
		for (int64_t at_ns = 11 * US; at_ns < 8 * MS; at_ns += 83 * US) {
			struct scene scene;
			scene_init(&scene, preempts[p]);
			rig_run_until(&scene.rig, at_ns);
			hb_gpu_model_remove_client(scene.rig.model, at_ns, scene.client[at_ns / (83 * US) % 2]);
			finish_scene(&scene, -1);
		}
}

static void streams_are_removed_in_any_state(void **state)
{
	for (size_t p = 0; p < 3; p++)
		for (int64_t at_ns = 7 * US; at_ns < 8 * MS; at_ns += 83 * US) {
			struct scene scene;
			scene_init(&scene, preempts[p]);
			rig_run_until(&scene.rig, at_ns);
			int which = (int)(at_ns / (83 * US) % 4);
			hb_gpu_model_remove_stream(scene.rig.model, at_ns, scene.stream[which / 2][which % 2]);
			finish_scene(&scene, -1);
		}
}

static void everything_is_freed_in_any_state(void **state)
{
	for (int64_t at_ns = 0; at_ns < 8 * MS; at_ns += 91 * US) {
		struct scene scene;
		long blocks = hb_test_blocks;
		scene_init(&scene, preempts[at_ns / (91 * US) % 3]);
		rig_run_until(&scene.rig, at_ns);
		assert_true(hb_test_blocks > blocks);
		rig_fini(&scene.rig);
		assert_int_equal(hb_test_blocks, blocks);
	}
	hb_gpu_model_free(NULL);
}

static void others_get_the_gpu_of_a_removed_context(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model_context params = {0};
	int context = rig_context(&rig, &params);
	int first = rig_stream(&rig, context, 0, 0), second = rig_process(&rig, 0, 0);
	struct hb_gpu_model_work work = rig_kernel(&rig, 20 * US, 264 * 1000, 1024), mine = rig_foreground(&rig);
	rig_submit(&rig, first, &work);
	rig_run_until(&rig, 1 * MS);
	hb_gpu_model_remove_context(rig.model, rig.now_ns, context);
	assert_true(rig_launch_and_wait(&rig, second, &mine) < 230 * US);
	rig_fini(&rig);
}

static void removed_ids_are_given_out_again_without_their_past(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int stream = rig_process(&rig, 0, 0);
	struct hb_gpu_model_work work = rig_kernel(&rig, 20 * US, 2640, 1024), copy = rig_copy(1 << 20);
	work.cookie = copy.cookie = 1;
	for (int round = 0; round < 50; round++) {
		rig_submit(&rig, stream, round % 2 ? &work : &copy);
		rig_submit(&rig, stream, &work);
		rig_run_until(&rig, rig.now_ns + (int64_t)round * US);
		hb_gpu_model_remove_context(rig.model, rig.now_ns, 0);
		assert_int_equal(rig_process(&rig, 0, 0), stream);
		rig.finished = 0;
		rig_run_until(&rig, rig.now_ns + 1 * MS);
		assert_int_equal(rig.finished, 0);
	}
	rig_fini(&rig);
}

static void bad_calls_are_refused(void **state)
{
	struct rig rig;
	rig_init(&rig);
	struct hb_gpu_model *model = rig.model;
	int stream = rig_process(&rig, 0, 0);
	struct hb_gpu_model_context bad_slice = {.slice_ns = -1}, bad_copy = {.copy_slice_ns = -1};
	assert_int_equal(hb_gpu_model_add_context(model, &bad_slice), -EINVAL);
	assert_int_equal(hb_gpu_model_add_context(model, &bad_copy), -EINVAL);
	assert_int_equal(hb_gpu_model_add_client(model, 9, 0), -EINVAL);
	assert_int_equal(hb_gpu_model_add_stream(model, -1, 0), -EINVAL);
	assert_int_equal(hb_gpu_model_set_slice(model, 0, -1, 0), -EINVAL);
	assert_int_equal(hb_gpu_model_set_slice(model, 7, 0, 0), -EINVAL);
	struct hb_gpu_model_work good = rig_foreground(&rig), work = good;
	assert_int_equal(hb_gpu_model_submit(model, 0, 17, &good), -EINVAL);
	work.duration_ns = 0;
	assert_int_equal(hb_gpu_model_submit(model, 0, stream, &work), -EINVAL);
	work = good;
	work.blocks = 0;
	assert_int_equal(hb_gpu_model_submit(model, 0, stream, &work), -EINVAL);
	work = good;
	work.threads = 0;
	assert_int_equal(hb_gpu_model_submit(model, 0, stream, &work), -EINVAL);
	work.threads = 4096;
	assert_int_equal(hb_gpu_model_submit(model, 0, stream, &work), -EINVAL);
	struct hb_gpu_model_work hold = {.kind = HB_GPU_MODEL_TAKEOVER};
	assert_int_equal(hb_gpu_model_submit_graph(model, 0, stream, &hold, 1, 0), -EINVAL);
	assert_int_equal(hb_gpu_model_submit_graph(model, 0, stream, &good, 0, 0), -EINVAL);
	hb_gpu_model_advance(model, 1 * MS);
	assert_int_equal(hb_gpu_model_submit(model, 999 * US, stream, &good), -EINVAL);
	assert_int_equal(hb_gpu_model_pending(model, stream), 0);
	assert_int_equal(hb_gpu_model_pending(model, 17), 0);
	hb_gpu_model_remove_stream(model, 1 * MS, 17);
	hb_gpu_model_remove_client(model, 1 * MS, -3);
	hb_gpu_model_remove_context(model, 1 * MS, 5);
	hb_gpu_model_release_takeovers(model, 1 * MS, 17);
	assert_int_equal(hb_gpu_model_next_ns(model), INT64_MAX);
	rig_fini(&rig);
}

static void a_million_submissions_need_no_more_memory_than_a_thousand(void **state)
{
	struct rig rig;
	struct hb_gpu_model_context server = {.mps = true};
	rig_init(&rig);
	int context = rig_context(&rig, &server);
	struct hb_gpu_model_work big = rig_kernel(&rig, 20 * US, 2640, 1024), small = rig_kernel(&rig, 2 * US, 30, 128);
	struct hb_gpu_model_work copy = rig_copy(4096);
	big.block_spread = 0.1;
	rig_keep_busy(&rig, rig_stream(&rig, context, 0, 0), &big, 4);
	rig_keep_busy(&rig, rig_stream(&rig, context, 0, -5), &small, 64);
	rig_keep_busy(&rig, rig_process(&rig, 0, 0), &small, 64);
	rig_keep_busy(&rig, rig_process(&rig, 0, 0), &copy, 8);
	rig_run_until(&rig, 200 * MS);
	uint64_t before = hb_test_allocations, ended = 0;
	while (ended < 1000000) {
		rig_run_until(&rig, rig.now_ns + 100 * MS);
		ended = 0;
		for (uint32_t i = 0; i < rig.n_busy; i++)
			ended += rig.busy[i].done;
	}
	assert_int_equal(hb_test_allocations, before);
	rig_fini(&rig);
}

static void busy_time_counts_kernels_and_not_switches(void **state)
{
	struct rig rig;
	rig_init(&rig);
	int one = rig_process(&rig, 0, 0), other = rig_process(&rig, 0, 0);
	struct hb_gpu_model_work work = rig_foreground(&rig), copy = rig_copy(1 << 20);
	rig_submit(&rig, one, &work);
	rig_run_until(&rig, 1 * MS);
	assert_int_equal(hb_gpu_model_busy_ns(rig.model), 20 * US);
	rig_submit(&rig, other, &work);
	rig_submit(&rig, one, &copy);
	rig_run_until(&rig, 2 * MS);
	assert_int_equal(rig.switches, 1);
	assert_int_equal(hb_gpu_model_busy_ns(rig.model), 40 * US);
	assert_int_equal(hb_gpu_model_context_busy_ns(rig.model, 0), 20 * US);
	assert_int_equal(hb_gpu_model_context_busy_ns(rig.model, 1), 20 * US);
	assert_int_equal(hb_gpu_model_context_busy_ns(rig.model, 2), 0);
	rig_submit(&rig, other, &work);
	rig_run_until(&rig, 3 * MS);
	assert_int_equal(hb_gpu_model_context_busy_ns(rig.model, 0), 20 * US);
	assert_int_equal(hb_gpu_model_context_busy_ns(rig.model, 1), 40 * US);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_removed_in_any_state),
		cmocka_unit_test(clients_are_removed_in_any_state),
		cmocka_unit_test(streams_are_removed_in_any_state),
		cmocka_unit_test(everything_is_freed_in_any_state),
		cmocka_unit_test(others_get_the_gpu_of_a_removed_context),
		cmocka_unit_test(removed_ids_are_given_out_again_without_their_past),
		cmocka_unit_test(bad_calls_are_refused),
		cmocka_unit_test(a_million_submissions_need_no_more_memory_than_a_thousand),
		cmocka_unit_test(busy_time_counts_kernels_and_not_switches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
