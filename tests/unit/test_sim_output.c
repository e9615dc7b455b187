/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the table, JSON, sentence, page and timeline that are written for artificial results.
 * tests/end-to-end/test_report_page.py tests the page in a browser.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <cmocka.h>

#include "fake_results.h"
#include "report/output.h"
#include "report/request_view.h"
#include "report/residency.h"

struct written_text {
	char *bytes;
	size_t size;
	FILE *out;
};

static struct written_text make_text(void)
{
	struct written_text text = {NULL, 0, NULL};
	return text;
}

static void begin_text(struct written_text *text)
{
	text->out = open_memstream(&text->bytes, &text->size);
	assert_non_null(text->out);
}

static void end_text(struct written_text *text)
{
	assert_int_equal(fclose(text->out), 0);
}

static size_t find_longest_line(const char *text)
{
	size_t longest = 0;
	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");
		longest = length > longest ? length : longest;
		line += length + (line[length] == '\n');
	}
	return longest;
}

static size_t count_words(const char *text, const char *word)
{
	size_t n = 0;
	for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
		n++;
	return n;
}

static struct written_text write_table(uint32_t n_high, uint32_t n_low, bool colors)
{
	struct written_text text = make_text();
	struct hb_sim_result *results = fake_results_new(n_high, n_low);
	struct hb_table_style style = {.width = 100, .colors = colors};
	begin_text(&text);
	hb_result_table_write(text.out, results, FAKE_MODES, &style);
	end_text(&text);
	fake_results_free(results);
	return text;
}

static void table_has_one_row_a_mode_within_100_columns(void **state)
{
	struct written_text text = write_table(1, 1, false);
	assert_true(find_longest_line(text.bytes) <= 100);
	assert_int_equal(count_words(text.bytes, "\ntimeslice "), 1);
	assert_int_equal(count_words(text.bytes, "\ntemporal "), 1);
	assert_null(strchr(text.bytes, '\033'));
	free(text.bytes);
}

static void table_of_many_programs_still_fits(void **state)
{
	struct written_text text = write_table(HB_SIM_TENANTS_MAX, HB_SIM_TENANTS_MAX, false);
	assert_true(find_longest_line(text.bytes) <= 100);
	assert_non_null(strstr(text.bytes, "service15_b1:graph"));
	assert_non_null(strstr(text.bytes, "train15_b128"));
	free(text.bytes);
}

static void table_marks_a_missed_slo_in_color_only_when_asked(void **state)
{
	struct written_text text = write_table(1, 1, true);
	assert_int_equal(count_words(text.bytes, "\033[31m"), 3);
	free(text.bytes);
}

static void json_has_the_promised_keys_in_order(void **state)
{
	static const char *const keys[] = {
		"\"gpu\"",      "\"sharing\"",          "\"seconds\"",  "\"seed\"",       "\"high\"",
		"\"workload\"", "\"rate_per_s\"",       "\"requests\"", "\"p50_us\"",     "\"p90_us\"",
		"\"p99_us\"",   "\"max_us\"",           "\"slo_us\"",   "\"attainment\"", "\"low\"",
		"\"workload\"", "\"iterations_per_s\"", "\"relative\"", "\"gpu_busy\"",   "\"wall_s\""};
	struct hb_sim_result *results = fake_results_new(1, 1);
	struct written_text text = make_text();
	struct hb_error error;
	begin_text(&text);
	assert_int_equal(hb_result_json_write(text.out, results, 1, false, false, &error), 0);
	end_text(&text);
	const char *at = text.bytes;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		at = strstr(at, keys[i]);
		assert_non_null(at);
		at += strlen(keys[i]);
	}
	assert_int_equal(count_words(text.bytes, "\":"), sizeof keys / sizeof keys[0]);
	free(text.bytes);
	fake_results_free(results);
}

static json_t *parse_results(const struct hb_sim_result *results, size_t n, bool array)
{
	struct written_text text = make_text();
	struct hb_error error;
	begin_text(&text);
	assert_int_equal(hb_result_json_write(text.out, results, n, array, false, &error), 0);
	end_text(&text);
	json_t *root = json_loads(text.bytes, 0, NULL);
	assert_non_null(root);
	free(text.bytes);
	return root;
}

