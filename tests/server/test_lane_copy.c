/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between requests and a worker's lane: large data are copied on the thread, so that the caller, which has the
 * dispatcher's lock, does not wait for it.
 */
#include "server/backends/lane_copy.h"
#include "server/backends/worker_outputs.h"
#include "server/kserve/inference.h"
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FLOATS (1 << 19)
#define BYTES (FLOATS * sizeof(float))

struct rig {
	struct hb_model_config config;
	struct hb_worker_memory memory;
	struct hb_inference *infer[2];
	struct hb_scheduler_batch batch;
	struct hb_lane_copy copy;
	struct hb_job_thread *thread;
	struct hb_job blocker;
	sem_t go;
	float *data[2];
};

static void block_thread(void *go)
{
	while (sem_wait(go) != 0)
		assert_int_equal(errno, EINTR);
}

static int set_up(void **state)
{
	struct hb_error error;
	struct rig *rig = *state = calloc(1, sizeof(*rig));
	struct hb_tensor_spec spec = {.name = "x", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {FLOATS}};
	rig->config.max_batch = 2;
	rig->config.n_inputs = rig->config.n_outputs = 1;
	rig->config.inputs[0] = rig->config.outputs[0] = spec;
	assert_int_equal(hb_worker_memory_init(&rig->config, &rig->memory, &error), 0);
	for (int i = 0; i < 2; i++) {
		struct hb_inference *infer = rig->infer[i] = hb_inference_new();
		rig->data[i] = malloc(BYTES);
		for (uint32_t k = 0; k < FLOATS; k++)
			rig->data[i][k] = (float)(k + (uint32_t)i);
		infer->n_inputs = infer->items = 1;
		infer->inputs[0] = (struct hb_tensor){.name = "x",
						      .dtype = HB_DTYPE_FP32,
						      .n_dims = 2,
						      .dims = {1, FLOATS},
						      .data = rig->data[i],
						      .bytes = BYTES};
		rig->batch.cookies[i] = (uintptr_t)infer;
	}
	rig->batch.n_requests = rig->batch.items = 2;
	rig->thread = hb_job_thread_new();
	sem_init(&rig->go, 0, 0);
	rig->blocker = (struct hb_job){.run = block_thread, .owner = &rig->go};
	hb_lane_copy_init(&rig->copy, &rig->config, &rig->memory, 1, eventfd(0, EFD_CLOEXEC));
	return rig->thread ? 0 : -1;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;
	hb_job_thread_free(rig->thread);
	for (int i = 0; i < 2; i++) {
		hb_inference_free(rig->infer[i]);
		free(rig->data[i]);
	}
	hb_worker_memory_fini(&rig->memory);
	close(rig->copy.doorbell);
	sem_destroy(&rig->go);
	free(rig);
	return 0;
}

/* Begins a copy while the thread is busy, and lets the thread continue only after hb_lane_copy_begin() has returned. */
static void copy_behind_a_busy_thread(struct rig *rig)
{
	eventfd_t value;
	hb_job_thread_submit(rig->thread, &rig->blocker);
	hb_lane_copy_begin(&rig->copy, &rig->batch, rig->thread);
	assert_false(atomic_load(&rig->copy.done));
	sem_post(&rig->go);
	assert_int_equal(eventfd_read(rig->copy.doorbell, &value), 0);
	assert_true(atomic_load(&rig->copy.done));
}

static void large_inputs_and_outputs_are_copied_on_the_thread(void **state)
{
	struct rig *rig = *state;
	struct hb_worker_lane *lane = hb_worker_memory_lane(&rig->memory, 1);
	const char *in = (char *)lane + rig->memory.in_offset;
	assert_int_equal(hb_lane_copy_place_inputs(&rig->copy, &rig->batch), 1);
	copy_behind_a_busy_thread(rig);
	assert_int_equal(lane->inputs[0].bytes, 2 * BYTES);
	assert_int_equal(lane->inputs[0].dims[0], 2);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(in + (size_t)i * BYTES, rig->data[i], BYTES);

	/* The worker answers with its inputs. While they are copied, it changes the places, which has no effect. */
	memcpy((char *)lane + rig->memory.out_offset, in, 2 * BYTES);
	lane->outputs[0] = lane->inputs[0];
	assert_int_equal(hb_lane_copy_place_outputs(&rig->copy, 2), 1);
	lane->outputs[0].bytes = lane->outputs[0].offset = UINT64_MAX;
	copy_behind_a_busy_thread(rig);
	hb_lane_copy_note_failures(&rig->copy);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig->infer[i]->answer, HB_ANSWER_OK);
		assert_int_equal(rig->infer[i]->outputs[0].bytes, BYTES);
		assert_memory_equal(rig->infer[i]->outputs[0].data, rig->data[i], BYTES);
	}
}

