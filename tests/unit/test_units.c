/* SPDX-License-Identifier: Apache-2.0 */
/* Durations and sizes: what is accepted, what is refused and how that is said, and that nothing is rounded. */
#include "base/rng.h"
#include "base/units.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

static void durations_have_every_unit(void **state)
{
	static const struct {
		const char *text;
		int64_t ns;
	} cases[] = {
		{"10ms", 10000000},
		{"250us", 250000},
		{"1.5s", 1500000000},
		{"7ns", 7},
		{"0", 0},
		{"0s", 0},
		{"2min", 120 * INT64_C(1000000000)},
		{"0.001us", 1},
		{"1h", 3600 * INT64_C(1000000000)},
		{"9223372036854775807ns", INT64_MAX},
		{"00010.500ms", 10500000},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t ns = -1;
		assert_int_equal(hb_duration_parse(cases[i].text, &ns, NULL), 0);
		assert_int_equal(ns, cases[i].ns);
	}
}

static void bad_durations_are_refused_and_named(void **state)
{
	static const char *const cases[] = {
		"",      "ms",   "10",   "-1ms", "+1ms",  "10 ms", "10MS",  "1.ms", ".5ms",
		"1..5s", "1e3s", "nans", "infs", "10msx", "0x10s", "0.5ns", "1,5s",
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hb_error error = {""};
		int64_t ns = 77;
		assert_int_equal(hb_duration_parse(cases[i], &ns, &error), -EINVAL);
		assert_int_equal(ns, 77);
		assert_non_null(strstr(error.text, cases[i]));
	}
}

static void too_long_durations_are_out_of_range(void **state)
{
	static const char *const cases[] = {"9223372036854775808ns", "300000000h", "123456789012345678901234567890ms"};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t ns;
		assert_int_equal(hb_duration_parse(cases[i], &ns, NULL), -ERANGE);
	}
}

static void durations_print_in_the_unit_that_fits(void **state)
{
	char text[HB_UNITS_TEXT_MAX];
	assert_string_equal(hb_duration_format(0, text), "0ns");
	assert_string_equal(hb_duration_format(999, text), "999ns");
	assert_string_equal(hb_duration_format(1500000, text), "1.5ms");
	assert_string_equal(hb_duration_format(2425317, text), "2.425317ms");
	assert_string_equal(hb_duration_format(-10000, text), "-10us");
	assert_string_equal(hb_duration_format(1000000001, text), "1.000000001s");
	assert_string_equal(hb_duration_format(INT64_MIN, text), "-9223372036.854775808s");
}

static void any_duration_survives_printing_and_parsing(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 1, 0);
	for (int i = 0; i < 10000; i++) {
		char text[HB_UNITS_TEXT_MAX];
		int64_t back_ns = -1, ns = (int64_t)(hb_rng_u64(&rng) >> (1 + hb_rng_below(&rng, 62)));
		assert_int_equal(hb_duration_parse(hb_duration_format(ns, text), &back_ns, NULL), 0);
		assert_int_equal(back_ns, ns);
	}
}

static void sizes_have_binary_and_decimal_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"0", 0},       {"1B", 1},        {"512MiB", 536870912}, {"1.5GiB", 1610612736},
		{"4096", 4096}, {"64KiB", 65536}, {"80GB", 80000000000}, {"2TiB", UINT64_C(2) << 40},
		{"1kB", 1000},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t bytes = 1234;
		assert_int_equal(hb_bytes_parse(cases[i].text, &bytes, NULL), 0);
		assert_int_equal(bytes, cases[i].bytes);
	}
}

static void bad_sizes_are_refused_and_named(void **state)
{
	static const char *const cases[] = {"8G", "8gib", "-1MiB", "0.3B", "GiB", "1.0000001KiB"};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hb_error error = {""};
		uint64_t bytes = 77;
		assert_int_equal(hb_bytes_parse(cases[i], &bytes, &error), -EINVAL);
		assert_int_equal(bytes, 77);
		assert_non_null(strstr(error.text, cases[i]));
	}
	uint64_t bytes;
	assert_int_equal(hb_bytes_parse("9000000TiB", &bytes, NULL), -ERANGE);
}

static void sizes_of_memory_below_one_mib_are_refused(void **state)
{
	static const char *const cases[] = {"1", "40", "1048575", "64KiB"};
	struct hb_error error = {""};
	uint64_t bytes = 77;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(hb_memory_parse(cases[i], &bytes, &error), -EINVAL);
		assert_int_equal(bytes, 77);
		assert_non_null(strstr(error.text, "less than 1MiB"));
	}
	assert_int_equal(hb_memory_parse("0", &bytes, &error), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(hb_memory_parse("1048576", &bytes, &error), 0);
	assert_int_equal(bytes, 1 << 20);
	assert_int_equal(hb_memory_parse("lots", &bytes, &error), -EINVAL);
}

static void sizes_print_for_people(void **state)
{
	char text[HB_UNITS_TEXT_MAX];
	assert_string_equal(hb_bytes_format(0, text), "0B");
	assert_string_equal(hb_bytes_format(1023, text), "1023B");
	assert_string_equal(hb_bytes_format(1610612736, text), "1.5GiB");
	assert_string_equal(hb_bytes_format(UINT64_C(64) << 20, text), "64MiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations_have_every_unit),
		cmocka_unit_test(bad_durations_are_refused_and_named),
		cmocka_unit_test(too_long_durations_are_out_of_range),
		cmocka_unit_test(durations_print_in_the_unit_that_fits),
		cmocka_unit_test(any_duration_survives_printing_and_parsing),
		cmocka_unit_test(sizes_have_binary_and_decimal_units),
		cmocka_unit_test(bad_sizes_are_refused_and_named),
		cmocka_unit_test(sizes_of_memory_below_one_mib_are_refused),
		cmocka_unit_test(sizes_print_for_people),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
