/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in the simulation: arrivals, several tenants, overload, timelines, and invalid options. */
#include "test_files.h"

#include "simulation_rig.h"

#include <errno.h>
#include <math.h>

static void requests_arrive_when_the_file_says(void **state)
{
	char *path = test_text("arrivals.txt", "0.010\n0.020\n0.0201\n0.040\n0.9\n1.5\n");
	char spec[160];
	snprintf(spec, sizeof spec, "file:%s", path);
	struct hb_sim_options options = engine_options("ts1");
	engine_high(&options, "service:graph", spec, 0);
	options.spans_to_ns = INT64_MAX;
	options.spans_max = 10000;
	struct hb_sim_result result = engine_run(&options);
	static const int64_t times_us[] = {10000, 20000, 20100, 40000, 900000};
	assert_int_equal(result.high[0].requests, 5); /* the sixth arrives after the end */
	size_t n = 0;
	for (size_t i = 0; i < result.n_spans; i++)
		if (result.spans[i].kind == HB_SPAN_REQUEST)
			assert_int_equal(result.spans[i].start_ns, times_us[n++] * US);
	assert_int_equal(n, 5);
	hb_sim_result_fini(&result);
	free(path);
}

static void arrivals_count_from_the_end_of_the_lead(void **state)
{
	struct hb_sim_options options = engine_options("ts1");
	engine_high(&options, "service:graph", "100/s:periodic", 0);
	engine_low(&options, "train");
	struct hb_sim_result without = engine_run(&options);
	options.lead_ns = 500 * MS;
	options.spans_to_ns = INT64_MAX;
	options.spans_max = 100000;
	struct hb_sim_result with = engine_run(&options);
	assert_int_equal(with.high[0].requests, without.high[0].requests);
	assert_true(with.low[0].iterations_per_s > without.low[0].iterations_per_s);
	for (size_t i = 0; i < with.n_spans; i++)
		if (with.spans[i].kind == HB_SPAN_REQUEST)
			assert_true(with.spans[i].start_ns >= 500 * MS);
	hb_sim_result_fini(&with);
	hb_sim_result_fini(&without);
}

static void closed_loop_begins_the_next_request_when_one_ends(void **state)
{
	struct hb_sim_options options = engine_options("timeslice");
	engine_high(&options, "service:graph", "closed", 0);
	struct hb_sim_result result = engine_run(&options);
	const struct hb_sim_high *high = &result.high[0];
	assert_true(high->rate_per_s == 0);
	assert_int_equal(high->p50_ns, high->max_ns);
	assert_true(fabs((double)high->requests * (double)high->p50_ns / 1e9 - 1) < 0.01);
	hb_sim_result_fini(&result);
}

static void latency_counts_from_the_arrival_not_from_the_start(void **state)
{
	char *path = test_text("together.txt", "0.1\n0.1\n0.1\n");
	char spec[160];
	snprintf(spec, sizeof spec, "file:%s", path);
	struct hb_sim_options options = engine_options("timeslice");
	engine_high(&options, "service:graph", spec, 0);
	struct hb_sim_result result = engine_run(&options);
	const int64_t *latency_ns = result.high[0].latency_ns;
	assert_int_equal(result.high[0].requests, 3);
	assert_int_equal(latency_ns[1], 2 * latency_ns[0]);
	assert_int_equal(latency_ns[2], 3 * latency_ns[0]);
	hb_sim_result_fini(&result);
	free(path);
}

static void eager_program_alone_is_as_fast_as_its_host(void **state)
{
	struct hb_sim_options options = engine_options("timeslice");
	engine_high(&options, "service", "closed", 0);
	struct hb_sim_result result = engine_run(&options);
	/* 20 us to the first launch, 19 distances of 15 us, then the host's tail. */
	assert_true(result.high[0].p50_ns >= (20 + 19 * 15 + 10) * US);
	assert_true(result.high[0].p50_ns < 400 * US);
	hb_sim_result_fini(&result);
}

static void several_tenants_of_both_kinds_all_progress(void **state)
{
	static const char *const modes[] = {"exclusive", "timeslice", "mps",   "mps_prio", "mps_88",
					    "mps_gate2", "reef",      "orion", "temporal", "temporal:hints=perfect"};
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		struct hb_sim_options options = engine_options(modes[i]);
		engine_high(&options, "service:graph", "60/s", -1);
		engine_high(&options, "service", "40/s", -1);
		engine_low(&options, "train");
		engine_low(&options, "train");
		engine_low(&options, "service:graph");
		options.seconds = 0.2;
		struct hb_sim_result result = engine_run(&options);
		assert_int_equal(result.n_high, 2);
		assert_int_equal(result.n_low, 3);
		assert_true(result.high[0].requests > 6);
		assert_true(result.high[1].requests > 3);
		for (uint32_t low = 0; low < 3; low++)
			if (!(result.low[low].relative > 0.01))
				fail_msg("%s: LP %d runs at %g of alone", modes[i], (int)low, result.low[low].relative);
		hb_sim_result_fini(&result);
	}
}

