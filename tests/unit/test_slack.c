/* SPDX-License-Identifier: Apache-2.0 */
/* What slack promises of a single decision: HP's beacon, LP's answers, the window, what is learned. */
#include "core/slack_high.h"
#include "core/slack_low.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SMS 132

struct rig {
	struct hb_slack_board board;
	struct hb_slack_beacon *beacon;
	struct hb_slack_high high;
	struct hb_slack_limits limits;
	struct hb_slack_low *low;
	struct hb_slack_stream stream;
	struct hb_slack_answer answer;
	int64_t now_ns;
};

static const struct hb_slack_shape persistent = {.key = 11, .blocks = 132, .per_sm = 1, .flags = HB_SLACK_MASKABLE};
static const struct hb_slack_shape plain = {
	.key = 13, .blocks = 5280, .per_sm = 2, .flags = HB_SLACK_MASKABLE | HB_SLACK_SLICEABLE};
static const struct hb_slack_shape small = {.key = 15, .blocks = 16, .per_sm = 2, .flags = HB_SLACK_MASKABLE};
static const struct hb_slack_shape graph = {.key = 17};
static const struct hb_slack_shape unmasked = {.key = 19, .blocks = 16, .per_sm = 2};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof *rig);
	rig->low = calloc(1, sizeof *rig->low);
	rig->now_ns = 10 * MS;
	rig->beacon = hb_slack_claim(&rig->board, 77);
	hb_slack_high_init(&rig->high, rig->beacon, SMS);
	hb_slack_limits_init(&rig->limits, SMS);
	hb_slack_low_init(rig->low, &rig->limits);
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;
	free(rig->low);
	free(rig);
	return 0;
}

static enum hb_slack_verdict ask(struct rig *rig, const struct hb_slack_shape *shape)
{
	struct hb_slack_view view;
	hb_slack_look(&rig->board, rig->now_ns, &view);
	hb_slack_ask(rig->low, &rig->stream, &view, rig->now_ns, shape, &rig->answer);
	return rig->answer.verdict;
}

/* A request of `launches` launches, evenly over took_ns, then a pause of as much. */
static void serve(struct rig *rig, uint32_t launches, int64_t took_ns)
{
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	for (uint32_t i = 0; i < launches; i++) {
		rig->now_ns += took_ns / launches;
		hb_slack_high_launch(&rig->high, rig->now_ns);
	}
	hb_slack_high_end(&rig->high, rig->now_ns);
	rig->now_ns += took_ns;
}

/* HP is known, and its terms allow a twentieth. */
static void let_beside(struct rig *rig)
{
	rig->beacon->terms_ppm = 50000;
	for (uint32_t i = 0; i < HB_SLACK_FIRST_CLOSED; i++)
		serve(rig, 160, 2 * MS);
}

static void test_without_high_all_goes(void **state)
{
	struct rig *rig = *state;
	hb_slack_leave(rig->beacon);
	assert_int_equal(ask(rig, &persistent), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 0);
	assert_int_equal(ask(rig, &graph), HB_SLACK_GO);
}

static void test_waits_until_the_request_ends(void **state)
{
	struct rig *rig = *state;
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(ask(rig, &small), HB_SLACK_WAIT);
	assert_true(rig->answer.for_high);
	assert_true(rig->answer.until_ns > rig->now_ns);
	hb_slack_high_end(&rig->high, rig->now_ns + MS);
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
}

static void test_silent_high_does_not_hold(void **state)
{
	struct rig *rig = *state;
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	rig->now_ns += HB_SLACK_SILENT_NS - 1;
	assert_int_equal(ask(rig, &small), HB_SLACK_WAIT);
	rig->now_ns += 1;
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
}

/* LP looked at the clock, lost its CPU, and looks at the board: what HP has told meanwhile holds it, too. */
static void test_newer_signs_of_life_hold(void **state)
{
	struct rig *rig = *state;
	int64_t looked_ns = rig->now_ns;
	hb_slack_high_begin(&rig->high, looked_ns + HB_SLACK_SILENT_NS, 0);
	rig->now_ns = looked_ns;
	assert_int_equal(ask(rig, &small), HB_SLACK_WAIT);
	rig->now_ns = looked_ns - MS; /* so far ahead is no process, but what somebody wrote there */
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
}

