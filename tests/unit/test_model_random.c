/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs random programs on the GPU model. The result must not depend on how time is
 * advanced, work must end in the order of its stream, and all work that can end must
 * end. A failure prints its seed.
 */
#include "model_rig.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 60
#define STEPS 120
#define STREAMS 6
#define PIECES 12

struct log {
	struct hb_gpu_model_completion done[STEPS * 2];
	size_t n;
	int64_t busy_ns;
};

static struct hb_gpu_model_work random_kernel(struct hb_rng *rng)
{
	static const uint32_t threads[] = {32, 96, 128, 256, 512, 1024};
	struct hb_gpu_model_work work = {
		.kind = HB_GPU_MODEL_KERNEL,
		.duration_ns = 500 + (int64_t)hb_rng_below(rng, hb_rng_below(rng, 4) ? 60000 : 900000),
		.blocks = 1 + hb_rng_below(rng, hb_rng_below(rng, 3) ? 400 : 20000),
		.threads = threads[hb_rng_below(rng, 6)],
		.registers = (uint32_t)hb_rng_below(rng, 200),
		.shared_bytes = (uint32_t)hb_rng_below(rng, 3) * 40000,
		.memory_share = hb_rng_double(rng),
		.power_share = (double)hb_rng_below(rng, 2),
		.block_spread = hb_rng_below(rng, 2) ? 0.1 : 0,
		.sm_limit = hb_rng_below(rng, 4) ? 0 : 1 + (uint32_t)hb_rng_below(rng, 132),
	};
	if (hb_rng_below(rng, 5) == 0) {
		work.cluster = 1u << hb_rng_below(rng, 5);
		work.blocks = (work.blocks + work.cluster - 1) / work.cluster * work.cluster;
	}
	return work;
}

static struct hb_gpu_model_work random_work(struct hb_rng *rng, uint64_t cookie)
{
	struct hb_gpu_model_work work = random_kernel(rng);
	uint64_t kind = hb_rng_below(rng, 8);
	if (kind < 2) {
		work = rig_copy(hb_rng_below(rng, 4 << 20));
		work.kind = kind ? HB_GPU_MODEL_COPY_H2D : HB_GPU_MODEL_COPY_D2H;
	} else if (kind == 2) {
		work = (struct hb_gpu_model_work){.kind = HB_GPU_MODEL_TAKEOVER, .duration_ns = 200 * US};
	}
	work.cookie = cookie;
	return work;
}

static void open_streams(struct rig *rig, struct hb_rng *rng, int stream[STREAMS])
{
	for (int i = 0; i < STREAMS;) {
		struct hb_gpu_model_context params = {
			.slice_ns = 300 * US + (int64_t)hb_rng_below(rng, 3) * MS,
			.copy_slice_ns = (int64_t)hb_rng_below(rng, 3) * 30 * US,
			.preempt = (enum hb_gpu_model_preempt)hb_rng_below(rng, 3),
			.mps = hb_rng_below(rng, 2),
		};
		int context = rig_context(rig, &params);
		for (uint64_t n = 1 + hb_rng_below(rng, 3); n-- && i < STREAMS; i++)
			stream[i] = rig_stream(rig, context, hb_rng_below(rng, 3) ? 0 : 40, -(int)hb_rng_below(rng, 6));
	}
}

static void collect_completions(struct rig *rig, struct log *log)
{
	while (log->n < STEPS * 2 && hb_gpu_model_pop(rig->model, &log->done[log->n]))
		log->n++;
}

/* Advances time in one step, or in `parts` steps. */
static void advance_in_parts(struct rig *rig, int64_t to_ns, int parts, struct log *log)
{
	int64_t from_ns = rig->now_ns;
	for (int i = 1; i <= parts; i++) {
		hb_gpu_model_advance(rig->model, from_ns + (to_ns - from_ns) * i / parts);
		if (parts > 1)
			collect_completions(rig, log);
	}
	rig->now_ns = to_ns;
	collect_completions(rig, log);
}

