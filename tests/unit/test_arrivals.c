/* SPDX-License-Identifier: Apache-2.0 */
/* The arrival generators give the same times on every machine, the requested rate, and clear errors. */
#include "test_files.h"

#include "sim/arrivals.h"

#include <errno.h>
#include <math.h>

static struct hb_arrivals *arrivals_of(const char *spec, uint64_t seed)
{
	struct hb_arrivals *arrivals = NULL;
	struct hb_error error = {0};
	int code = hb_arrivals_new(spec, seed, &arrivals, &error);
	if (code)
		fail_msg("%s", error.text);
	return arrivals;
}

static void expect_error(const char *spec, const char *message)
{
	struct hb_arrivals *arrivals = NULL;
	struct hb_error error = {0};
	assert_int_equal(hb_arrivals_new(spec, 1, &arrivals, &error), -EINVAL);
	assert_string_equal(error.text, message);
	assert_null(arrivals);
}

/* Count, mean gap and its coefficient of variation over the first `seconds`. */
static void measure_gaps(const char *spec, double seconds, double *rate, double *variation)
{
	struct hb_arrivals *arrivals = arrivals_of(spec, 7);
	double n = 0, sum = 0, squares = 0;
	int64_t before = 0;
	for (int64_t at; (at = hb_arrivals_next(arrivals)) < (int64_t)(seconds * 1e9); before = at) {
		assert_true(at >= before);
		double gap = (double)(at - before);
		n++;
		sum += gap;
		squares += gap * gap;
	}
	double mean = sum / n;
	*rate = n / seconds;
	*variation = sqrt(squares / n - mean * mean) / mean;
	hb_arrivals_free(arrivals);
}

static void poisson_has_its_rate_and_spread(void **state)
{
	double rate, variation;
	measure_gaps("60/s", 2000, &rate, &variation);
	assert_float_equal(rate, 60, 0.6);
	assert_float_equal(variation, 1, 0.02);
}

static void periodic_may_begin_later(void **state)
{
	struct hb_arrivals *arrivals = arrivals_of("20/s:periodic=0.4", 1);
	assert_int_equal(hb_arrivals_next(arrivals), 70000000);
	assert_int_equal(hb_arrivals_next(arrivals), 120000000);
	hb_arrivals_free(arrivals);
	struct hb_error error;
	assert_int_equal(hb_arrivals_new("20/s:periodic=1", 1, &arrivals, &error), -EINVAL);
	assert_int_equal(hb_arrivals_new("20/s:periodic=-0.1", 1, &arrivals, &error), -EINVAL);
	assert_int_equal(hb_arrivals_new("20/s:periodic=", 1, &arrivals, &error), -EINVAL);
}

static void periodic_is_even_and_does_not_drift(void **state)
{
	struct hb_arrivals *arrivals = arrivals_of("60/s:periodic", 1);
	assert_int_equal(hb_arrivals_kind(arrivals), HB_ARRIVE_PERIODIC);
	assert_int_equal(hb_arrivals_next(arrivals), 16666667);
	assert_int_equal(hb_arrivals_next(arrivals), 33333333);
	for (int i = 2; i < 60 * 3600 - 1; i++)
		hb_arrivals_next(arrivals);
	assert_int_equal(hb_arrivals_next(arrivals), INT64_C(3600000000000));
	hb_arrivals_free(arrivals);
}

static void bursts_have_the_rate_and_more_spread(void **state)
{
	double rate, variation;
	measure_gaps("60/s:burst", 20000, &rate, &variation);
	assert_float_equal(rate, 60, 1.2);
	assert_true(variation > 1.2);
	double wilder;
	measure_gaps("60/s:burst=20,0.5", 20000, &rate, &wilder);
	assert_float_equal(rate, 60, 1.2);
	assert_true(wilder > variation);
	/* A ratio of 1 is Poisson. */
	measure_gaps("60/s:burst=1,0.5", 2000, &rate, &variation);
	assert_float_equal(variation, 1, 0.02);
}