static void test_dead_high_does_not_hold(void **state)
{
	struct rig *rig = *state;
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_true(hb_slack_present(&rig->board, rig->now_ns));
	hb_slack_leave(rig->beacon);
	assert_false(hb_slack_present(&rig->board, rig->now_ns));
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
	assert_ptr_equal(hb_slack_claim(&rig->board, 78), rig->beacon);
}

static void test_board_fills(void **state)
{
	struct rig *rig = *state;
	for (uint32_t i = 1; i < HB_SLACK_BEACONS; i++)
		assert_non_null(hb_slack_claim(&rig->board, 100 + i));
	assert_null(hb_slack_claim(&rig->board, 99));
}

/* All that the reserve leaves, persistent kernels too; what cannot be masked is as dear as it is long. */
static void test_beside_masked(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &persistent, 600 * US);
	hb_slack_learn(rig->low, &small, 10 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(ask(rig, &persistent), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 100);
	assert_in_range(rig->answer.ns, 790 * US, 793 * US);
	assert_int_equal(ask(rig, &graph), HB_SLACK_WAIT);
}

static void test_no_masks_no_long_kernels(void **state)
{
	struct rig *rig = *state;
	rig->low->limits.masks = false;
	let_beside(rig);
	hb_slack_learn(rig->low, &persistent, 600 * US);
	hb_slack_learn(rig->low, &small, 2 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(ask(rig, &persistent), HB_SLACK_WAIT);
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
}

static void test_without_slack_it_waits(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &unmasked, 2 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, rig->now_ns + 10 * MS);
	assert_int_equal(ask(rig, &unmasked), HB_SLACK_GO);
	hb_slack_high_end(&rig->high, rig->now_ns + 1);
	hb_slack_high_begin(&rig->high, rig->now_ns, rig->now_ns + MS);
	assert_int_equal(ask(rig, &unmasked), HB_SLACK_WAIT);
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 100);
}

static void test_allowance_is_spent(void **state)
{
	struct rig *rig = *state;
	uint32_t launches = 0;
	let_beside(rig);
	hb_slack_learn(rig->low, &unmasked, 2 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	int64_t allow_ns = rig->beacon->allow_ns, price_ns = 0;
	assert_in_range(allow_ns, 95 * US, 105 * US);
	for (; ask(rig, &unmasked) == HB_SLACK_GO && launches < 100000; launches++) {
		price_ns += rig->answer.price_ns;
		hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
		hb_slack_idle(&rig->stream, rig->now_ns);
	}
	assert_true(launches > 10 && launches < 100000);
	assert_true(price_ns <= allow_ns);
	assert_true(rig->answer.for_high);
}

static void test_slice_beside(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &plain, 900 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	rig->beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SLACK_SLICE);
	assert_int_equal(rig->answer.ns, 100 * US);
	assert_in_range(rig->answer.part_ppm, 50000, 120000);
}

/* Where HP allows less than the whole kernel would cost it, a slice of it may still go. */
static void test_only_in_slices(void **state)
{
	struct rig *rig = *state;
	struct hb_slack_shape uncut = plain;
	rig->low->limits.masks = false;
	let_beside(rig);
	uncut.key += 2;
	uncut.flags = HB_SLACK_MASKABLE;
	hb_slack_learn(rig->low, &plain, 900 * US);
	hb_slack_learn(rig->low, &uncut, 900 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(ask(rig, &uncut), HB_SLACK_WAIT);
	assert_int_equal(ask(rig, &plain), HB_SLACK_SLICE);
	assert_true(rig->answer.price_ns > 0 && rig->answer.price_ns <= rig->beacon->allow_ns);
	hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	hb_slack_idle(&rig->stream, rig->now_ns);
	/* That was all that was allowed. */
	assert_int_equal(ask(rig, &plain), HB_SLACK_WAIT);
	assert_true(rig->answer.for_high);
}

/* Found to be a kernel that cannot be cut: judged as a whole from then on. */
static void test_slices_that_are_not_possible(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &plain, 900 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	rig->beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SLACK_SLICE);
	hb_slack_whole(rig->low, rig->answer.kernel);
	assert_int_equal(ask(rig, &plain), HB_SLACK_GO);
	assert_true(rig->answer.ns >= 900 * US);
}