static void run_program(uint64_t seed, int parts, struct log *log)
{
	struct hb_gpu_model_work graph[PIECES];
	struct hb_rng rng;
	struct rig rig;
	int stream[STREAMS];
	memset(log, 0, sizeof *log);
	hb_rng_init(&rng, seed, 1);
	rig_init(&rig);
	open_streams(&rig, &rng, stream);
	for (int i = 0; i < PIECES; i++)
		graph[i] = random_kernel(&rng);
	for (uint64_t step = 0; step < STEPS; step++) {
		int to = stream[hb_rng_below(&rng, STREAMS)];
		struct hb_gpu_model_work work = random_work(&rng, step);
		if (hb_rng_below(&rng, 10) == 0)
			assert_int_equal(hb_gpu_model_submit_graph(rig.model, rig.now_ns, to, graph, PIECES, step), 0);
		else
			rig_submit(&rig, to, &work);
		if (hb_rng_below(&rng, 12) == 0)
			hb_gpu_model_release_takeovers(rig.model, rig.now_ns, to);
		if (hb_rng_below(&rng, 20) == 0)
			hb_gpu_model_set_slice(rig.model, 0, 100 * US + (int64_t)hb_rng_below(&rng, 2000) * US, 0);
		advance_in_parts(&rig, rig.now_ns + (int64_t)hb_rng_below(&rng, 200000), parts, log);
	}
	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < STREAMS; i++)
			hb_gpu_model_release_takeovers(rig.model, rig.now_ns, stream[i]);
		advance_in_parts(&rig, rig.now_ns + 5 * MS, parts, log);
	}
	for (int i = 0; i < STREAMS; i++)
		if (hb_gpu_model_pending(rig.model, stream[i]))
			fail_msg("seed %d: stream %d is not done after a second", (int)seed, i);
	log->busy_ns = hb_gpu_model_busy_ns(rig.model);
	if (log->busy_ns > rig.now_ns)
		fail_msg("seed %d: busy for longer than it ran", (int)seed);
	rig_fini(&rig);
}

/* Returns the first completion in which two runs differ; -1 = none. */
static int first_difference(const struct log *one, const struct log *other)
{
	for (size_t i = 0; i < one->n && i < other->n; i++) {
		const struct hb_gpu_model_completion *a = &one->done[i], *b = &other->done[i];
		if (a->cookie != b->cookie || a->start_ns != b->start_ns || a->end_ns != b->end_ns ||
		    a->stream != b->stream)
			return (int)i;
	}
	return one->n == other->n && one->busy_ns == other->busy_ns ? -1 : (int)one->n;
}

static void advancing_in_small_steps_changes_nothing(void **state)
{
	static struct log whole, small;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		run_program(seed, 1, &whole);
		run_program(seed, seed % 10 ? 7 : 1000, &small);
		int at = first_difference(&whole, &small);
		if (at >= 0)
			fail_msg("seed %d: completion %d of %zu and %zu differs", (int)seed, at, whole.n, small.n);
	}
}

static void work_ends_once_and_in_the_order_of_its_stream(void **state)
{
	static struct log log;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		int64_t end_ns[64] = {0};
		uint64_t last[64] = {0};
		bool seen[STEPS] = {false};
		run_program(seed, 1, &log);
		if (log.n != STEPS)
			fail_msg("seed %d: %zu of %d submissions ended", (int)seed, log.n, STEPS);
		for (size_t i = 0; i < log.n; i++) {
			const struct hb_gpu_model_completion *done = &log.done[i];
			bool order = !end_ns[done->stream] || done->cookie > last[done->stream];
			if (seen[done->cookie] || !order || done->start_ns < end_ns[done->stream] ||
			    done->end_ns < done->start_ns || (i && done->end_ns < log.done[i - 1].end_ns))
				fail_msg("seed %d: submission %d", (int)seed, (int)done->cookie);
			seen[done->cookie] = true;
			end_ns[done->stream] = done->end_ns;
			last[done->stream] = done->cookie;
		}
	}
}

static void same_calls_give_the_same_completions(void **state)
{
	static struct log one, other;
	run_program(1234, 1, &one);
	run_program(1234, 1, &other);
	assert_int_equal(first_difference(&one, &other), -1);
	run_program(1235, 1, &other);
	assert_true(first_difference(&one, &other) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(advancing_in_small_steps_changes_nothing),
		cmocka_unit_test(work_ends_once_and_in_the_order_of_its_stream),
		cmocka_unit_test(same_calls_give_the_same_completions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