static void a_request_that_was_answered_early_keeps_its_answer(void **state)
{
	struct rig *rig = *state;
	struct hb_worker_lane *lane = hb_worker_memory_lane(&rig->memory, 1);
	lane->outputs[0] = (struct hb_worker_tensor){.bytes = 2 * BYTES, .n_dims = 2, .dims = {2, FLOATS}};
	lane->dropped = 3;
	assert_int_equal(hb_lane_copy_place_outputs(&rig->copy, 2), 1);
	hb_inference_fail(rig->infer[0], HB_ANSWER_TIMEOUT, "time-out");
	rig->infer[0]->answered = true;
	copy_behind_a_busy_thread(rig);
	hb_lane_copy_note_failures(&rig->copy);
	assert_int_equal(rig->infer[0]->answer, HB_ANSWER_TIMEOUT);
	assert_int_equal(rig->infer[1]->answer, HB_ANSWER_BROKEN);
}

static void outputs_that_exceed_the_memory_for_requests_are_refused(void **state)
{
	struct rig *rig = *state;
	struct hb_worker_lane *lane = hb_worker_memory_lane(&rig->memory, 1);
	struct hb_memory_budget budget = {.limit_bytes = BYTES + BYTES / 2};
	rig->infer[0]->charge.budget = rig->infer[1]->charge.budget = &budget;
	lane->outputs[0] = (struct hb_worker_tensor){.bytes = 2 * BYTES, .n_dims = 2, .dims = {2, FLOATS}};
	assert_int_equal(hb_lane_copy_place_outputs(&rig->copy, 2), 1);
	copy_behind_a_busy_thread(rig);
	hb_lane_copy_note_failures(&rig->copy);
	assert_int_equal(rig->infer[0]->answer, HB_ANSWER_OK);
	assert_int_equal(rig->infer[1]->answer, HB_ANSWER_MEMORY_FULL);
	assert_true(budget.used_bytes >= BYTES);
	assert_true(budget.used_bytes <= budget.limit_bytes);
	for (int i = 0; i < 2; i++) {
		hb_inference_free(rig->infer[i]);
		rig->infer[i] = NULL;
	}
	assert_int_equal(budget.used_bytes, 0);
}

static void small_inputs_are_copied_at_once(void **state)
{
	struct rig *rig = *state;
	struct pollfd doorbell = {.fd = rig->copy.doorbell, .events = POLLIN};
	rig->batch.n_requests = rig->batch.items = 1;
	rig->infer[0]->inputs[0].bytes = sizeof(float);
	assert_int_equal(hb_lane_copy_place_inputs(&rig->copy, &rig->batch), 1);
	hb_job_thread_submit(rig->thread, &rig->blocker);
	hb_lane_copy_begin(&rig->copy, &rig->batch, rig->thread);
	assert_true(atomic_load(&rig->copy.done));
	sem_post(&rig->go);
	assert_int_equal(poll(&doorbell, 1, 0), 0);
}

static void an_input_without_room_is_named(void **state)
{
	struct rig *rig = *state;
	rig->infer[1]->inputs[0].bytes = BYTES + 1;
	assert_int_equal(hb_lane_copy_place_inputs(&rig->copy, &rig->batch), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(large_inputs_and_outputs_are_copied_on_the_thread, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_request_that_was_answered_early_keeps_its_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(outputs_that_exceed_the_memory_for_requests_are_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(small_inputs_are_copied_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_input_without_room_is_named, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