static void json_of_several_modes_is_an_array(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	json_t *root = parse_results(results, FAKE_MODES, true);
	assert_int_equal(json_array_size(root), FAKE_MODES);
	json_decref(root);
	fake_results_free(results);
}

static void json_says_null_for_what_does_not_exist(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	results[0].high[0].slo_ns = 0;
	results[0].high[0].rate_per_s = 0;
	results[0].high[0].requests = 0;
	results[0].low[0].relative = 0.0 / (double)results[0].high[0].requests;
	json_t *root = parse_results(results, 1, false);
	json_t *high = json_array_get(json_object_get(root, "high"), 0);
	assert_true(json_is_null(json_object_get(high, "slo_us")));
	assert_true(json_is_null(json_object_get(high, "rate_per_s")));
	assert_true(json_is_null(json_object_get(high, "p99_us")));
	assert_true(json_is_null(json_object_get(json_array_get(json_object_get(root, "low"), 0), "relative")));
	json_decref(root);
	fake_results_free(results);
}

static struct written_text write_reading(const struct hb_sim_result *results, size_t n)
{
	struct written_text text = make_text();
	begin_text(&text);
	hb_result_reading_write(text.out, results, n);
	end_text(&text);
	return text;
}

static void reading_follows_the_numbers(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	struct written_text text = write_reading(results, FAKE_MODES);
	assert_non_null(
		strstr(text.bytes, "Of 11 ways to share, ts100 lets train0_b128 run fastest (90.0 % of alone)"));
	assert_int_equal(count_words(text.bytes, "\n"), 1);
	free(text.bytes);
	results[11].low[0].relative = 0.99;
	text = write_reading(results, FAKE_MODES);
	assert_non_null(strstr(text.bytes, "temporal lets train0_b128 run fastest (99.0 % of alone)"));
	free(text.bytes);
	for (int i = 0; i < FAKE_MODES; i++)
		results[i].high[0].attainment = 0.5 + i * 0.01;
	text = write_reading(results, FAKE_MODES);
	assert_non_null(strstr(text.bytes, "none keeps 95 %"));
	assert_non_null(strstr(text.bytes, "temporal comes closest (61.0 %"));
	free(text.bytes);
	fake_results_free(results);
}

static void reading_is_empty_when_nothing_is_compared(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 0);
	struct written_text text = write_reading(results, FAKE_MODES);
	assert_int_equal(text.size, 0);
	free(text.bytes);
	text = write_reading(results, 1);
	assert_int_equal(text.size, 0);
	free(text.bytes);
	fake_results_free(results);
}

static struct hb_report make_report(const struct hb_sim_result *results, size_t n)
{
	return (struct hb_report){"hb sim --high '<a & b>'", results, n, 0, INT64_C(1000000000)};
}

static struct written_text write_report(const struct hb_sim_result *results, size_t n)
{
	struct written_text text = make_text();
	struct hb_error error;
	begin_text(&text);
	struct hb_report report = make_report(results, n);
	assert_int_equal(hb_report_write(text.out, &report, &error), 0);
	end_text(&text);
	return text;
}

static void report_needs_nothing_from_elsewhere(void **state)
{
	struct hb_sim_result *results = fake_results_new(2, 2);
	struct written_text text = write_report(results, FAKE_MODES);
	/* The only address is the name of the SVG language, which a browser never fetches. */
	assert_int_equal(count_words(text.bytes, "http"), count_words(text.bytes, "\"http://www.w3.org/2000/svg\""));
	assert_null(strstr(text.bytes, "src="));
	assert_null(strstr(text.bytes, "href="));
	assert_null(strstr(text.bytes, "url("));
	assert_null(strstr(text.bytes, "@import"));
	free(text.bytes);
	fake_results_free(results);
}

/* Returns the data of a page, read as the page's scripts read it. */
static json_t *find_data(const char *page)
{
	static const char begin[] = "id=\"data\">";
	const char *data = strstr(page, begin);
	assert_non_null(data);
	data += strlen(begin);
	const char *close = strstr(data, "</script>");
	assert_non_null(close);
	json_t *root = json_loadb(data, (size_t)(close - data), 0, NULL);
	assert_non_null(root);
	return root;
}

