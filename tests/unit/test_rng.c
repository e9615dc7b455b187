/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: the same bits everywhere, and of the distribution they claim. */
#include "base/rng.h"
#include "unit.h"

#include <math.h>
#include <string.h>

#define DRAWS 200000

/* Made once with gcc; a compiler, machine or change that gives others breaks "one seed, the same run everywhere". */
static void one_seed_gives_these_bits(void **state)
{
	static const uint64_t expected[] = {
		UINT64_C(0x584870a53e6ddcdf),
		UINT64_C(0x24862b58ab088c44),
		UINT64_C(0xb77af7ea4c59709e),
		UINT64_C(0x3999723345bddfc3),
	};
	static const uint64_t expected_exponential_bits[] = {
		UINT64_C(0x41448887b6e62919), UINT64_C(0x4120a63685b482b4), UINT64_C(0x41158abd5e2d7a84),
		UINT64_C(0x41303b3763e0f9cc), UINT64_C(0x4136bdbc3b72fdfd), UINT64_C(0x411be7a45874964f),
		UINT64_C(0x4120962a1f8963ea), UINT64_C(0x410a68cbaffa1ef0),
	};
	struct hb_rng rng;
	hb_rng_init(&rng, 42, 1);
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
		assert_int_equal(hb_rng_u64(&rng), expected[i]);
	for (size_t i = 0; i < sizeof expected_exponential_bits / sizeof(uint64_t); i++) {
		double drawn = hb_rng_exponential(&rng, 1e6);
		uint64_t bits;
		memcpy(&bits, &drawn, sizeof bits);
		assert_int_equal(bits, expected_exponential_bits[i]);
	}
}

/* The generator's authors' own first outputs for state {1, 2, 3, 4}. */
static void generator_is_xoshiro256starstar(void **state)
{
	struct hb_rng rng = {{1, 2, 3, 4}};
	assert_int_equal(hb_rng_u64(&rng), 11520);
	assert_int_equal(hb_rng_u64(&rng), 0);
	assert_int_equal(hb_rng_u64(&rng), 1509978240);
	assert_int_equal(hb_rng_u64(&rng), 1215971899390074240);
}

static void seeds_and_streams_differ(void **state)
{
	uint64_t first[64];
	for (uint64_t seed = 0; seed < 8; seed++) {
		for (uint64_t stream = 0; stream < 8; stream++) {
			struct hb_rng rng;
			hb_rng_init(&rng, seed, stream);
			first[seed * 8 + stream] = hb_rng_u64(&rng);
		}
	}
	for (int i = 0; i < 64; i++)
		for (int j = 0; j < i; j++)
			assert_true(first[i] != first[j]);
}

static void doubles_fill_zero_to_one_evenly(void **state)
{
	struct hb_rng rng;
	unsigned tenths[10] = {0};
	hb_rng_init(&rng, 1, 0);
	for (int i = 0; i < DRAWS; i++) {
		double drawn = hb_rng_double(&rng);
		assert_true(drawn >= 0 && drawn < 1);
		tenths[(int)(drawn * 10)]++;
	}
	/* 5 standard deviations of a binomial(200000, 0.1). */
	for (int i = 0; i < 10; i++)
		assert_in_range(tenths[i], DRAWS / 10 - 671, DRAWS / 10 + 671);
}

static void bounded_draws_reach_every_value_below(void **state)
{
	struct hb_rng rng;
	unsigned sides[6] = {0};
	hb_rng_init(&rng, 1, 0);
	for (int i = 0; i < 6000; i++)
		sides[hb_rng_below(&rng, 6)]++;
	for (int i = 0; i < 6; i++)
		assert_in_range(sides[i], 1000 - 145, 1000 + 145);
	assert_int_equal(hb_rng_below(&rng, 1), 0);
}

static void exponential_has_its_mean_and_tail(void **state)
{
	struct hb_rng rng;
	double sum = 0;
	unsigned over_mean = 0;
	hb_rng_init(&rng, 1, 0);
	for (int i = 0; i < DRAWS; i++) {
		double drawn = hb_rng_exponential(&rng, 1000);
		assert_true(drawn > 0 && drawn < 40000);
		sum += drawn;
		over_mean += drawn > 1000;
	}
	/* 5 standard deviations: 1000 / sqrt(200000), and of a binomial(200000, 1/e). */
	assert_true(fabs(sum / DRAWS - 1000) < 11.2);
	assert_true(fabs(over_mean - DRAWS * 0.36787944) < 1079);
}

/* The logarithm behind hb_rng_exponential() is ours; libm's says how good it is. */
static void exponential_agrees_with_libm(void **state)
{
	struct hb_rng rng, copy;
	hb_rng_init(&rng, 9, 0);
	for (int i = 0; i < DRAWS; i++) {
		copy = rng;
		double uniform = ((double)(hb_rng_u64(&copy) >> 11) + 0.5) * 0x1p-53;
		double expected = -log(uniform);
		assert_true(fabs(hb_rng_exponential(&rng, 1) - expected) <= 1e-15 * expected + 1e-16);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_seed_gives_these_bits),
		cmocka_unit_test(generator_is_xoshiro256starstar),
		cmocka_unit_test(seeds_and_streams_differ),
		cmocka_unit_test(doubles_fill_zero_to_one_evenly),
		cmocka_unit_test(bounded_draws_reach_every_value_below),
		cmocka_unit_test(exponential_has_its_mean_and_tail),
		cmocka_unit_test(exponential_agrees_with_libm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