/* The gaps of the file repeat in their order, at the rate that was asked for. */
static void trace_has_the_gaps_of_its_file_at_another_rate(void **state)
{
	char *path = test_text("trace.csv", "arrival_s,tokens\n0.000,7\n1.000,3\n1.000,4\n4.000,1\n"), spec[200];
	snprintf(spec, sizeof spec, "8/s:trace=%s", path);
	struct hb_arrivals *arrivals = arrivals_of(spec, 1);
	/* Four times and a gap of 1 s in 5 s become half a second: gaps of 100, 0, 300 and 100 ms. */
	const int64_t gaps_ms[] = {100, 0, 300, 100};
	assert_int_equal(hb_arrivals_kind(arrivals), HB_ARRIVE_TRACE);
	assert_float_equal(hb_arrivals_rate_per_s(arrivals), 8, 1e-9);
	int64_t times_ms[401];
	for (int i = 0; i < 401; i++)
		times_ms[i] = (hb_arrivals_next(arrivals) + 500000) / 1000000;
	assert_int_equal(times_ms[400] - times_ms[0], 50000);
	int begin = 0;
	while (times_ms[begin + 1] - times_ms[begin] != 0)
		begin++;
	for (int i = 0; i < 300; i++)
		assert_int_equal(times_ms[begin + i + 1] - times_ms[begin + i], gaps_ms[(i + 1) % 4]);
	hb_arrivals_free(arrivals);
	free(path);
	path = test_text("zero.txt", "0\n0\n");
	snprintf(spec, sizeof spec, "8/s:trace=%s", path);
	struct hb_error error = {0};
	assert_int_equal(hb_arrivals_new(spec, 1, &arrivals, &error), -EINVAL);
	assert_non_null(strstr(error.text, "a trace needs times after 0"));
	free(path);
}

static void closed_has_no_times(void **state)
{
	struct hb_arrivals *arrivals = arrivals_of("closed", 1);
	assert_int_equal(hb_arrivals_kind(arrivals), HB_ARRIVE_CLOSED);
	assert_int_equal(hb_arrivals_next(arrivals), INT64_MAX);
	assert_float_equal(hb_arrivals_rate_per_s(arrivals), 0, 0);
	hb_arrivals_free(arrivals);
}

static void expect_first(const char *spec, const int64_t expected[20])
{
	struct hb_arrivals *arrivals = arrivals_of(spec, 1);
	for (int i = 0; i < 20; i++) {
		int64_t at = hb_arrivals_next(arrivals);
		if (at != expected[i])
			fail_msg("%s: arrival %d is %lld, not %lld", spec, i, (long long)at, (long long)expected[i]);
	}
	hb_arrivals_free(arrivals);
}

/* These times are the same on every machine and from every compiler. A change here changes every published run. */
static void first_times_of_seed_1(void **state)
{
	static const int64_t poisson[20] = {46035114,  48597418,  56465955,  87531813,  95712996,  131948966, 136888423,
					    176232631, 184328546, 226587781, 227922965, 230586214, 245601019, 274686005,
					    279061900, 282165960, 306810910, 340273105, 376222572, 383478901};
	static const int64_t burst[20] = {23605611,  98610714,  101574388, 125180913, 130038462, 155394003, 156195113,
					  157793062, 166801945, 184252936, 186878473, 188740909, 203527879, 223605196,
					  245174876, 249528674, 255143930, 256401462, 268599373, 273193892};
	expect_first("60/s", poisson);
	expect_first("60/s:burst", burst);
}

static void seeds_differ_and_repeat(void **state)
{
	struct hb_arrivals *a = arrivals_of("60/s", 5), *b = arrivals_of("60/s", 5), *c = arrivals_of("60/s", 6);
	int same = 0;
	for (int i = 0; i < 100; i++) {
		int64_t at = hb_arrivals_next(a);
		assert_int_equal(at, hb_arrivals_next(b));
		same += at == hb_arrivals_next(c);
	}
	assert_true(same < 3);
	hb_arrivals_free(a);
	hb_arrivals_free(b);
	hb_arrivals_free(c);
}

static void recorded_file_is_read_exactly(void **state)
{
	struct hb_arrivals *arrivals = arrivals_of("file:" TRACES "/arrivals-60hz-3s.txt", 1);
	assert_int_equal(hb_arrivals_kind(arrivals), HB_ARRIVE_FILE);
	assert_int_equal(hb_arrivals_next(arrivals), 2405000);
	assert_int_equal(hb_arrivals_next(arrivals), 33741000);
	int64_t last = 0;
	int count = 2;
	for (int64_t at; (at = hb_arrivals_next(arrivals)) != INT64_MAX; last = at)
		count++;
	assert_int_equal(last, 3001142000);
	assert_int_equal(hb_arrivals_next(arrivals), INT64_MAX);
	assert_float_equal(hb_arrivals_rate_per_s(arrivals), count / 3.001142, 1e-9);
	hb_arrivals_free(arrivals);
}