static void no_text_can_end_the_data_of_a_report(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	snprintf(results[0].high[0].workload, sizeof results[0].high[0].workload, "</script><b>\xff");
	struct written_text text = write_report(results, FAKE_MODES);
	assert_null(strstr(text.bytes, "{{"));
	assert_int_equal(count_words(text.bytes, "<script"), count_words(text.bytes, "</script>"));
	json_t *data = find_data(text.bytes);
	assert_string_equal(json_string_value(json_object_get(data, "command")), "hb sim --high '<a & b>'");
	json_t *request = json_object_get(data, "request");
	json_t *program = json_array_get(json_object_get(request, "programs"), 0);
	assert_string_equal(json_string_value(json_object_get(program, "name")), "</script><b>?");
	assert_non_null(strstr(text.bytes, "gemm\\u003cfloat"));
	json_decref(data);
	free(text.bytes);
	fake_results_free(results);
}

static void report_holds_the_numbers_of_the_results(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	struct written_text text = write_report(results, FAKE_MODES);
	json_t *data = find_data(text.bytes);
	json_t *modes = json_object_get(data, "results");
	assert_int_equal(json_array_size(modes), FAKE_MODES);
	for (size_t i = 0; i < FAKE_MODES; i++) {
		const struct hb_sim_high *high = &results[i].high[0];
		json_t *packed = json_array_get(json_object_get(json_array_get(modes, i), "high"), 0);
		assert_float_equal(json_number_value(json_object_get(packed, "p99_us")), (double)high->p99_ns / 1e3,
				   1e-3);
		json_t *points = json_object_get(packed, "distribution");
		json_t *last = json_array_get(points, json_array_size(points) - 1);
		assert_float_equal(json_number_value(json_array_get(last, 0)), (double)high->max_ns / 1e3, 1e-3);
		assert_float_equal(json_number_value(json_array_get(last, 1)), 1, 1e-9);
	}
	json_decref(data);
	free(text.bytes);
	fake_results_free(results);
}

/* Every request is at most a step away from a point that was kept. */
static void report_keeps_the_shape_of_a_distribution(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	struct written_text text = write_report(results, 1);
	json_t *data = find_data(text.bytes);
	json_t *result = json_array_get(json_object_get(data, "results"), 0);
	json_t *points = json_object_get(json_array_get(json_object_get(result, "high"), 0), "distribution");
	const struct hb_sim_high *high = &results[0].high[0];
	size_t at = 0;
	assert_in_range(json_array_size(points), 100, high->requests - 1);
	for (uint64_t i = 0; i < high->requests; i++) {
		double share = (double)(i + 1) / (double)high->requests;
		while (json_number_value(json_array_get(json_array_get(points, at), 1)) < share - 1e-9)
			at++;
		double kept_us = json_number_value(json_array_get(json_array_get(points, at), 0));
		assert_float_equal(kept_us / ((double)high->latency_ns[i] / 1e3), 1, 0.002);
	}
	json_decref(data);
	free(text.bytes);
	fake_results_free(results);
}

static void report_is_the_same_for_the_same_results(void **state)
{
	struct hb_sim_result *results = fake_results_new(2, 1);
	struct written_text first = write_report(results, FAKE_MODES);
	results[0].wall_s = 99;
	struct written_text second = write_report(results, FAKE_MODES);
	assert_int_equal(first.size, second.size);
	assert_memory_equal(first.bytes, second.bytes, first.size);
	free(first.bytes);
	free(second.bytes);
	fake_results_free(results);
}

static void report_works_with_one_side_only(void **state)
{
	static const uint32_t sides[][2] = {{1, 0}, {0, 1}};
	for (size_t i = 0; i < 2; i++) {
		struct hb_sim_result *results = fake_results_new(sides[i][0], sides[i][1]);
		struct written_text text = write_report(results, 1);
		assert_non_null(strstr(text.bytes, "</html>"));
		json_t *data = find_data(text.bytes);
		assert_int_equal(json_is_object(json_object_get(data, "request")), sides[i][0]);
		json_decref(data);
		free(text.bytes);
		fake_results_free(results);
	}
}

