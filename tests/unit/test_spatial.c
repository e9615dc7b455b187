/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of the spatial engine for one decision: HP's beacon, LP's answers, the window, and what LP learns. */
#include "spatial_low_rig.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static void test_without_high_all_goes(void **state)
{
	struct low_rig *rig = *state;
	free_beacon(rig->hp.beacon);
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO);
}

static void test_waits_until_the_request_ends(void **state)
{
	struct low_rig *rig = *state;
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_WAIT);
	assert_true(rig->answer.for_high);
	assert_true(rig->answer.until_ns > rig->hp.now_ns);
	hb_spatial_high_end(&rig->hp.high, rig->hp.now_ns + MS);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
}

static void test_silent_high_does_not_hold(void **state)
{
	struct low_rig *rig = *state;
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.now_ns += HB_DEFAULT_SILENT_NS - 1;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_WAIT);
	rig->hp.now_ns += 1;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
}

/* LP read the clock, lost its CPU, and reads the board now: a request that HP has published meanwhile counts. */
static void test_newer_signs_of_life_hold(void **state)
{
	struct low_rig *rig = *state;
	int64_t looked_ns = rig->hp.now_ns;
	hb_spatial_high_begin(&rig->hp.high, looked_ns + HB_DEFAULT_SILENT_NS, 0);
	rig->hp.now_ns = looked_ns;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_WAIT);
	rig->hp.now_ns = looked_ns - MS; /* no process is this far ahead: the value is wrong */
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
}

static bool is_present(const struct low_rig *rig)
{
	return hb_spatial_present(rig->hp.board.beacons, sizeof(struct hb_spatial_beacon), HB_SPATIAL_BEACONS,
				  rig->hp.now_ns);
}

static void test_dead_high_does_not_hold(void **state)
{
	struct low_rig *rig = *state;
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_true(is_present(rig));
	free_beacon(rig->hp.beacon);
	assert_false(is_present(rig));
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
	assert_ptr_equal(hb_spatial_claim(&rig->hp.board, 78), rig->hp.beacon);
}

static void test_board_fills(void **state)
{
	struct low_rig *rig = *state;
	for (uint32_t i = 1; i < HB_SPATIAL_BEACONS; i++)
		assert_non_null(hb_spatial_claim(&rig->hp.board, 100 + i));
	assert_null(hb_spatial_claim(&rig->hp.board, 99));
}

/* Tokens with credit allow LP any delay: no masks, no prices, no slices of long kernels, but a window. */
static void test_goes_freely_beside_tokens_with_credit(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 600 * US);
	rig->hp.beacon->allow_ns = HB_SPATIAL_ALLOW_ALL;
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100); /* this request allows less */
	rig->hp.beacon->allow_ns = HB_SPATIAL_ALLOW_ALL;
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
	assert_int_equal(rig->answer.price_ns, 0);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO); /* nothing is known of it */
	/* Another HP process without credit. */
	struct hb_spatial_beacon *other = hb_spatial_claim(&rig->hp.board, 78);
	other->seen_ns = rig->hp.now_ns;
	other->allow_ns = MS;
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_WAIT);
	rig->hp.now_ns += HB_DEFAULT_SILENT_NS; /* which is idle now */
	rig->hp.beacon->seen_ns = rig->hp.now_ns;
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO);
}

/* Masked kernels, persistent ones too, get all SMs except the reserve; others have a price by their duration. */
static void test_beside_masked(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 600 * US);
	learn_duration(rig->low, &small, 10 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
	assert_in_range(rig->answer.ns, 790 * US, 793 * US);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_WAIT);
}

static void test_no_masks_no_long_kernels(void **state)
{
	struct low_rig *rig = *state;
	rig->low->limits.masks = false;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 600 * US);
	learn_duration(rig->low, &small, 2 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_WAIT);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
}

static void test_without_slack_it_waits(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &unmasked, 2 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, rig->hp.now_ns + 10 * MS);
	assert_int_equal(ask(rig, &unmasked), HB_SPATIAL_GO);
	for (int i = 0; i < 160; i++)
		hb_spatial_high_launch(&rig->hp.high, rig->hp.now_ns);
	hb_spatial_high_end(&rig->hp.high, rig->hp.now_ns + 1);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, rig->hp.now_ns + MS);
	assert_int_equal(ask(rig, &unmasked), HB_SPATIAL_WAIT);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
}

