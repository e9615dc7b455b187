/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of memory channels, made from the times of a synthetic GPU with 94 classes. Its times have noise, drift and
 * interruptions. A test takes 8 us on an H200, so 80 pages in 60 s allow 7.5 million tests.
 */
#include "nvidia/channel_find.h"

#include "unit.h"

#include <errno.h>
#include <string.h>

enum { CLASSES = 94, PAGES = 80, PARTS = 4, PAGE_UNITS = HB_CHANNEL_PAGE_UNITS };
#define TEST_US 8
#define SAME_CYCLES 22106
#define DIFFERENT_CYCLES 11297

static struct {
	struct hb_rng rng;
	uint16_t class_of[PAGES * PAGE_UNITS];
	uint64_t tests, tests_most; /* after tests_most tests the time is over */
	double slow, fast;          /* probability of an interruption, and of a time that is too short */
	bool flat;                  /* all pairs take the same time */
	int error;
} gpu;

/* Parts of a page that have a relation of their own: by the parity of some bits, as in a hash of addresses. */
static unsigned find_part(uint32_t unit)
{
	return (unsigned)(__builtin_parity(unit & 0x2d5) << 1 | __builtin_parity(unit & 0x51a));
}

/* Page 0 is random. Each other page repeats it part by part, but every tenth page has no relation to another. */
static void make_gpu(uint64_t seed, bool related)
{
	memset(&gpu, 0, sizeof gpu);
	hb_rng_init(&gpu.rng, seed, 1);
	gpu.tests_most = UINT64_MAX;
	gpu.slow = 0.002;
	gpu.fast = 0.0005;
	for (uint32_t page = 0; page < PAGES; page++) {
		uint32_t with[PARTS];
		bool alone = !related || page % 10 == 0;
		for (int part = 0; part < PARTS; part++)
			with[part] = (uint32_t)hb_rng_below(&gpu.rng, PAGE_UNITS);
		for (uint32_t unit = 0; unit < PAGE_UNITS; unit++)
			gpu.class_of[page * PAGE_UNITS + unit] = alone ? (uint16_t)hb_rng_below(&gpu.rng, CLASSES)
								       : gpu.class_of[unit ^ with[find_part(unit)]];
	}
}

/* The four pieces of a unit belong to two classes in turn. */
static uint32_t get_class(uint64_t offset)
{
	uint32_t class = gpu.class_of[offset / HB_CHANNEL_UNIT_BYTES];
	return class * 2 + offset / 256 % 2;
}

static int measure(void *user, const struct hb_channel_pair *pairs, uint32_t n, uint32_t *cycles)
{
	(void)user;
	assert_true(n > 0 && n <= HB_CHANNEL_TESTS_MOST);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(pairs[i].a < sizeof gpu.class_of / 2 * HB_CHANNEL_UNIT_BYTES &&
			    pairs[i].b < sizeof gpu.class_of / 2 * HB_CHANNEL_UNIT_BYTES);
		bool same = !gpu.flat && get_class(pairs[i].a) == get_class(pairs[i].b);
		double noise = 0.9 + 0.2 * hb_rng_double(&gpu.rng), chance = hb_rng_double(&gpu.rng);
		double drift = 1 + 0.05 * (double)(gpu.tests++ % 1000000) / 1e6;
		noise *= chance < gpu.slow ? 3 : chance > 1 - gpu.fast ? 0.5 : 1;
		cycles[i] = (uint32_t)(drift * noise * (same ? SAME_CYCLES : DIFFERENT_CYCLES));
	}
	return gpu.tests > gpu.tests_most ? -ETIME : gpu.error;
}

/* Returns how many units have the class that the GPU gives them. A found class stands for the GPU's class of its first unit. */
static uint32_t count_right(const struct hb_channel_map *map)
{
	int32_t true_class[HB_CHANNEL_CLASSES_MOST];
	uint32_t right = 0;
	memset(true_class, -1, sizeof true_class);
	for (uint32_t i = 0; i < map->n_pages * PAGE_UNITS; i++) {
		assert_in_range(map->class_of[i], 0, map->n_classes - 1);
		int32_t *known = &true_class[map->class_of[i]];
		if (*known < 0)
			*known = gpu.class_of[i];
		right += *known == gpu.class_of[i];
	}
	return right;
}