static void timeline_events_have_what_perfetto_needs(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	struct written_text text = make_text();
	struct hb_error error;
	begin_text(&text);
	assert_int_equal(hb_timeline_json_write(text.out, &results[1], &error), 0);
	end_text(&text);
	json_t *root = json_loads(text.bytes, 0, NULL);
	assert_non_null(root);
	json_t *event;
	size_t index, complete = 0;
	json_array_foreach(json_object_get(root, "traceEvents"), index, event)
	{
		const char *phase = json_string_value(json_object_get(event, "ph"));
		assert_true(json_is_integer(json_object_get(event, "pid")) &&
			    json_is_integer(json_object_get(event, "tid")));
		assert_true(json_is_string(json_object_get(event, "name")));
		complete += strcmp(phase, "X") == 0;
	}
	assert_int_equal(complete, results[1].n_spans);
	json_decref(root);
	free(text.bytes);
	fake_results_free(results);
}

static void the_same_request_is_shown_under_every_mode(void **state)
{
	struct hb_sim_result *results = fake_results_new(1, 1);
	const struct hb_span *views[FAKE_MODES];
	struct hb_report report = make_report(results, FAKE_MODES);
	hb_request_views_choose(&report, views);
	for (int i = 0; i < FAKE_MODES; i++) {
		assert_non_null(views[i]);
		assert_int_equal(views[i]->start_ns, views[0]->start_ns);
	}
	fake_results_free(results);
}

static void a_kernel_is_cut_where_another_context_has_the_gpu(void **state)
{
	/* The GPU switches to program 0 at 100..110 and to program 1 at 150..160; the last switch is after the kernel's end. */
	struct hb_span spans[] = {
		{0, 200, "long", HB_SPAN_KERNEL, 1},     {100, 110, "switch", HB_SPAN_SWITCH, 0},
		{120, 140, "short", HB_SPAN_KERNEL, 0},  {150, 160, "switch", HB_SPAN_SWITCH, 1},
		{300, 310, "switch", HB_SPAN_SWITCH, 1},
	};
	struct hb_sim_result result = {.n_high = 1, .n_low = 1, .spans = spans, .n_spans = 5};
	struct hb_residency *residency = hb_residency_new(&result);
	struct hb_span_piece piece = {.span = &spans[0]};
	assert_true(hb_residency_piece(residency, &piece));
	assert_int_equal(piece.start_ns, 0);
	assert_int_equal(piece.end_ns, 100);
	assert_true(hb_residency_piece(residency, &piece));
	assert_int_equal(piece.start_ns, 160);
	assert_int_equal(piece.end_ns, 200);
	assert_false(hb_residency_piece(residency, &piece));
	struct hb_span_piece uncut = {.span = &spans[2]};
	assert_true(hb_residency_piece(residency, &uncut));
	assert_int_equal(uncut.end_ns, 140);
	assert_false(hb_residency_piece(residency, &uncut));
	hb_residency_free(residency);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_has_one_row_a_mode_within_100_columns),
		cmocka_unit_test(table_of_many_programs_still_fits),
		cmocka_unit_test(table_marks_a_missed_slo_in_color_only_when_asked),
		cmocka_unit_test(json_has_the_promised_keys_in_order),
		cmocka_unit_test(json_of_several_modes_is_an_array),
		cmocka_unit_test(json_says_null_for_what_does_not_exist),
		cmocka_unit_test(reading_follows_the_numbers),
		cmocka_unit_test(reading_is_empty_when_nothing_is_compared),
		cmocka_unit_test(report_needs_nothing_from_elsewhere),
		cmocka_unit_test(no_text_can_end_the_data_of_a_report),
		cmocka_unit_test(report_holds_the_numbers_of_the_results),
		cmocka_unit_test(report_keeps_the_shape_of_a_distribution),
		cmocka_unit_test(report_is_the_same_for_the_same_results),
		cmocka_unit_test(report_works_with_one_side_only),
		cmocka_unit_test(timeline_events_have_what_perfetto_needs),
		cmocka_unit_test(the_same_request_is_shown_under_every_mode),
		cmocka_unit_test(a_kernel_is_cut_where_another_context_has_the_gpu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
