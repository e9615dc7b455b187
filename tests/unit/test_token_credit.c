/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when LP may delay tokens (decide/token_credit.h). */
#include "decide/token_credit.h"

#include "base/rng.h"
#include "decide/token_pace.h"
#include "unit.h"

#define MS INT64_C(1000000)
#define SLO_NS (8 * MS)
#define TOKENS 4000

static void lp_may_delay_until_half_of_the_credit_is_used_up(void **state)
{
	struct hb_token_credit credit = {0};
	hb_token_credit_note(&credit, SLO_NS, MS, 1);
	assert_true(credit.is_open);
	hb_token_credit_note(&credit, SLO_NS, 9 * MS, 1);
	assert_true(credit.is_open);
	hb_token_credit_note(&credit, SLO_NS, 9 * MS, 1);
	assert_false(credit.is_open);
	assert_int_equal(credit.credit_ns, 7 * MS / 2);
}

static void it_takes_three_quarters_of_the_objective_to_begin(void **state)
{
	struct hb_token_credit credit = {0};
	hb_token_credit_note(&credit, SLO_NS, 4 * MS, 1);
	assert_false(credit.is_open);
	hb_token_credit_note(&credit, SLO_NS, 4 * MS, 1);
	assert_true(credit.is_open);
	/* Half of it is enough to continue. */
	hb_token_credit_note(&credit, SLO_NS, 10 * MS, 1);
	assert_true(credit.is_open);
}

static void the_next_token_may_use_up_the_credit(void **state)
{
	struct hb_token_credit credit = {0};
	assert_int_equal(hb_token_credit_most_ns(&credit, SLO_NS), 15 * MS / 2);
	hb_token_credit_note(&credit, SLO_NS, 3 * MS, 1);
	assert_int_equal(hb_token_credit_most_ns(&credit, SLO_NS), 12 * MS);
	hb_token_credit_note(&credit, SLO_NS, 16 * MS, 1);
	assert_int_equal(hb_token_credit_most_ns(&credit, SLO_NS), 7 * MS / 2);
	hb_token_credit_note(&credit, SLO_NS, 100 * MS, 1);
	assert_int_equal(hb_token_credit_most_ns(&credit, SLO_NS), -89 * MS);
}

static void a_long_calm_time_gives_the_credit_of_one_token(void **state)
{
	struct hb_token_credit credit = {0};
	for (int i = 0; i < 100; i++)
		hb_token_credit_note(&credit, SLO_NS, 2 * MS, 1);
	assert_int_equal(credit.credit_ns, SLO_NS);
}

static void the_caller_may_allow_more_credit(void **state)
{
	struct hb_token_credit credit = {0};
	for (int i = 0; i < 100; i++)
		hb_token_credit_note(&credit, SLO_NS, 2 * MS, 2);
	assert_int_equal(credit.credit_ns, 2 * SLO_NS);
}

static void old_debt_is_forgotten(void **state)
{
	struct hb_token_credit credit = {0};
	for (int i = 0; i < 100; i++)
		hb_token_credit_note(&credit, SLO_NS, 30 * MS, 1);
	assert_int_equal(credit.credit_ns, -HB_PACE_TOKENS * SLO_NS);
	for (int i = 0; i < 24; i++) /* 5.5 ms each: -128 to 4 ms */
		hb_token_credit_note(&credit, SLO_NS, 2 * MS, 1);
	assert_false(credit.is_open);
	hb_token_credit_note(&credit, SLO_NS, 2 * MS, 1);
	assert_true(credit.is_open);
}

/* Steps of 4 to 7.5 ms, which LP makes up to 11.5 ms long: every answer of 16 tokens keeps the objective. */
static void every_answer_keeps_the_objective(void **state)
{
	struct hb_token_credit credit = {0};
	struct hb_rng rng;
	int64_t took_ns[TOKENS];
	int delayed = 0;
	hb_rng_init(&rng, 7, 0);
	for (int i = 0; i < TOKENS; i++) {
		took_ns[i] = 4 * MS + (int64_t)hb_rng_below(&rng, 7 * MS / 2);
		if (credit.is_open) {
			took_ns[i] += (int64_t)hb_rng_below(&rng, 4 * MS);
			delayed++;
		}
		hb_token_credit_note(&credit, SLO_NS, took_ns[i], 1);
	}
	int64_t sum_ns = 0, longest_ns = 0;
	for (int i = 0; i < TOKENS; i++) {
		sum_ns += took_ns[i] - (i >= HB_PACE_TOKENS ? took_ns[i - HB_PACE_TOKENS] : 0);
		longest_ns = sum_ns > longest_ns ? sum_ns : longest_ns;
	}
	assert_true(longest_ns <= HB_PACE_TOKENS * SLO_NS);
	assert_true(longest_ns > HB_PACE_TOKENS * SLO_NS / 8 * 7);
	assert_true(delayed > TOKENS / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lp_may_delay_until_half_of_the_credit_is_used_up),
		cmocka_unit_test(it_takes_three_quarters_of_the_objective_to_begin),
		cmocka_unit_test(the_next_token_may_use_up_the_credit),
		cmocka_unit_test(a_long_calm_time_gives_the_credit_of_one_token),
		cmocka_unit_test(the_caller_may_allow_more_credit),
		cmocka_unit_test(old_debt_is_forgotten),
		cmocka_unit_test(every_answer_keeps_the_objective),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