static void eighty_pages_are_mapped_within_a_minute(void **state)
{
	(void)state;
	struct hb_channel_check check;
	make_gpu(1, true);
	struct hb_channel_finder *finder = hb_channel_finder_new(measure, NULL, 7);
	const struct hb_channel_map *map = hb_channel_map_of(finder);
	assert_int_equal(hb_channel_find(finder, PAGES), 0);
	assert_int_equal(map->n_pages, PAGES);
	assert_int_equal(map->n_classes, CLASSES);
	assert_true(count_right(map) >= PAGES * PAGE_UNITS / 1000 * 999);
	assert_int_equal(map->tests, gpu.tests);
	assert_true(map->tests * TEST_US < 60 * 1000000);
	/* Eight pages of ten are related (page 0 has no earlier page), and most of their classes are guessed. */
	assert_in_range(map->related, 70, 72);
	assert_true(map->guessed > 72 * PAGE_UNITS * 8 / 10);
	assert_int_equal(hb_channel_check_units(finder, 4096, &check), 0);
	assert_int_equal(check.units, 4096);
	assert_true(check.repeated >= check.units / 1000 * 999);
	/* Pieces 1 and 3 are in the other class. */
	assert_true(check.pieces[0] < 100 && check.pieces[1] > 3996 && check.pieces[2] < 100);
	hb_channel_finder_free(finder);
}

static void relations_save_most_tests(void **state)
{
	(void)state;
	uint64_t tests[2];
	for (int related = 0; related < 2; related++) {
		make_gpu(2, related);
		struct hb_channel_finder *finder = hb_channel_finder_new(measure, NULL, 7);
		assert_int_equal(hb_channel_find(finder, 9), 0);
		assert_true(count_right(hb_channel_map_of(finder)) >= 9 * PAGE_UNITS / 1000 * 999);
		assert_true(related || hb_channel_map_of(finder)->related == 0);
		tests[related] = gpu.tests;
		hb_channel_finder_free(finder);
	}
	assert_true(tests[1] * 3 < tests[0]);
}

static void a_gpu_without_differences_has_no_map(void **state)
{
	(void)state;
	make_gpu(3, true);
	gpu.flat = true;
	struct hb_channel_finder *finder = hb_channel_finder_new(measure, NULL, 7);
	assert_int_equal(hb_channel_find(finder, 1), -ENOTSUP);
	assert_int_equal(hb_channel_map_of(finder)->n_pages, 0);
	hb_channel_finder_free(finder);
}

static void the_second_look_finds_a_map_that_does_not_hold(void **state)
{
	(void)state;
	struct hb_channel_check check;
	make_gpu(4, true);
	struct hb_channel_finder *finder = hb_channel_finder_new(measure, NULL, 7);
	assert_int_equal(hb_channel_check_units(finder, 1, &check), -EINVAL);
	assert_int_equal(hb_channel_find(finder, 2), 0);
	for (uint32_t i = 0; i < 2 * PAGE_UNITS; i += 10)
		gpu.class_of[i] = (uint16_t)((gpu.class_of[i] + 1) % CLASSES);
	assert_int_equal(hb_channel_check_units(finder, 4000, &check), 0);
	/* A tenth of the units moved, and about a tenth of the units that stand for a class, each of which loses its class. */
	assert_in_range(check.repeated, 4000 * 6 / 10, 4000 * 92 / 100);
	hb_channel_finder_free(finder);
}

static void complete_pages_are_kept_when_the_time_is_over(void **state)
{
	(void)state;
	make_gpu(5, true);
	struct hb_channel_finder *finder = hb_channel_finder_new(measure, NULL, 7);
	gpu.tests_most = 200000;
	assert_int_equal(hb_channel_find(finder, PAGES), -ETIME);
	const struct hb_channel_map *map = hb_channel_map_of(finder);
	assert_in_range(map->n_pages, 2, PAGES - 1);
	assert_true(count_right(map) >= map->n_pages * PAGE_UNITS / 1000 * 999);
	gpu.tests_most = UINT64_MAX;
	gpu.error = -EIO;
	assert_int_equal(hb_channel_find(finder, 1), -EIO);
	hb_channel_finder_free(finder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eighty_pages_are_mapped_within_a_minute),
		cmocka_unit_test(relations_save_most_tests),
		cmocka_unit_test(a_gpu_without_differences_has_no_map),
		cmocka_unit_test(the_second_look_finds_a_map_that_does_not_hold),
		cmocka_unit_test(complete_pages_are_kept_when_the_time_is_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
