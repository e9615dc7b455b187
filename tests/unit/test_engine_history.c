/* SPDX-License-Identifier: Apache-2.0 */
/* What `auto` remembers of pairs of programs: what a life must tell, whose it is, what makes room, and what is chosen by it. */
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

/* So many requests in ten seconds, and LP's launches in a second. */
static struct hb_engine_run life_of(const char *low, uint64_t met, uint64_t launches)
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

static struct hb_engine_pair *note(void **state, const char *high, const struct hb_engine_run *life,
				   enum hb_choose_engine engine)
{
	struct hb_engine_program program = program_of(high);
	return hb_engine_history_note(*state, &program, life, engine, TARGET);
}

static struct hb_engine_pair *find(void **state, const char *high, const char *low)
{
	struct hb_engine_program program = program_of(high), beside = {0};
	if (low)
		beside = program_of(low);
	return hb_engine_history_find(*state, &program, &beside);
}

static void test_a_life_must_tell_enough(void **state)
{
	struct hb_engine_run few = life_of("train", 900, 100), brief = few, alone = few;
	few.judged = HB_ENGINE_RUN_REQUESTS - 1;
	brief.beside_ns = HB_ENGINE_RUN_NS - 1;
	alone.low.key = 0;
	assert_null(note(state, "serve", &few, HB_CHOOSE_TEMPORAL));
	assert_null(note(state, "serve", &brief, HB_CHOOSE_TEMPORAL));
	assert_null(note(state, "serve", &alone, HB_CHOOSE_TEMPORAL));
	assert_null(find(state, "serve", NULL));
}

static void test_programs_are_told_apart(void **state)
{
	struct hb_engine_run life = life_of("train", 990, 100), other = life_of("train --large", 990, 100);
	struct hb_engine_program theirs;
	assert_non_null(note(state, "serve", &life, HB_CHOOSE_TEMPORAL));
	assert_ptr_equal(find(state, "serve", "train"), find(state, "serve", NULL));
	assert_null(find(state, "serve --port 1", "train"));
	assert_null(find(state, "serve", "train --large"));
	struct hb_engine_pair *large = note(state, "serve", &other, HB_CHOOSE_SPATIAL);
	assert_ptr_equal(find(state, "serve", NULL), large); /* the last one */
	assert_ptr_not_equal(find(state, "serve", "train"), large);
	hb_engine_program(&theirs, 1001, "serve");
	assert_null(hb_engine_history_find(*state, &theirs, &large->low));
}

/* Both are tried; then the one with more of LP where HP kept its objective in both. */
static void test_what_was_shown_decides(void **state)
{
	struct hb_engine_run temporal = life_of("train", 990, 100), spatial = life_of("train", 988, 150);
	struct hb_engine_pair *pair = note(state, "serve", &temporal, HB_CHOOSE_TEMPORAL);
	assert_int_equal(hb_choose_next(&pair->choose, TARGET, true), HB_CHOOSE_SPATIAL);
	assert_int_equal(hb_choose_next(&pair->choose, TARGET, false), HB_CHOOSE_TEMPORAL);
	assert_ptr_equal(note(state, "serve", &spatial, HB_CHOOSE_SPATIAL), pair);
	assert_in_range(pair->choose.records[HB_CHOOSE_SPATIAL].low_ppm, 1499000, 1501000);
	assert_int_equal(hb_choose_next(&pair->choose, TARGET, true), HB_CHOOSE_SPATIAL);
	char text[200];
	hb_engine_pair_text(pair, text, sizeof text);
	assert_string_equal(text,
			    "temporal 99.0 % met, low at 100 % (1 run); spatial 98.8 % met, low at 150 % (1 run)");
}

static void test_harm_to_high_decides_first(void **state)
{
	struct hb_engine_run temporal = life_of("train", 990, 100), spatial = life_of("train", 900, 300);
	struct hb_engine_pair *pair = note(state, "serve", &temporal, HB_CHOOSE_TEMPORAL);
	note(state, "serve", &spatial, HB_CHOOSE_SPATIAL);
	assert_int_equal(hb_choose_next(&pair->choose, TARGET, true), HB_CHOOSE_TEMPORAL);
}

/* LP that never got anything in its first life is measured by the first in which it did. */
static void test_no_launches_are_no_measure(void **state)
{
	struct hb_engine_run none = life_of("train", 990, 0), some = life_of("train", 990, 50);
	struct hb_engine_pair *pair = note(state, "serve", &none, HB_CHOOSE_TEMPORAL);
	assert_int_equal(pair->choose.records[HB_CHOOSE_TEMPORAL].low_ppm, 0);
	note(state, "serve", &some, HB_CHOOSE_SPATIAL);
	assert_int_equal(pair->choose.records[HB_CHOOSE_SPATIAL].low_ppm, 1000000);
	assert_int_equal(hb_choose_next(&pair->choose, TARGET, true), HB_CHOOSE_SPATIAL);
}

static void test_the_oldest_makes_room(void **state)
{
	struct hb_engine_run life = life_of("train", 990, 100);
	char name[32];
	for (int i = 0; i < HB_ENGINE_PAIRS; i++) {
		snprintf(name, sizeof name, "serve %d", i);
		note(state, name, &life, HB_CHOOSE_TEMPORAL);
	}
	note(state, "serve 0", &life, HB_CHOOSE_TEMPORAL); /* used again */
	note(state, "one more", &life, HB_CHOOSE_TEMPORAL);
	assert_non_null(find(state, "serve 0", "train"));
	assert_null(find(state, "serve 1", "train"));
	assert_non_null(find(state, "one more", "train"));
}

/* A text that does not fit is cut, never written past. */
static void test_short_room_for_text(void **state)
{
	struct hb_engine_run life = life_of("train", 990, 100);
	const struct hb_engine_pair *pair = note(state, "serve", &life, HB_CHOOSE_TEMPORAL);
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
		TEST(test_a_life_must_tell_enough),    TEST(test_programs_are_told_apart),
		TEST(test_what_was_shown_decides),     TEST(test_harm_to_high_decides_first),
		TEST(test_no_launches_are_no_measure), TEST(test_the_oldest_makes_room),
		TEST(test_short_room_for_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