/* However much may be in flight, the next slice goes when the one before is about to end; once HP is gone, all the rest. */
static void test_slices_tick(void **state)
{
	struct rig *rig = *state;
	struct hb_slack_shape rest = plain;
	rig->low->limits.window_ns = rig->low->limits.beside_ns = rig->low->limits.mark_ns = 3 * MS;
	let_beside(rig);
	hb_slack_learn(rig->low, &plain, 900 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	rig->beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SLACK_SLICE);
	uint32_t mark = hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	assert_int_not_equal(mark, 0);
	rest.left_ppm = HB_SLACK_PPM - rig->answer.part_ppm;
	assert_int_equal(ask(rig, &rest), HB_SLACK_WAIT);
	assert_false(rig->answer.for_high);
	rig->now_ns += 60 * US;
	assert_int_equal(ask(rig, &rest), HB_SLACK_SLICE);
	hb_slack_high_end(&rig->high, rig->now_ns);
	assert_int_equal(ask(rig, &rest), HB_SLACK_GO);
	assert_true(rig->answer.part && rig->answer.ns > 700 * US);
}

/* Graphs are not masked or cut: how long one runs decides whether it goes beside a request; without one it goes. */
static void test_graphs_go_by_their_time(void **state)
{
	struct rig *rig = *state;
	struct hb_slack_shape brief = graph;
	let_beside(rig);
	brief.key += 2;
	hb_slack_learn(rig->low, &graph, 5 * MS);
	hb_slack_learn(rig->low, &brief, 20 * US);
	assert_int_equal(ask(rig, &graph), HB_SLACK_GO);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(ask(rig, &graph), HB_SLACK_WAIT);
	assert_true(rig->answer.for_high);
	assert_int_equal(ask(rig, &brief), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 0);
	assert_true(rig->answer.price_ns > 0 && rig->answer.price_ns <= rig->beacon->allow_ns);
	hb_slack_high_end(&rig->high, rig->now_ns + MS);
	assert_int_equal(ask(rig, &graph), HB_SLACK_GO);
}

/* Each slice starts all blocks of its grid: with very many of them slices are longer, or there are none. */
static void test_slices_of_many_blocks(void **state)
{
	struct rig *rig = *state;
	struct hb_slack_shape many = plain;
	let_beside(rig);
	many.key += 2;
	many.blocks = 40000;
	hb_slack_learn(rig->low, &many, 2000 * US);
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	rig->beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &many), HB_SLACK_SLICE);
	assert_int_equal(rig->answer.ns, 500 * US);
	many.key += 2;
	many.blocks = 400000;
	hb_slack_learn(rig->low, &many, 2000 * US);
	assert_int_equal(ask(rig, &many), HB_SLACK_GO);
}

/* Long holds are masked where HP comes often, not where it comes rarely; short ones never. */
static void test_long_hold_while_absent(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &persistent, 1400 * US);
	hb_slack_learn(rig->low, &plain, 900 * US);
	rig->beacon->gap_ns = 7 * MS;
	assert_int_equal(ask(rig, &persistent), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 100);
	assert_int_equal(ask(rig, &plain), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 0);
	rig->beacon->gap_ns = 100 * MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	hb_slack_high_expect(&rig->high, rig->now_ns + MS);
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
	rig->now_ns += MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
}

static void test_window(void **state)
{
	struct rig *rig = *state;
	uint32_t mark = 0;
	for (int i = 0; i < 8; i++)
		hb_slack_learn(rig->low, &small, 25 * US);
	int launches = 0;
	for (; ask(rig, &small) == HB_SLACK_GO; launches++) {
		uint32_t value = hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
		mark = value ? value : mark;
	}
	assert_in_range(launches, 3, 4);
	assert_false(rig->answer.for_high);
	/* Time alone lets more in, but never much that the counter does not confirm. */
	for (int i = 0; i < 100; i++) {
		rig->now_ns += 20 * US;
		if (ask(rig, &small) == HB_SLACK_GO)
			launches++, hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	}
	assert_in_range(launches, 5, 12);
	rig->now_ns += HB_SLACK_STUCK_NS;
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
	hb_slack_done(rig->low, &rig->stream, rig->stream.marked, 0, rig->now_ns);
	assert_int_equal(ask(rig, &small), HB_SLACK_GO);
	assert_true(mark > 0);
}