/* Two LP processes with tiny slices stop each other, as measured; in the temporal engine they do not. */
static void two_low_contexts_with_tiny_slices_livelock_and_temporal_does_not(void **state)
{
	double relative[2];
	for (int i = 0; i < 2; i++) {
		struct hb_sim_options options = engine_options(i ? "temporal" : "ts1");
		engine_low(&options, "train");
		engine_low(&options, "train");
		struct hb_sim_result result = engine_run(&options);
		relative[i] = result.low[0].relative + result.low[1].relative;
		hb_sim_result_fini(&result);
	}
	assert_true(relative[0] < 0.05);
	assert_true(relative[1] > 0.9);
}

static void overload_ends_with_every_request_answered(void **state)
{
	struct hb_sim_options options = engine_options("timeslice");
	options.seconds = 0.2;
	engine_high(&options, "service:graph", "8000/s:periodic", -1);
	struct hb_sim_result result = engine_run(&options);
	assert_int_equal(result.high[0].requests, 1599);
	assert_true(result.high[0].max_ns > 100 * MS);
	hb_sim_result_fini(&result);
}

/* A request of 20 kernels behind kernels of 300 us each: 1600 of them would take 10 s. */
static void hopeless_overload_ends_too(void **state)
{
	struct hb_sim_options options = engine_options("mps");
	options.seconds = 0.2;
	engine_high(&options, "service:graph", "8000/s:periodic", -1);
	engine_low(&options, "train");
	struct hb_sim_result result = engine_run(&options);
	assert_true(result.high[0].requests > 100 && result.high[0].requests < 1600);
	assert_true(result.high[0].attainment < 0.1);
	hb_sim_result_fini(&result);
}

static void timeline_has_what_was_asked_for_and_no_more(void **state)
{
	struct hb_sim_options options = engine_options("temporal:hints=perfect");
	engine_high(&options, "service:graph", "100/s:periodic", 0);
	engine_low(&options, "train");
	struct hb_sim_result result = engine_run(&options);
	assert_int_equal(result.n_spans, 0);
	hb_sim_result_fini(&result);
	options.spans_from_ns = 100 * MS;
	options.spans_to_ns = 200 * MS;
	options.spans_max = 1000000;
	result = engine_run(&options);
	unsigned kinds[HB_SPAN_GATED + 1] = {0};
	for (size_t i = 0; i < result.n_spans; i++) {
		const struct hb_span *span = &result.spans[i];
		kinds[span->kind]++;
		assert_true(span->end_ns >= 100 * MS && span->start_ns < 200 * MS);
		assert_true(i == 0 || result.spans[i - 1].start_ns <= span->start_ns);
	}
	assert_true(kinds[HB_SPAN_REQUEST] >= 9 && kinds[HB_SPAN_REQUEST] <= 11);
	assert_true(kinds[HB_SPAN_KERNEL] > 100);
	assert_true(kinds[HB_SPAN_SWITCH] >= 18);
	assert_true(kinds[HB_SPAN_TAKEOVER] >= 9);
	hb_sim_result_fini(&result);
	options.spans_max = 10;
	result = engine_run(&options);
	assert_true(result.spans_truncated);
	hb_sim_result_fini(&result);
}

/* A host that is slow at times slows requests alone as well, so LP does not wait for it. */
static void low_is_not_blamed_for_the_host(void **state)
{
	struct hb_sim_result results[2];
	for (int i = 0; i < 2; i++) {
		struct hb_sim_options options = engine_options("spatial");
		options.seconds = 5;
		options.host_noise = i * 0.3;
		engine_high(&options, "service", "200/s", -1);
		engine_low(&options, "train");
		results[i] = engine_run(&options);
	}
	assert_true(results[1].high[0].p99_ns > results[0].high[0].p99_ns);
	assert_true(results[1].high[0].attainment > 0.97);
	assert_true(results[1].low[0].relative > results[0].low[0].relative - 0.05);
	hb_sim_result_fini(&results[0]);
	hb_sim_result_fini(&results[1]);
}