static void comments_and_empty_lines_in_a_file(void **state)
{
	char *path = test_text("times.txt", "# seconds\n0\n\n0\r\n1.5\n"), spec[200];
	snprintf(spec, sizeof spec, "file:%s", path);
	struct hb_arrivals *arrivals = arrivals_of(spec, 1);
	assert_int_equal(hb_arrivals_next(arrivals), 0);
	assert_int_equal(hb_arrivals_next(arrivals), 0);
	assert_int_equal(hb_arrivals_next(arrivals), 1500000000);
	assert_int_equal(hb_arrivals_next(arrivals), INT64_MAX);
	hb_arrivals_free(arrivals);
	free(path);
}

static void file_errors(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "1: no times in the file: one in seconds a line"},
		{"1\nnan\n", "2: not a time in seconds, one a line"},
		{"1\n2x\n", "2: not a time in seconds, one a line"},
		{"1\n-2\n", "2: time -2 is not between 0 and 86400 s"},
		{"1e6\n", "1: time 1e6 is not between 0 and 86400 s"},
		{"1\n# c\n0.5\n", "3: time 0.5 is before the one above: times must ascend"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *path = test_text("bad.txt", cases[i].text), spec[200], message[300];
		snprintf(spec, sizeof spec, "file:%s", path);
		snprintf(message, sizeof message, "%s:%s", path, cases[i].message);
		expect_error(spec, message);
		free(path);
	}
	struct hb_arrivals *arrivals = NULL;
	struct hb_error error = {0};
	assert_int_equal(hb_arrivals_new("file:/nonexistent", 1, &arrivals, &error), -ENOENT);
	assert_string_equal(error.text, "/nonexistent: cannot open: No such file or directory");
}

#define HOW \
	"write RATE/s, RATE/s:periodic, RATE/s:burst, RATE/s:burst=RATIO,SECONDS, RATE/s:trace=PATH, closed or " \
	"file:PATH"

static void spec_errors(void **state)
{
	expect_error("0/s", "arrivals '0/s': the rate must be 0.001/s to 1000000/s");
	expect_error("-5/s", "arrivals '-5/s': the rate must be 0.001/s to 1000000/s");
	expect_error("1e9/s", "arrivals '1e9/s': the rate must be 0.001/s to 1000000/s");
	expect_error("nan/s", "arrivals 'nan/s': the rate 'nan' is not a number; " HOW);
	expect_error("inf/s", "arrivals 'inf/s': the rate 'inf' is not a number; " HOW);
	expect_error("/s", "arrivals '/s': the rate '' is not a number; " HOW);
	expect_error("", "arrivals '': no rate a second; " HOW);
	expect_error("60", "arrivals '60': no rate a second; " HOW);
	expect_error("60/min", "arrivals '60/min': no rate a second; " HOW);
	expect_error("60/sec", "arrivals '60/sec': unknown 'ec'; " HOW);
	expect_error("60/s:poison", "arrivals '60/s:poison': unknown ':poison'; " HOW);
	expect_error("closed:1", "arrivals 'closed:1': no rate a second; " HOW);
	expect_error("60/s:burst=5", "arrivals '60/s:burst=5': burst takes a ratio and seconds, as in burst=5,0.5");
	expect_error("60/s:burst=,", "arrivals '60/s:burst=,': burst takes a ratio and seconds, as in burst=5,0.5");
	expect_error("60/s:burst=0.5,1", "arrivals '60/s:burst=0.5,1': the ratio must be 1 to 1000");
	expect_error("60/s:burst=5,0",
		     "arrivals '60/s:burst=5,0': the mean length of a state must be 0.001 to 3600 seconds");
	expect_error("file:", "arrivals 'file:': no path; " HOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poisson_has_its_rate_and_spread),
		cmocka_unit_test(periodic_may_begin_later),
		cmocka_unit_test(periodic_is_even_and_does_not_drift),
		cmocka_unit_test(bursts_have_the_rate_and_more_spread),
		cmocka_unit_test(trace_has_the_gaps_of_its_file_at_another_rate),
		cmocka_unit_test(closed_has_no_times),
		cmocka_unit_test(first_times_of_seed_1),
		cmocka_unit_test(seeds_differ_and_repeat),
		cmocka_unit_test(recorded_file_is_read_exactly),
		cmocka_unit_test(comments_and_empty_lines_in_a_file),
		cmocka_unit_test(file_errors),
		cmocka_unit_test(spec_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