/* A mark behind each unknown kernel; the counter's times become its duration. */
static void test_durations_are_learned(void **state)
{
	struct rig *rig = *state;
	hb_slack_leave(rig->beacon);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(ask(rig, &persistent), HB_SLACK_GO);
		uint32_t mark = hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
		assert_true(mark > 0);
		rig->now_ns += 603 * US;
		hb_slack_done(rig->low, &rig->stream, mark, rig->now_ns - US, rig->now_ns);
	}
	const struct hb_slack_kernel *kernel = hb_slack_find(rig->low, persistent.key);
	assert_in_range(kernel->duration_ns, 595 * US, 605 * US);
	assert_int_equal(kernel->class, HB_SLACK_PERSISTENT);
	/* A look that came late teaches nothing. */
	ask(rig, &persistent);
	uint32_t mark = hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	rig->now_ns += 6 * MS;
	hb_slack_done(rig->low, &rig->stream, mark, rig->now_ns - 5 * MS, rig->now_ns);
	assert_in_range(kernel->duration_ns, 595 * US, 605 * US);
}

/* Requests beside `shape` take excess_ns longer than alone. */
static void serve_beside(struct rig *rig, const struct hb_slack_shape *shape, int64_t excess_ns)
{
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	if (ask(rig, shape) == HB_SLACK_GO) {
		hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
		hb_slack_idle(&rig->stream, rig->now_ns);
	}
	for (uint32_t i = 0; i < 160; i++)
		hb_slack_high_launch(&rig->high, rig->now_ns + 12 * US * i);
	rig->now_ns += 2 * MS + (rig->high.closed ? 0 : excess_ns);
	hb_slack_high_end(&rig->high, rig->now_ns);
	rig->now_ns += MS;
	ask(rig, shape);
}

static void test_harm_is_learned(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	hb_slack_learn(rig->low, &small, 100 * US);
	uint32_t before = hb_slack_find(rig->low, small.key)->harm_ppm[0];
	for (int i = 0; i < 300; i++)
		serve_beside(rig, &small, 20 * US);
	uint32_t harmful = hb_slack_find(rig->low, small.key)->harm_ppm[0];
	assert_true(harmful > 5 * before);
	assert_in_range(harmful, 150000, 250000);
	for (int i = 0; i < 600; i++)
		serve_beside(rig, &small, 0);
	assert_true(hb_slack_find(rig->low, small.key)->harm_ppm[0] < harmful / 8);
}

/* Requests that take longer than alone unless LP was kept out. */
static uint32_t serve_slowed(struct rig *rig, int requests, int64_t took_ns)
{
	uint32_t closed = 0;
	for (int i = 0; i < requests; i++) {
		bool kept_out = rig->high.closed;
		closed += kept_out;
		serve(rig, 160, kept_out ? 2 * MS : took_ns);
	}
	return closed;
}

static void test_reserve_follows_the_excess(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	assert_int_equal(rig->beacon->reserve, 31);
	serve_slowed(rig, 120, 2120 * US);
	uint32_t grown = rig->beacon->reserve;
	assert_true(grown > 31);
	serve_slowed(rig, 1000, 2120 * US);
	assert_int_equal(rig->beacon->reserve, SMS / 2);
	serve_slowed(rig, 4000, 2 * MS);
	assert_int_equal(rig->beacon->reserve, 31);
}

/* Where no reserve helps LP is kept out for a while; where it does, only for the closed windows. */
static void test_gated_where_no_reserve_helps(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	assert_in_range(serve_slowed(rig, 1024, 2120 * US), 16, 20);
	assert_true(serve_slowed(rig, 1024, 3 * MS) > 500);
	serve_slowed(rig, 2048, 2 * MS);
	assert_in_range(serve_slowed(rig, 1024, 2 * MS), 16, 20);
}