static void test_allowance_is_spent(void **state)
{
	struct low_rig *rig = *state;
	uint32_t launches = 0;
	let_beside(&rig->hp);
	learn_duration(rig->low, &unmasked, 2 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	int64_t allow_ns = rig->hp.beacon->allow_ns, price_ns = 0;
	assert_in_range(allow_ns, 95 * US, 105 * US);
	for (; ask(rig, &unmasked) == HB_SPATIAL_GO && launches < 100000; launches++) {
		price_ns += rig->answer.price_ns;
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	}
	assert_true(launches > 10 && launches < 100000);
	assert_true(price_ns <= allow_ns);
	assert_true(rig->answer.for_high);
}

static void test_slice_beside(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &plain, 900 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_SPLIT);
	assert_int_equal(rig->answer.ns, 100 * US);
	assert_in_range(rig->answer.part_ppm, 50000, 120000);
}

/* If the kernel costs more than HP allows, a part of it may still run. */
static void test_only_in_slices(void **state)
{
	struct low_rig *rig = *state;
	struct hb_spatial_shape uncut = plain;
	rig->low->limits.masks = false;
	let_beside(&rig->hp);
	uncut.key += 2;
	uncut.flags = HB_SPATIAL_MASKABLE;
	learn_duration(rig->low, &plain, 900 * US);
	learn_duration(rig->low, &uncut, 900 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &uncut), HB_SPATIAL_WAIT);
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_SPLIT);
	assert_true(rig->answer.price_ns > 0 && rig->answer.price_ns <= rig->hp.beacon->allow_ns);
	hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	/* The allowance is used up. */
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_WAIT);
	assert_true(rig->answer.for_high);
}

/* A kernel found not to be splittable is judged unsplit from then on. */
static void test_slices_that_are_not_possible(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &plain, 900 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_SPLIT);
	hb_spatial_whole(rig->low, rig->answer.kernel);
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_true(rig->answer.ns >= 900 * US);
}

/* Whatever the window, the next part is launched when the one before is about to end; without HP, all the rest. */
static void test_slices_tick(void **state)
{
	struct low_rig *rig = *state;
	struct hb_spatial_shape rest = plain;
	rig->low->limits.window_ns = rig->low->limits.beside_ns = rig->low->limits.mark_ns = 3 * MS;
	let_beside(&rig->hp);
	learn_duration(rig->low, &plain, 900 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_SPLIT);
	uint32_t mark = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	assert_int_not_equal(mark, 0);
	rest.left_ppm = HB_SPATIAL_PPM - rig->answer.part_ppm;
	assert_int_equal(ask(rig, &rest), HB_SPATIAL_WAIT);
	assert_false(rig->answer.for_high);
	rig->hp.now_ns += 60 * US;
	assert_int_equal(ask(rig, &rest), HB_SPATIAL_SPLIT);
	hb_spatial_high_end(&rig->hp.high, rig->hp.now_ns);
	assert_int_equal(ask(rig, &rest), HB_SPATIAL_GO);
	assert_true(rig->answer.part && rig->answer.ns > 700 * US);
}

/* Graphs are not masked or split: beside a request their duration decides; without a request they start. */
static void test_graphs_go_by_their_time(void **state)
{
	struct low_rig *rig = *state;
	struct hb_spatial_shape brief = graph;
	let_beside(&rig->hp);
	brief.key += 2;
	learn_duration(rig->low, &graph, 5 * MS);
	learn_duration(rig->low, &brief, 20 * US);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_WAIT);
	assert_true(rig->answer.for_high);
	assert_int_equal(ask(rig, &brief), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
	assert_true(rig->answer.price_ns > 0 && rig->answer.price_ns <= rig->hp.beacon->allow_ns);
	hb_spatial_high_end(&rig->hp.high, rig->hp.now_ns + MS);
	assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO);
}

/* Each part starts all blocks of the grid: with very many blocks the parts are longer, or the kernel is not split. */
static void test_slices_of_many_blocks(void **state)
{
	struct low_rig *rig = *state;
	struct hb_spatial_shape many = plain;
	let_beside(&rig->hp);
	many.key += 2;
	many.blocks = 40000;
	learn_duration(rig->low, &many, 2000 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->gap_ns = 100 * MS;
	assert_int_equal(ask(rig, &many), HB_SPATIAL_SPLIT);
	assert_int_equal(rig->answer.ns, 500 * US);
	many.key += 2;
	many.blocks = 400000;
	learn_duration(rig->low, &many, 2000 * US);
	assert_int_equal(ask(rig, &many), HB_SPATIAL_GO);
}

/* Kernels with long blocks are masked if HP starts often, not if it starts rarely; kernels with short blocks never. */
static void test_long_hold_while_absent(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 1400 * US);
	learn_duration(rig->low, &plain, 900 * US);
	rig->hp.beacon->gap_ns = 7 * MS;
	assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
	rig->hp.beacon->gap_ns = 100 * MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	rig->hp.beacon->expect_ns = rig->hp.now_ns + MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
	rig->hp.now_ns += MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
}

