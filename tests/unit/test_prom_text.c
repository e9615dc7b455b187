/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text: names, escapes, exact seconds, histograms. What a scraper makes of a whole answer: test_metrics.py. */
#include "unit.h"

#include "base/hist.h"
#include "base/prom_text.h"

#include <stdlib.h>
#include <string.h>

static char *text;
static size_t length;

static FILE *begin(void)
{
	return open_memstream(&text, &length);
}

static void expect(FILE *out, const char *expected)
{
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void counters_are_named_by_their_unit(void **state)
{
	char name[HB_PROM_NAME_MAX];
	struct hb_counter_info rows[] = {{"launches", "1", ""}, {"gate_wait", "ns", ""}, {"copied", "bytes", ""}};
	assert_string_equal(hb_prom_counter_name("shim", &rows[0], name), "hb_shim_launches_total");
	assert_string_equal(hb_prom_counter_name("shim", &rows[1], name), "hb_shim_gate_wait_seconds_total");
	assert_string_equal(hb_prom_counter_name("shim", &rows[2], name), "hb_shim_copied_bytes_total");
}

static void values_are_exact_and_in_base_units(void **state)
{
	FILE *out = begin();
	struct hb_counter_info wait = {"gate_wait", "ns", "time at the gate"};
	hb_prom_family(out, "hb_wait_seconds_total", HB_PROM_COUNTER, wait.description);
	hb_prom_counter(out, "hb_wait_seconds_total", "tenant=\"3\"", &wait, 12345678901);
	hb_prom_count(out, "hb_n", "", UINT64_MAX);
	hb_prom_ratio(out, "hb_r", "", 990000);
	expect(out, "# HELP hb_wait_seconds_total time at the gate\n# TYPE hb_wait_seconds_total counter\n"
		    "hb_wait_seconds_total{tenant=\"3\"} 12.345678901\n"
		    "hb_n 18446744073709551615\n"
		    "hb_r 0.990000\n");
}

static void labels_are_escaped_and_never_cut_inside_an_escape(void **state)
{
	char label[16];
	size_t n = hb_prom_label(label, sizeof label, "a", "x\"\\\n");
	assert_int_equal(n, strlen(label));
	assert_string_equal(label, "a=\"x\\\"\\\\\\n\"");
	n = hb_prom_label(label, 8, "a", "x\"yy");
	assert_int_equal(n, strlen(label));
	assert_string_equal(label, "a=\"x\\\"\"");
	hb_prom_label(label, 7, "a", "x\"yy");
	assert_string_equal(label, "a=\"x\"");
	assert_int_equal(hb_prom_label(label, 4, "name", "x"), 0);
	assert_string_equal(label, "");
}

/* The value after `line` in what was written. */
static uint64_t value_of(const char *line)
{
	const char *found = strstr(text, line);
	assert_non_null(found);
	return strtoull(found + strlen(line), NULL, 10);
}

static void histograms_count_every_sample_once(void **state)
{
	static struct hb_hist hist;
	FILE *out = begin();
	const int64_t samples[] = {0, 10000, 10500, 999, 3000000, 20000000000};
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
		hb_hist_record(&hist, samples[i]);
	hb_prom_histogram(out, "h", "a=\"b\"", &hist);
	fclose(out);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"1e-05\"} "), 3);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"2.5e-05\"} "), 4);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"0.0025\"} "), 4);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"0.005\"} "), 5);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"10\"} "), 5);
	assert_int_equal(value_of("h_bucket{a=\"b\",le=\"+Inf\"} "), 6);
	assert_int_equal(value_of("h_count{a=\"b\"} "), 6);
	assert_non_null(strstr(text, "h_sum{a=\"b\"} 20.003021499\n"));
	free(text);
}

static void no_histogram_is_an_empty_one(void **state)
{
	FILE *out = begin();
	hb_prom_histogram(out, "h", "", NULL);
	fclose(out);
	assert_int_equal(value_of("h_bucket{le=\"+Inf\"} "), 0);
	assert_non_null(strstr(text, "h_sum 0.000000000\nh_count 0\n"));
	free(text);
}

/* One pass says the same as a count for each bound. */
static void cumulating_agrees_with_counting(void **state)
{
	static struct hb_hist hist;
	int64_t bounds[] = {-1, 0, 999, 1024, 5000, 1000000, 1000001, INT64_MAX};
	uint64_t at_most[8];
	for (int64_t i = 0; i < 3000; i++)
		hb_hist_record(&hist, i * i);
	hb_hist_cumulate(&hist, bounds, 8, at_most);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(at_most[i], hb_hist_count_at_most(&hist, bounds[i]));
	assert_int_equal(at_most[7], 3000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_are_named_by_their_unit),
		cmocka_unit_test(values_are_exact_and_in_base_units),
		cmocka_unit_test(labels_are_escaped_and_never_cut_inside_an_escape),
		cmocka_unit_test(histograms_count_every_sample_once),
		cmocka_unit_test(no_histogram_is_an_empty_one),
		cmocka_unit_test(cumulating_agrees_with_counting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
