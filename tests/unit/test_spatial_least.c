/* SPDX-License-Identifier: Apache-2.0 */
/* LP's guaranteed minimum in the spatial engine: when HP's terms are relaxed for LP, and when not. */
#include "decide/spatial_least.h"
#include "unit.h"

#define MS INT64_C(1000000)
#define SMS 100

static const struct hb_spatial_view gated = {.tenants = 1, .present = true, .reserve = 90};

/* Looks every 100 us for `ns`. Returns the time in which the terms were relaxed; LP runs then if `runs`. */
static int64_t look_for(struct hb_spatial_least *least, struct hb_spatial_stream *stream, int64_t *now_ns, int64_t ns,
			bool runs)
{
	int64_t relaxed_ns = 0;
	for (int64_t end_ns = *now_ns + ns; *now_ns < end_ns; *now_ns += MS / 10) {
		struct hb_spatial_view view = gated;
		hb_spatial_least_relax(least, stream, SMS, *now_ns, &view);
		assert_int_equal(view.reserve, view.granted ? 80 : 90);
		assert_int_equal(view.allow_ns > 0, view.granted);
		relaxed_ns += view.granted ? MS / 10 : 0;
		stream->marked = stream->done + (view.granted && runs);
	}
	return relaxed_ns;
}

static void lp_that_is_always_gated_runs_for_its_minimum(void **state)
{
	struct hb_spatial_least least = {.ppm = 200000};
	struct hb_spatial_stream stream = {0};
	const struct hb_spatial_answer answer = {.sms = 50};
	int64_t now_ns = 0;
	assert_int_equal(look_for(&least, &stream, &now_ns, 240 * MS, true),
			 0); /* a quarter of a second's minimum first */
	hb_spatial_least_note(&least, SMS, &answer);
	int64_t relaxed_ns = look_for(&least, &stream, &now_ns, 10000 * MS, true);
	/* Half of the SMs for 40 % of the time. */
	assert_in_range(relaxed_ns, 3800 * MS, 4300 * MS);
}

static void a_process_that_launches_nothing_is_owed_nothing(void **state)
{
	struct hb_spatial_least least = {.ppm = 200000};
	struct hb_spatial_stream stream = {0};
	for (int64_t now_ns = 0; now_ns < 100000 * MS; now_ns += 5000 * MS) {
		struct hb_spatial_view view = gated;
		hb_spatial_least_relax(&least, &stream, SMS, now_ns, &view);
		assert_false(view.granted);
	}
}

static void without_a_minimum_nothing_changes(void **state)
{
	struct hb_spatial_least least = {.ppm = 0};
	struct hb_spatial_stream stream = {0};
	int64_t now_ns = 0;
	assert_int_equal(look_for(&least, &stream, &now_ns, 10000 * MS, false), 0);
}

static void debts_are_forgotten_after_a_second(void **state)
{
	struct hb_spatial_least least = {.ppm = 200000};
	struct hb_spatial_stream stream = {0};
	int64_t now_ns = 0;
	look_for(&least, &stream, &now_ns, 60000 * MS, false);
	assert_int_equal(least.owed_ns, 200 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lp_that_is_always_gated_runs_for_its_minimum),
		cmocka_unit_test(a_process_that_launches_nothing_is_owed_nothing),
		cmocka_unit_test(without_a_minimum_nothing_changes),
		cmocka_unit_test(debts_are_forgotten_after_a_second),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
