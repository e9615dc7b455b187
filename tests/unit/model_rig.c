/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the two-process probe on the GPU model; see model_rig.h. */
#include "model_rig.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Launch and synchronize of an empty kernel take 8.2 us: the part of it that neither the call nor the return takes. */
#define EMPTY_KERNEL_NS 2700
#define BUSY_COOKIE (UINT64_C(1) << 32)

void rig_init(struct rig *rig)
{
	struct hb_error error = {""};
	*rig = (struct rig){0};
	if (hb_gpu_spec_load(GPUS "/h200.yaml", &rig->spec, &error))
		fail_msg("%s", error.text);
	rig->model = hb_gpu_model_new(&rig->spec);
	assert_non_null(rig->model);
}

void rig_fini(struct rig *rig)
{
	hb_gpu_model_free(rig->model);
	rig->model = NULL;
}

int rig_context(struct rig *rig, const struct hb_gpu_model_context *params)
{
	int context = hb_gpu_model_add_context(rig->model, params);
	assert_true(context >= 0);
	return context;
}

int rig_stream(struct rig *rig, int context, uint32_t sm_limit, int priority)
{
	int client = hb_gpu_model_add_client(rig->model, context, sm_limit);
	assert_true(client >= 0);
	int stream = hb_gpu_model_add_stream(rig->model, client, priority);
	assert_true(stream >= 0);
	return stream;
}

int rig_process(struct rig *rig, int64_t slice_ns, int64_t copy_slice_ns)
{
	struct hb_gpu_model_context params = {.slice_ns = slice_ns, .copy_slice_ns = copy_slice_ns};
	return rig_stream(rig, rig_context(rig, &params), 0, 0);
}

static void refill_queues(struct rig *rig, uint32_t index)
{
	struct rig_busy *busy = &rig->busy[index];
	struct hb_gpu_model_work work = busy->work;
	work.cookie = BUSY_COOKIE | index;
	while (hb_gpu_model_pending(rig->model, busy->stream) < busy->depth)
		assert_int_equal(hb_gpu_model_submit(rig->model, rig->now_ns, busy->stream, &work), 0);
}

struct rig_busy *rig_keep_busy(struct rig *rig, int stream, const struct hb_gpu_model_work *work, uint32_t depth)
{
	uint32_t index = rig->n_busy++;
	assert_true(index < RIG_BUSY_MAX);
	rig->busy[index] = (struct rig_busy){.work = *work, .stream = stream, .depth = depth};
	refill_queues(rig, index);
	return &rig->busy[index];
}

static void take_completions(struct rig *rig)
{
	struct hb_gpu_model_completion done;
	struct hb_gpu_model_switch change;
	while (hb_gpu_model_pop(rig->model, &done)) {
		if (!(done.cookie & BUSY_COOKIE)) {
			rig->last = done;
			rig->finished++;
			continue;
		}
		uint32_t index = (uint32_t)(done.cookie & ~BUSY_COOKIE);
		rig->busy[index].done++;
		rig->busy[index].ran_ns += done.end_ns - done.start_ns;
		refill_queues(rig, index);
	}
	while (hb_gpu_model_pop_switch(rig->model, &change))
		rig->switches++;
}

/* Advances to the next event of the model, if one is due by at_ns. */
static bool advance_to_next(struct rig *rig, int64_t at_ns)
{
	int64_t next = hb_gpu_model_next_ns(rig->model);
	if (next > at_ns)
		return false;
	rig->now_ns = next > rig->now_ns ? next : rig->now_ns;
	hb_gpu_model_advance(rig->model, rig->now_ns);
	take_completions(rig);
	return true;
}

void rig_run_until(struct rig *rig, int64_t at_ns)
{
	while (advance_to_next(rig, at_ns))
		;
	if (at_ns > rig->now_ns)
		rig->now_ns = at_ns;
	hb_gpu_model_advance(rig->model, rig->now_ns);
}

void rig_submit(struct rig *rig, int stream, const struct hb_gpu_model_work *work)
{
	assert_int_equal(hb_gpu_model_submit(rig->model, rig->now_ns, stream, work), 0);
}

int64_t rig_await(struct rig *rig, int stream)
{
	int64_t until_ns = rig->now_ns + 10000 * MS;
	while (hb_gpu_model_pending(rig->model, stream))
		if (!advance_to_next(rig, until_ns))
			fail_msg("stream %d still has %zu submissions after 10 s", stream,
				 hb_gpu_model_pending(rig->model, stream));
	return rig->now_ns;
}

int64_t rig_launch_and_wait(struct rig *rig, int stream, const struct hb_gpu_model_work *work)
{
	int64_t from = rig->now_ns;
	bool copy = work->kind == HB_GPU_MODEL_COPY_H2D || work->kind == HB_GPU_MODEL_COPY_D2H;
	rig_submit(rig, stream, work);
	return rig_await(rig, stream) - from + (copy ? 0 : EMPTY_KERNEL_NS) + (int64_t)rig->spec.sync_latency_ns;
}

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return (left > right) - (left < right);
}

struct rig_latency rig_latency_of(int64_t *latency_ns, size_t n)
{
	qsort(latency_ns, n, sizeof *latency_ns, by_value);
	return (struct rig_latency){.p50_ns = latency_ns[n / 2],
				    .p90_ns = latency_ns[n * 9 / 10],
				    .p99_ns = latency_ns[n * 99 / 100],
				    .max_ns = latency_ns[n - 1]};
}

struct rig_latency rig_measure(struct rig *rig, int stream, const struct hb_gpu_model_work *work, unsigned n,
			       int64_t low_ns, int64_t high_ns)
{
	struct hb_rng rng;
	int64_t *latency_ns = calloc(n, sizeof *latency_ns);
	assert_non_null(latency_ns);
	hb_rng_init(&rng, 1, 1);
	for (unsigned i = 0; i < n; i++) {
		int64_t pause = low_ns + (int64_t)hb_rng_below(&rng, (uint64_t)(high_ns - low_ns) + 1);
		rig_run_until(rig, rig->now_ns + pause);
		latency_ns[i] = rig_launch_and_wait(rig, stream, work);
	}
	struct rig_latency result = rig_latency_of(latency_ns, n);
	free(latency_ns);
	return result;
}

struct hb_gpu_model_work rig_kernel(const struct rig *rig, int64_t block_ns, uint64_t blocks, uint32_t threads)
{
	struct hb_gpu_model_work work = {.kind = HB_GPU_MODEL_KERNEL, .blocks = blocks, .threads = threads};
	uint64_t wave = (uint64_t)hb_gpu_model_occupancy(&rig->spec, &work) * (uint64_t)rig->spec.sm_count;
	work.duration_ns = block_ns * (int64_t)((blocks + wave - 1) / wave);
	return work;
}

struct hb_gpu_model_work rig_copy(uint64_t bytes)
{
	return (struct hb_gpu_model_work){.kind = HB_GPU_MODEL_COPY_H2D, .bytes = bytes};
}

struct hb_gpu_model_work rig_foreground(const struct rig *rig)
{
	return rig_kernel(rig, 20 * US, 264, 512);
}

void rig_assert_near(const char *what, double value, double measured, double percent)
{
	if (fabs(value - measured) > measured * percent / 100)
		fail_msg("%s: model %.4g, measured %.4g (tolerance %g %%)", what, value, measured, percent);
}
