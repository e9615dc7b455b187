/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine with random programs on a simple GPU: one queue that runs LP's
 * kernels one after the other, half as fast while HP is served. In every run LP continues
 * soon after HP is gone, little of its work is in flight, answers are valid, and no content
 * of the board can stop it for good. HB_SEED=N repeats a run.
 */
#include "base/rng.h"
#include "spatial_unit_rig.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define KERNELS 40
#define LAUNCHES 20000
#define QUEUE 4096

struct world {
	struct hb_rng rng;
	uint64_t seed;
	int64_t now_ns;
	struct hb_spatial_board board;
	struct hb_spatial_high high;
	bool serving;
	int64_t high_next_ns;
	struct hb_spatial_low *low;
	struct hb_spatial_stream stream;
	struct hb_spatial_shape shapes[KERNELS];
	int64_t duration_ns[KERNELS];
	/* the GPU: when each launch of the queue ends, and the mark behind it */
	struct {
		int64_t end_ns;
		uint32_t mark;
	} queue[QUEUE];
	uint32_t head, tail, counter;
	int64_t looked_ns;
	bool counter_stands_still;
};

#define CHECK(world, condition) \
	do { \
		if (!(condition)) \
			fail_msg("HB_SEED=%llu at %lld ns: %s", (unsigned long long)(world)->seed, \
				 (long long)(world)->now_ns, #condition); \
	} while (0)

static int64_t below(struct world *world, int64_t most)
{
	return (int64_t)hb_rng_below(&world->rng, (uint64_t)most);
}

static void begin(struct world *world, uint64_t seed)
{
	struct hb_spatial_limits limits;
	struct hb_spatial_low *low = world->low;
	memset(world, 0, sizeof *world);
	world->low = low;
	world->seed = seed;
	world->now_ns = 5000 * MS;
	hb_rng_init(&world->rng, seed, 0);
	hb_spatial_limits_init(&limits, SMS);
	set_short_windows(&limits);
	limits.masks = below(world, 4) != 0;
	hb_spatial_low_init(low, &limits);
	struct hb_spatial_beacon *beacon = hb_spatial_claim(&world->board, 1);
	hb_spatial_high_init(&world->high, beacon, SMS);
	hb_spatial_high_set_slo(&world->high, below(world, 3) ? below(world, 20 * MS) : 0);
	world->high.allowance_ppm = (uint32_t)below(world, 100000);
	world->high_next_ns = world->now_ns;
	for (uint32_t i = 0; i < KERNELS; i++) {
		world->shapes[i] = (struct hb_spatial_shape){.key = hb_spatial_key(i, 1, 1, 1, 1, 1),
							     .blocks = (uint64_t)below(world, 100000),
							     .per_sm = (uint32_t)below(world, 33),
							     .flags = (uint32_t)below(world, 8)};
		world->duration_ns[i] = 500 + below(world, below(world, 4) ? 50 * US : MS);
	}
}

/* HP's requests begin and end. */
static void live_high(struct world *world)
{
	while (world->high_next_ns <= world->now_ns) {
		int64_t at_ns = world->high_next_ns;
		if (world->serving) {
			for (int i = 0; i < 50; i++)
				hb_spatial_high_launch(&world->high, at_ns);
			hb_spatial_high_end(&world->high, at_ns);
		} else {
			hb_spatial_high_begin(&world->high, at_ns, 0);
		}
		world->serving = !world->serving;
		world->high_next_ns += 1 + below(world, 6 * MS);
	}
}

static void look(struct world *world)
{
	for (; world->head != world->tail && world->queue[world->head % QUEUE].end_ns <= world->now_ns; world->head++)
		if (world->queue[world->head % QUEUE].mark && !world->counter_stands_still)
			world->counter = world->queue[world->head % QUEUE].mark;
	if (world->counter != world->stream.done)
		hb_spatial_done(world->low, &world->stream, world->counter, world->looked_ns, world->now_ns);
	world->looked_ns = world->now_ns;
}

static void check_answer(struct world *world, const struct hb_spatial_answer *answer)
{
	CHECK(world, answer->kernel < HB_SPATIAL_KERNELS && answer->spot < HB_SPATIAL_SPOTS);
	if (answer->verdict == HB_SPATIAL_WAIT) {
		CHECK(world, answer->until_ns > world->now_ns && answer->until_ns <= world->now_ns + 2 * MS);
		return;
	}
	CHECK(world, answer->sms <= SMS);
	CHECK(world, world->low->limits.masks || !answer->sms);
	CHECK(world, answer->part_ppm <= HB_SPATIAL_PPM);
	CHECK(world, answer->verdict != HB_SPATIAL_SPLIT || answer->part_ppm < HB_SPATIAL_PPM);
}

static void submit(struct world *world, uint32_t kernel, const struct hb_spatial_answer *answer)
{
	uint32_t mark = hb_spatial_went(world->low, &world->stream, world->now_ns, answer);
	int64_t from_ns = world->now_ns + 3 * US, length_ns = world->duration_ns[kernel] << world->serving;
	if (world->tail != world->head && world->queue[(world->tail - 1) % QUEUE].end_ns > from_ns)
		from_ns = world->queue[(world->tail - 1) % QUEUE].end_ns;
	CHECK(world, world->tail - world->head < QUEUE - 1);
	world->queue[world->tail % QUEUE].end_ns = from_ns + length_ns;
	world->queue[world->tail++ % QUEUE].mark = mark;
}

static enum hb_spatial_verdict ask(struct world *world, uint32_t kernel, struct hb_spatial_answer *answer)
{
	struct hb_spatial_view view;
	hb_spatial_look(&world->board, world->now_ns, &view);
	hb_spatial_ask(world->low, &world->stream, &view, world->now_ns, &world->shapes[kernel], answer);
	check_answer(world, answer);
	return answer->verdict;
}

/* True GPU time in flight without the newest launch that is not short. */
static void check_in_flight(struct world *world)
{
	int64_t longest_ns = 2 * MS; /* beside HP */
	int64_t bound_ns = 2 * longest_ns + 8 * (world->low->limits.steady_ns + world->low->limits.ahead_ns);
	if (world->tail != world->head && !world->counter_stands_still)
		CHECK(world, world->queue[(world->tail - 1) % QUEUE].end_ns - world->now_ns <= bound_ns);
}

/* Launches the next kernel; waits as the shim does, until the time in the answer or until something changes. */
static void launch(struct world *world, uint32_t kernel)
{
	struct hb_spatial_answer answer;
	/* Waiting for its own work ends when that is done; for HP, when that is gone. */
	int64_t own_ns = 0, absent_ns = 0;
	for (;;) {
		live_high(world);
		look(world);
		if (ask(world, kernel, &answer) != HB_SPATIAL_WAIT)
			break;
		int64_t step_ns = 1 + below(world, answer.until_ns - world->now_ns);
		own_ns += answer.for_high ? 0 : step_ns;
		absent_ns = world->serving ? 0 : absent_ns + step_ns;
		CHECK(world, own_ns < (world->counter_stands_still ? HB_SPATIAL_STUCK_NS : 0) + 10 * MS);
		CHECK(world, world->counter_stands_still || absent_ns < 10 * MS);
		world->now_ns += step_ns;
	}
	submit(world, kernel, &answer);
	check_in_flight(world);
}

static void run(struct world *world, uint64_t seed, bool stands_still)
{
	begin(world, seed);
	uint32_t period = 1 + (uint32_t)below(world, KERNELS);
	uint32_t launches = stands_still ? 200 : LAUNCHES;
	for (uint32_t i = 0; i < launches; i++) {
		world->counter_stands_still = stands_still && i > 100;
		launch(world, below(world, 50) ? i % period : (uint32_t)below(world, KERNELS));
		world->now_ns += below(world, 15 * US);
		if (i % 1000 == 999 && !world->counter_stands_still && world->head != world->tail) {
			int64_t end_ns = world->queue[(world->tail - 1) % QUEUE].end_ns;
			world->now_ns = world->now_ns > end_ns ? world->now_ns : end_ns;
			look(world);
			hb_spatial_idle(&world->stream, world->now_ns);
			world->counter = world->stream.done;
		}
	}
}

static uint64_t first_seed(void)
{
	const char *text = getenv("HB_SEED");
	return text ? strtoull(text, NULL, 10) : 1;
}

static uint64_t last_seed(void)
{
	return getenv("HB_SEED") ? first_seed() : 20;
}

static void low_goes_on_and_little_is_in_flight(void **state)
{
	for (uint64_t seed = first_seed(); seed <= last_seed(); seed++)
		run(*state, seed, false);
}

static void a_counter_that_stands_still_stops_nobody_for_good(void **state)
{
	for (uint64_t seed = first_seed(); seed <= last_seed(); seed++)
		run(*state, seed, true);
}

/* Random bytes on the board give valid answers, and once they stay the same LP continues within the silence limit. */
static void what_stands_on_the_board_stops_nobody_for_good(void **state)
{
	struct world *world = *state;
	struct hb_spatial_answer answer;
	for (uint64_t seed = first_seed(); seed <= last_seed() * 50; seed++) {
		begin(world, seed);
		unsigned char *bytes = (unsigned char *)&world->board;
		for (size_t i = 0; i < sizeof world->board; i++)
			bytes[i] = (unsigned char)below(world, 256);
		/* Owners, or few of them would be read; and now and then a sign of life about now. */
		for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++)
			if (below(world, 2))
				world->board.beacons[i].seen_ns = world->now_ns + below(world, 4 * MS) - 2 * MS;
		for (uint32_t i = 0; i < 30; i++) {
			enum hb_spatial_verdict verdict = ask(world, i, &answer);
			if (verdict != HB_SPATIAL_WAIT)
				hb_spatial_went(world->low, &world->stream, world->now_ns, &answer);
			hb_spatial_idle(&world->stream, world->now_ns);
		}
		world->now_ns += HB_DEFAULT_SILENT_NS + 5 * MS;
		CHECK(world, ask(world, 0, &answer) != HB_SPATIAL_WAIT);
	}
}

static int set_up(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	world->low = calloc(1, sizeof *world->low);
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;
	free(world->low);
	free(world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(low_goes_on_and_little_is_in_flight),
		cmocka_unit_test(a_counter_that_stands_still_stops_nobody_for_good),
		cmocka_unit_test(what_stands_on_the_board_stops_nobody_for_good),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