static void test_window(void **state)
{
	struct low_rig *rig = *state;
	uint32_t mark = 0;
	for (int i = 0; i < 8; i++)
		learn_duration(rig->low, &small, 25 * US);
	int launches = 0;
	for (; ask(rig, &small) == HB_SPATIAL_GO; launches++) {
		uint32_t value = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		mark = value ? value : mark;
	}
	assert_in_range(launches, 3, 4);
	assert_false(rig->answer.for_high);
	/* Passing time makes room, but never for much work that the counter does not confirm. */
	for (int i = 0; i < 100; i++) {
		rig->hp.now_ns += 20 * US;
		if (ask(rig, &small) == HB_SPATIAL_GO)
			launches++, hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	}
	assert_in_range(launches, 5, 12);
	rig->hp.now_ns += HB_SPATIAL_STUCK_NS;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
	hb_spatial_done(rig->low, &rig->stream, rig->stream.marked, 0, rig->hp.now_ns);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
	assert_true(mark > 0);
}

/* A mark follows each unknown kernel; the times of the counter become its duration. */
static void test_durations_are_learned(void **state)
{
	struct low_rig *rig = *state;
	free_beacon(rig->hp.beacon);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
		uint32_t mark = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		assert_true(mark > 0);
		rig->hp.now_ns += 603 * US;
		hb_spatial_done(rig->low, &rig->stream, mark, rig->hp.now_ns - US, rig->hp.now_ns);
	}
	const struct hb_spatial_kernel *kernel = hb_spatial_find(rig->low, persistent.key);
	assert_in_range(kernel->duration_ns, 595 * US, 605 * US);
	assert_int_equal(kernel->class, HB_SPATIAL_PERSISTENT);
	/* A late poll teaches nothing. */
	ask(rig, &persistent);
	uint32_t mark = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	rig->hp.now_ns += 6 * MS;
	hb_spatial_done(rig->low, &rig->stream, mark, rig->hp.now_ns - 5 * MS, rig->hp.now_ns);
	assert_in_range(kernel->duration_ns, 595 * US, 605 * US);
}

/* A kernel that only runs beside tokens with credit is known by its time there, until it runs alone. */
static void test_durations_beside_tokens_with_credit(void **state)
{
	struct low_rig *rig = *state;
	const struct hb_spatial_kernel *kernel;
	let_beside(&rig->hp);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->allow_ns = HB_SPATIAL_ALLOW_ALL;
	for (int i = 0; i < 2; i++) {
		bool alone = i == 1;
		if (alone)
			free_beacon(rig->hp.beacon);
		assert_int_equal(ask(rig, &graph), HB_SPATIAL_GO);
		uint32_t mark = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		assert_true(mark > 0);
		int64_t took_ns = alone ? 603 * US : 903 * US;
		rig->hp.now_ns += took_ns;
		hb_spatial_done(rig->low, &rig->stream, mark, rig->hp.now_ns - US, rig->hp.now_ns);
		kernel = hb_spatial_find(rig->low, graph.key);
		assert_in_range(kernel->duration_ns, alone ? 600 * US : 890 * US, alone ? 760 * US : 905 * US);
	}
}

/* Requests beside `shape` take excess_ns longer than alone. */
static void serve_beside(struct low_rig *rig, const struct hb_spatial_shape *shape, int64_t excess_ns)
{
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	if (ask(rig, shape) == HB_SPATIAL_GO) {
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	}
	for (uint32_t i = 0; i < 160; i++)
		hb_spatial_high_launch(&rig->hp.high, rig->hp.now_ns + 12 * US * i);
	rig->hp.now_ns += 2 * MS + (rig->hp.high.closed ? 0 : excess_ns);
	hb_spatial_high_end(&rig->hp.high, rig->hp.now_ns);
	rig->hp.now_ns += MS;
	ask(rig, shape);
}

static void test_harm_is_learned(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &small, 100 * US);
	uint32_t before = hb_spatial_find(rig->low, small.key)->harm_ppm[0];
	for (int i = 0; i < 300; i++)
		serve_beside(rig, &small, 20 * US);
	uint32_t harmful = hb_spatial_find(rig->low, small.key)->harm_ppm[0];
	assert_true(harmful > 5 * before);
	assert_in_range(harmful, 150000, 250000);
	for (int i = 0; i < 600; i++)
		serve_beside(rig, &small, 0);
	assert_true(hb_spatial_find(rig->low, small.key)->harm_ppm[0] < harmful / 8);
}

/* Between close requests LP is masked as beside them, and its host may run ahead; between others it has the entire GPU. */
static void test_close_requests(void **state)
{
	struct low_rig *rig = *state;
	int launches = 0;
	let_beside(&rig->hp);
	uint32_t allow_ns = rig->hp.beacon->allow_ns;
	learn_duration(rig->low, &small, 25 * US);
	learn_duration(rig->low, &plain, 900 * US);
	rig->hp.beacon->gap_ns = 2 * MS;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
	for (; ask(rig, &small) == HB_SPATIAL_GO; launches++)
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	assert_in_range(launches, 12, 20);
	hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	/* The next request allows nothing, so little may be in flight. */
	rig->hp.beacon->allow_ns = 0;
	for (launches = 0; ask(rig, &small) == HB_SPATIAL_GO; launches++)
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	assert_in_range(launches, 1, 3);
	rig->hp.beacon->allow_ns = allow_ns;
	hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	rig->hp.beacon->gap_ns = 50 * MS;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
}