/* The first requests and later a few in a row allow nothing; the time left is known by then. */
static void test_closed_windows(void **state)
{
	struct rig *rig = *state;
	rig->beacon->terms_ppm = 50000;
	uint32_t closed = 0;
	for (int i = 0; i < 300; i++) {
		hb_slack_high_begin(&rig->high, rig->now_ns, 0);
		closed += rig->beacon->allow_ns == 0;
		if (i == 63)
			assert_in_range(hb_slack_high_left_ns(&rig->high), 1900 * US, 2100 * US);
		for (int launch = 0; launch < 160; launch++)
			hb_slack_high_launch(&rig->high, rig->now_ns += 12500);
		hb_slack_high_end(&rig->high, rig->now_ns);
		rig->now_ns += 2 * MS;
	}
	assert_int_equal(closed, HB_SLACK_FIRST_CLOSED + HB_SLACK_CLOSED_RUN);
	rig->beacon->terms_ppm = 0;
	hb_slack_high_begin(&rig->high, rig->now_ns, 0);
	assert_int_equal(rig->beacon->allow_ns, 0);
}

/* The first of a row of closed windows still meets what was in flight: it is not what a request takes alone. */
static void test_first_of_a_row_teaches_nothing(void **state)
{
	struct rig *rig = *state;
	let_beside(rig);
	int64_t alone_ns = rig->high.alone_ns;
	for (int i = 0; i < 1024; i++) {
		bool first = rig->high.closed && !rig->high.was_closed;
		serve(rig, 160, first ? 8 * MS : 2 * MS);
	}
	assert_in_range(rig->high.alone_ns, alone_ns - 20 * US, alone_ns + 20 * US);
}

/* Close requests: masked between them as beside them, and the host may run ahead; far ones: whole between them. */
static void test_close_requests(void **state)
{
	struct rig *rig = *state;
	int launches = 0;
	let_beside(rig);
	hb_slack_learn(rig->low, &small, 25 * US);
	hb_slack_learn(rig->low, &plain, 900 * US);
	rig->beacon->gap_ns = 2 * MS;
	assert_int_equal(ask(rig, &plain), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 100);
	for (; ask(rig, &small) == HB_SLACK_GO; launches++)
		hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	assert_in_range(launches, 12, 20);
	hb_slack_idle(&rig->stream, rig->now_ns);
	/* A closed window is coming: little in flight. */
	rig->beacon->allow_ns = 0;
	for (launches = 0; ask(rig, &small) == HB_SLACK_GO; launches++)
		hb_slack_went(rig->low, &rig->stream, rig->now_ns, &rig->answer);
	assert_in_range(launches, 1, 3);
	rig->beacon->allow_ns = 1000;
	hb_slack_idle(&rig->stream, rig->now_ns);
	rig->beacon->gap_ns = 50 * MS;
	assert_int_equal(ask(rig, &plain), HB_SLACK_GO);
	assert_int_equal(rig->answer.sms, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_without_high_all_goes),
		TEST(test_waits_until_the_request_ends),
		TEST(test_silent_high_does_not_hold),
		TEST(test_newer_signs_of_life_hold),
		TEST(test_dead_high_does_not_hold),
		TEST(test_board_fills),
		TEST(test_beside_masked),
		TEST(test_no_masks_no_long_kernels),
		TEST(test_without_slack_it_waits),
		TEST(test_allowance_is_spent),
		TEST(test_slice_beside),
		TEST(test_only_in_slices),
		TEST(test_slices_that_are_not_possible),
		TEST(test_slices_tick),
		TEST(test_graphs_go_by_their_time),
		TEST(test_slices_of_many_blocks),
		TEST(test_long_hold_while_absent),
		TEST(test_window),
		TEST(test_durations_are_learned),
		TEST(test_harm_is_learned),
		TEST(test_reserve_follows_the_excess),
		TEST(test_gated_where_no_reserve_helps),
		TEST(test_closed_windows),
		TEST(test_first_of_a_row_teaches_nothing),
		TEST(test_close_requests),
	};
	return cmocka_run_group_tests(tests, 0, 0);
}
