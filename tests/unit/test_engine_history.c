/* SPDX-License-Identifier: Apache-2.0 */
/* The history of `engine: auto`: which runs count, which programs differ, which pair is replaced, and which engine is chosen. */
#include "daemon/engine_history.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGET 990000

static struct hb_engine_program program_of(const char *command)
{
	struct hb_engine_program program;
	hb_engine_program(&program, 1000, command);
	return program;
}

/* Makes a run of ten seconds with 1000 requests, of which `met` met the SLO, and `launches` launches of LP in each second. */
static struct hb_engine_run make_run(const char *low, uint64_t met, uint64_t launches)
{
	return (struct hb_engine_run){.low = program_of(low),
				      .judged = 1000,
				      .met = met,
				      .low_launches = 10 * launches,
				      .beside_ns = 10 * HB_ENGINE_RUN_NS};
}

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct hb_engine_history));
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static struct hb_engine_pair *note(void **state, const char *high, const struct hb_engine_run *run,
				   enum hb_engine_auto_choice engine)
{
	struct hb_engine_program program = program_of(high);
	return hb_engine_history_note(*state, &program, run, engine, TARGET);
}

static struct hb_engine_pair *find(void **state, const char *high, const char *low)
{
	struct hb_engine_program program = program_of(high), beside = {0};
	if (low)
		beside = program_of(low);
	return hb_engine_history_find(*state, &program, &beside);
}

static void a_short_run_is_not_judged(void **state)
{
	struct hb_engine_run few = make_run("train", 900, 100), brief = few, alone = few;
	few.judged = HB_ENGINE_RUN_REQUESTS - 1;
	brief.beside_ns = HB_ENGINE_RUN_NS - 1;
	alone.low.key = 0;
	assert_null(note(state, "serve", &few, HB_ENGINE_AUTO_TEMPORAL));
	assert_null(note(state, "serve", &brief, HB_ENGINE_AUTO_TEMPORAL));
	assert_null(note(state, "serve", &alone, HB_ENGINE_AUTO_TEMPORAL));
	assert_null(find(state, "serve", NULL));
}

static void programs_of_different_users_or_commands_differ(void **state)
{
	struct hb_engine_run run = make_run("train", 990, 100), other = make_run("train --large", 990, 100);
	struct hb_engine_program theirs;
	assert_non_null(note(state, "serve", &run, HB_ENGINE_AUTO_TEMPORAL));
	assert_ptr_equal(find(state, "serve", "train"), find(state, "serve", NULL));
	assert_null(find(state, "serve --port 1", "train"));
	assert_null(find(state, "serve", "train --large"));
	struct hb_engine_pair *large = note(state, "serve", &other, HB_ENGINE_AUTO_SPATIAL);
	assert_ptr_equal(find(state, "serve", NULL), large); /* the most recent pair */
	assert_ptr_not_equal(find(state, "serve", "train"), large);
	hb_engine_program(&theirs, 1001, "serve");
	assert_null(hb_engine_history_find(*state, &theirs, &large->low));
}

/* Both engines are tried. If HP met its objective in both, the engine with more LP progress is chosen. */
static void the_engine_with_more_low_progress_is_chosen(void **state)
{
	struct hb_engine_run temporal = make_run("train", 990, 100), spatial = make_run("train", 988, 150);
	struct hb_engine_pair *pair = note(state, "serve", &temporal, HB_ENGINE_AUTO_TEMPORAL);
	assert_int_equal(hb_engine_auto_next(&pair->choose, TARGET, true), HB_ENGINE_AUTO_SPATIAL);
	assert_int_equal(hb_engine_auto_next(&pair->choose, TARGET, false), HB_ENGINE_AUTO_TEMPORAL);
	assert_ptr_equal(note(state, "serve", &spatial, HB_ENGINE_AUTO_SPATIAL), pair);
	assert_in_range(pair->choose.records[HB_ENGINE_AUTO_SPATIAL].low_ppm, 1499000, 1501000);
	assert_int_equal(hb_engine_auto_next(&pair->choose, TARGET, true), HB_ENGINE_AUTO_SPATIAL);
	char text[200];
	hb_engine_pair_text(pair, text, sizeof text);
	assert_string_equal(text,
			    "temporal 99.0 % met, low at 100 % (1 run); spatial 98.8 % met, low at 150 % (1 run)");
}

static void an_engine_that_misses_the_slo_is_not_chosen(void **state)
{
	struct hb_engine_run temporal = make_run("train", 990, 100), spatial = make_run("train", 900, 300);
	struct hb_engine_pair *pair = note(state, "serve", &temporal, HB_ENGINE_AUTO_TEMPORAL);
	note(state, "serve", &spatial, HB_ENGINE_AUTO_SPATIAL);
	assert_int_equal(hb_engine_auto_next(&pair->choose, TARGET, true), HB_ENGINE_AUTO_TEMPORAL);
}

/* If LP launched nothing in the first run, the first run with launches is the reference. */
static void a_run_without_low_launches_is_no_reference(void **state)
{
	struct hb_engine_run none = make_run("train", 990, 0), some = make_run("train", 990, 50);
	struct hb_engine_pair *pair = note(state, "serve", &none, HB_ENGINE_AUTO_TEMPORAL);
	assert_int_equal(pair->choose.records[HB_ENGINE_AUTO_TEMPORAL].low_ppm, 0);
	note(state, "serve", &some, HB_ENGINE_AUTO_SPATIAL);
	assert_int_equal(pair->choose.records[HB_ENGINE_AUTO_SPATIAL].low_ppm, 1000000);
	assert_int_equal(hb_engine_auto_next(&pair->choose, TARGET, true), HB_ENGINE_AUTO_SPATIAL);
}

static void a_new_pair_replaces_the_least_recently_used(void **state)
{
	struct hb_engine_run run = make_run("train", 990, 100);
	char name[32];
	for (int i = 0; i < HB_ENGINE_PAIRS; i++) {
		snprintf(name, sizeof name, "serve %d", i);
		note(state, name, &run, HB_ENGINE_AUTO_TEMPORAL);
	}
	note(state, "serve 0", &run, HB_ENGINE_AUTO_TEMPORAL); /* used again */
	note(state, "one more", &run, HB_ENGINE_AUTO_TEMPORAL);
	assert_non_null(find(state, "serve 0", "train"));
	assert_null(find(state, "serve 1", "train"));
	assert_non_null(find(state, "one more", "train"));
}

/* A text that does not fit is cut; nothing is written beyond the buffer. */
static void a_text_is_cut_to_its_buffer(void **state)
{
	struct hb_engine_run run = make_run("train", 990, 100);
	const struct hb_engine_pair *pair = note(state, "serve", &run, HB_ENGINE_AUTO_TEMPORAL);
	char text[48], whole[200];
	hb_engine_pair_text(pair, whole, sizeof whole);
	for (size_t size = 1; size < sizeof text; size++) {
		memset(text, '#', sizeof text);
		hb_engine_pair_text(pair, text, size);
		assert_true(strlen(text) < size && strncmp(text, whole, strlen(text)) == 0);
		assert_int_equal(text[size], '#');
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_short_run_is_not_judged),
		TEST(programs_of_different_users_or_commands_differ),
		TEST(the_engine_with_more_low_progress_is_chosen),
		TEST(an_engine_that_misses_the_slo_is_not_chosen),
		TEST(a_run_without_low_launches_is_no_reference),
		TEST(a_new_pair_replaces_the_least_recently_used),
		TEST(a_text_is_cut_to_its_buffer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