/* No counter write tells LP that work behind the last mark is done. When the window shrinks below that work, LP must not wait for one. */
static void test_work_without_a_mark_does_not_hold(void **state)
{
	struct low_rig *rig = *state;
	uint32_t marks = 0;
	let_beside(&rig->hp);
	rig->low->limits.tight_ns = 12 * US;
	/* Launches of well-known duration get no mark before 30 us of work are behind the last one. */
	for (int i = 0; i < 100; i++) {
		rig->hp.now_ns += 3 * US;
		assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
		uint32_t mark = hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		rig->hp.now_ns += 5 * US;
		if (mark)
			hb_spatial_done(rig->low, &rig->stream, mark, rig->hp.now_ns, rig->hp.now_ns);
	}
	hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
		marks += hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer) != 0;
	}
	assert_int_equal(marks, 0);
	rig->hp.beacon->allow_ns = 0;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_WAIT);
	rig->hp.now_ns += 100 * US;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
	assert_true(hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer) > 0);
	/* Now there is a mark, and LP waits for it. */
	rig->hp.now_ns += 100 * US;
	assert_int_equal(ask(rig, &small), HB_SPATIAL_WAIT);
	hb_spatial_done(rig->low, &rig->stream, rig->stream.marked, rig->hp.now_ns, rig->hp.now_ns);
	assert_int_equal(ask(rig, &small), HB_SPATIAL_GO);
}

/* A new request is delayed by half of the work in flight; if it allows less, it finds LP masked. */
static void test_short_requests_find_low_masked(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &plain, 900 * US);
	rig->hp.beacon->gap_ns = 50 * MS;
	rig->hp.beacon->allow_ns = 51 * US;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 0);
	rig->hp.beacon->allow_ns = 49 * US;
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
}

/* Without masks the same request finds less in flight. */
static void test_short_requests_find_little_in_flight(void **state)
{
	struct low_rig *rig = *state;
	int launches[2] = {0, 0};
	let_beside(&rig->hp);
	rig->low->limits.masks = false;
	rig->low->limits.window_ns = 3 * MS;
	learn_duration(rig->low, &small, 25 * US);
	for (int i = 0; i < 2; i++) {
		rig->hp.beacon->allow_ns = i ? 100 * US : 2 * MS;
		while (ask(rig, &small) == HB_SPATIAL_GO) {
			hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
			launches[i]++;
		}
		hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	}
	assert_in_range(launches[0], 100, 200);
	assert_in_range(launches[1], 7, 20);
}

/* While HP allows nothing, kernels with long blocks are masked, however rare requests are. */
static void test_long_hold_while_gated(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 1400 * US);
	rig->hp.beacon->gap_ns = 100 * MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	rig->hp.beacon->allow_ns = 0;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
}

/* A thread sees a changed list, is interrupted, and writes its time after the boards were mapped again. */
static void test_a_late_thread_does_not_hide_the_next_change(void **state)
{
	(void)state;
	const int64_t second = 1000 * MS;
	_Atomic int64_t since = 0;
	assert_false(hb_spatial_assumes_unknown(&since, 7, 7, second));
	assert_true(hb_spatial_assumes_unknown(&since, 7, 8, second));
	assert_true(hb_spatial_assumes_unknown(&since, 7, 9, 3 * second - MS));
	assert_false(hb_spatial_assumes_unknown(&since, 7, 9, 3 * second)); /* LP does not wait for ever */
	since = 0;                                                          /* the boards of epoch 9 are mapped */
	assert_true(hb_spatial_assumes_unknown(&since, 7, 9, 4 * second));  /* the late thread */
	assert_false(hb_spatial_assumes_unknown(&since, 9, 9, 4 * second));
	assert_true(hb_spatial_assumes_unknown(&since, 9, 10, 60 * second));
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
		TEST(test_goes_freely_beside_tokens_with_credit),
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
		TEST(test_durations_beside_tokens_with_credit),
		TEST(test_harm_is_learned),
		TEST(test_close_requests),
		TEST(test_short_requests_find_low_masked),
		TEST(test_work_without_a_mark_does_not_hold),
		TEST(test_short_requests_find_little_in_flight),
		TEST(test_long_hold_while_gated),
		TEST(test_a_late_thread_does_not_hide_the_next_change),
	};
	return cmocka_run_group_tests(tests, 0, 0);
}