static void assert_refused(const struct hb_sim_options *options, int code, const char *text)
{
	struct hb_sim_result result = {.seconds = 77};
	struct hb_error error = {""};
	assert_int_equal(hb_sim_run(options, &result, &error), code);
	assert_string_equal(error.text, text);
	assert_true(result.seconds == 77);
}

#define KNOWN \
	"known: exclusive, timeslice, tsN (us), mps, mps_prio, mps_N (SM percent), " \
	"mps_gateD, mps_gateD_N, reef, orion, spatial, spatial:masks=gpcs|spread, spatial:window=TIME (20us to 1s), spatial:reserve=SMS (to 256), spatial:gaps=N (to 3), spatial:minimum=PERCENT, spatial:without=masks|splitting|beside|foresight|following, auto, temporal, temporal:minimum=PERCENT (1 to 90), temporal:without=foresight, temporal|spatial:hints=perfect|late|early|missing|wrong|learned"

static void bad_modes_are_refused(void **state)
{
	static const char *const modes[] = {"fair",
					    "",
					    "ts",
					    "ts0",
					    "ts1x",
					    "ts-1",
					    "mps_",
					    "mps_0",
					    "mps_101",
					    "mps_gate",
					    "mps_gate0",
					    "mps_2_",
					    "temporal:",
					    "temporal:hints=good",
					    "spatial:",
					    "spatial:without=x",
					    "spatial:window=19us",
					    "spatial:masks=none",
					    "spatial:reserve=0",
					    "spatial:gaps=4",
					    "spatial:window=3ms:",
					    "auto:spatial",
					    "exclusiv"};
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		struct hb_sim_options options = engine_options(modes[i]);
		char text[560];
		engine_low(&options, "train");
		snprintf(text, sizeof text, "sharing mode '%s' is not known; " KNOWN, modes[i]);
		assert_refused(&options, -EINVAL, text);
	}
}

static void bad_runs_are_refused(void **state)
{
	struct hb_sim_options options = engine_options("ts1");
	assert_refused(&options, -EINVAL, "no tenant: give at least one --high or --low");
	engine_low(&options, "train");
	options.seconds = 0;
	assert_refused(&options, -EINVAL, "seconds must be above 0 and at most 1000000, not 0");
	options.seconds = -3;
	assert_refused(&options, -EINVAL, "seconds must be above 0 and at most 1000000, not -3");
	options.seconds = NAN;
	assert_refused(&options, -EINVAL, "seconds must be above 0 and at most 1000000, not nan");
	options.seconds = 1;
	options.lead_ns = -1;
	assert_refused(&options, -EINVAL, "the lead must not be negative");
	options.lead_ns = 0;
	options.host_noise = -0.1;
	assert_refused(&options, -EINVAL, "the host's noise must not be negative");
	options.host_noise = 0;
	options.n_low = HB_SIM_TENANTS_MAX + 1;
	assert_refused(&options, -EINVAL, "more than 16 tenants of one priority");
	options.n_low = 1;
	options.gpu = "/nowhere/h100.yaml";
	assert_refused(&options, -ENOENT, "/nowhere/h100.yaml: No such file or directory");
}

static void bad_arrivals_are_refused_and_leave_nothing_behind(void **state)
{
	struct hb_sim_options options = engine_options("temporal");
	engine_high(&options, "service", "60/s", -1);
	engine_high(&options, "service", "0/s", -1);
	engine_low(&options, "train");
	assert_refused(&options, -EINVAL, "arrivals '0/s': the rate must be 0.001/s to 1000000/s");
	options.sharing = "exclusive";
	assert_refused(&options, -EINVAL, "arrivals '0/s': the rate must be 0.001/s to 1000000/s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_arrive_when_the_file_says),
		cmocka_unit_test(arrivals_count_from_the_end_of_the_lead),
		cmocka_unit_test(closed_loop_begins_the_next_request_when_one_ends),
		cmocka_unit_test(latency_counts_from_the_arrival_not_from_the_start),
		cmocka_unit_test(eager_program_alone_is_as_fast_as_its_host),
		cmocka_unit_test(low_is_not_blamed_for_the_host),
		cmocka_unit_test(several_tenants_of_both_kinds_all_progress),
		cmocka_unit_test(two_low_contexts_with_tiny_slices_livelock_and_temporal_does_not),
		cmocka_unit_test(overload_ends_with_every_request_answered),
		cmocka_unit_test(hopeless_overload_ends_too),
		cmocka_unit_test(timeline_has_what_was_asked_for_and_no_more),
		cmocka_unit_test(bad_modes_are_refused),
		cmocka_unit_test(bad_runs_are_refused),
		cmocka_unit_test(bad_arrivals_are_refused_and_leave_nothing_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
