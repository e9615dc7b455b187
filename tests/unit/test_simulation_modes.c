/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of each sharing mode, checked with a tiny service and a tiny training job. */
#include "sim/sharing_modes.h"
#include "simulation_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool same_result(const struct hb_sim_result *one, const struct hb_sim_result *other)
{
	bool same = one->n_high == other->n_high && one->n_low == other->n_low && one->gpu_busy == other->gpu_busy;
	for (uint32_t i = 0; same && i < one->n_high; i++) {
		const struct hb_sim_high *a = &one->high[i], *b = &other->high[i];
		same = a->requests == b->requests && a->slo_ns == b->slo_ns && a->attainment == b->attainment &&
		       !memcmp(a->latency_ns, b->latency_ns, a->requests * sizeof *a->latency_ns);
	}
	for (uint32_t i = 0; same && i < one->n_low; i++)
		same = one->low[i].iterations_per_s == other->low[i].iterations_per_s &&
		       one->low[i].relative == other->low[i].relative;
	return same;
}

static void every_mode_serves_all_requests_and_lets_low_work(void **state)
{
	uint64_t requests = 0;
	for (const char *const *mode = hb_modes_all; *mode; mode++) {
		struct hb_sim_result result = engine_pair(*mode);
		/* "auto:" names the engine that it chose. */
		assert_memory_equal(result.sharing, *mode, strlen(*mode));
		assert_true(!result.sharing[strlen(*mode)] || strcmp(*mode, "auto") == 0);
		assert_string_equal(result.gpu, "h200");
		requests = requests ? requests : result.high[0].requests;
		assert_true(result.high[0].requests > 70);
		assert_int_equal(result.high[0].requests, requests);
		assert_true(result.high[0].p50_ns >= 200 * US);
		assert_true(result.high[0].p50_ns <= result.high[0].p99_ns);
		assert_true(result.low[0].relative > 0.5 && result.low[0].relative <= 1.02);
		assert_true(result.gpu_busy > 0.4 && result.gpu_busy <= 1);
		hb_sim_result_fini(&result);
	}
}

static void same_seed_gives_the_same_result_in_every_mode(void **state)
{
	for (const char *const *mode = hb_modes_all; *mode; mode++) {
		struct hb_sim_result one = engine_pair(*mode), other = engine_pair(*mode);
		if (!same_result(&one, &other))
			fail_msg("%s differs from one run to the next", *mode);
		hb_sim_result_fini(&one);
		hb_sim_result_fini(&other);
	}
}

static void another_seed_gives_other_arrivals(void **state)
{
	struct hb_sim_options options = engine_options("ts1");
	engine_high(&options, "service:graph", "100/s", 0);
	struct hb_sim_result one = engine_run(&options);
	options.seed = 2;
	struct hb_sim_result other = engine_run(&options);
	assert_false(same_result(&one, &other));
	hb_sim_result_fini(&one);
	hb_sim_result_fini(&other);
}

static void exclusive_runs_every_tenant_alone(void **state)
{
	struct hb_sim_options options = engine_options("timeslice");
	engine_high(&options, "service", "100/s", 0);
	struct hb_sim_result alone = engine_run(&options);
	engine_low(&options, "train");
	options.sharing = "exclusive";
	struct hb_sim_result exclusive = engine_run(&options);
	assert_int_equal(exclusive.high[0].requests, alone.high[0].requests);
	assert_memory_equal(exclusive.high[0].latency_ns, alone.high[0].latency_ns,
			    alone.high[0].requests * sizeof(int64_t));
	assert_true(fabs(exclusive.low[0].relative - 1) < 1e-12);
	hb_sim_result_fini(&alone);
	hb_sim_result_fini(&exclusive);
}

static void slo_auto_is_the_p99_alone(void **state)
{
	struct hb_sim_result alone = engine_pair("exclusive");
	for (const char *const *mode = hb_modes_all; *mode; mode++) {
		struct hb_sim_result result = engine_pair(*mode);
		assert_int_equal(result.high[0].slo_ns, alone.high[0].p99_ns);
		hb_sim_result_fini(&result);
	}
	assert_true(alone.high[0].attainment >= 0.99);
	hb_sim_result_fini(&alone);
}

static void attainment_is_the_share_within_the_slo(void **state)
{
	struct hb_sim_options options = engine_options("mps_prio");
	engine_high(&options, "service:graph", "100/s", 250 * US);
	engine_low(&options, "train");
	struct hb_sim_result result = engine_run(&options);
	uint64_t met = 0;
	for (uint64_t i = 0; i < result.high[0].requests; i++)
		met += result.high[0].latency_ns[i] <= 250 * US;
	assert_true(fabs(result.high[0].attainment - (double)met / (double)result.high[0].requests) < 1e-12);
	hb_sim_result_fini(&result);
}

/* Serves tokens beside LP, and returns the share of single tokens within the objective. */
static double share_of_tokens(int64_t slo_ns, struct hb_sim_result *result)
{
	struct hb_sim_options options = engine_options("mps_prio");
	uint64_t met = 0;
	engine_high(&options, "service:graph", "closed", slo_ns);
	engine_low(&options, "train");
	*result = engine_run(&options);
	const struct hb_sim_high *high = &result->high[0];
	for (uint64_t i = 0; i < high->requests; i++)
		met += high->latency_ns[i] <= slo_ns;
	return (double)met / (double)high->requests;
}

/* The SLO of a service that makes tokens applies to the mean of 16. */
static void attainment_of_tokens_is_that_of_their_mean(void **state)
{
	struct hb_sim_result result;
	share_of_tokens(1000 * MS, &result);
	int64_t slo_ns = (result.high[0].p50_ns + result.high[0].p90_ns) / 2;
	hb_sim_result_fini(&result);
	double single = share_of_tokens(slo_ns, &result);
	assert_true(single > 0.5 && single < 0.95);
	assert_true(result.high[0].attainment > 0.98);
	hb_sim_result_fini(&result);
}

/* Tokens keep an objective of eight times their time, and LP uses this slack in both engines. */
static void low_uses_the_slack_of_tokens(void **state)
{
	struct hb_sim_options options = engine_options("exclusive");
	engine_high(&options, "service:graph", "closed", 0);
	struct hb_sim_result alone = engine_run(&options);
	int64_t p50_ns = alone.high[0].p50_ns;
	hb_sim_result_fini(&alone);
	static const char *const engines[] = {"temporal", "spatial"};
	for (int i = 0; i < 2; i++) {
		options = engine_options(engines[i]);
		engine_high(&options, "service:graph", "closed", 8 * p50_ns);
		engine_low(&options, "train");
		struct hb_sim_result result = engine_run(&options);
		assert_true(result.high[0].attainment > 0.98);
		assert_true(result.low[0].relative > 0.3);
		hb_sim_result_fini(&result);
	}
}

static int64_t p50_ns(const char *sharing)
{
	struct hb_sim_result result = engine_pair(sharing);
	int64_t p50 = result.high[0].p50_ns;
	hb_sim_result_fini(&result);
	return p50;
}

static void modes_keep_the_order_that_was_measured(void **state)
{
	int64_t alone = p50_ns("exclusive");
	assert_true(alone < p50_ns("ts1"));
	assert_true(p50_ns("ts1") < p50_ns("ts100"));
	assert_true(p50_ns("ts100") < p50_ns("timeslice"));
	assert_true(p50_ns("mps_prio") < p50_ns("mps"));
	assert_true(p50_ns("mps_gate2") < p50_ns("mps_prio"));
	/* One switch, which the temporal engine cannot hide without foresight. */
	assert_true(p50_ns("ts1") - alone > 180 * US && p50_ns("ts1") - alone < 230 * US);
	assert_int_equal(p50_ns("temporal:without=foresight"), p50_ns("ts1"));
}

static void better_hints_are_never_worse_for_a_graph(void **state)
{
	int64_t alone = p50_ns("exclusive"), none = p50_ns("temporal:without=foresight");
	int64_t perfect = p50_ns("temporal:hints=perfect"), late = p50_ns("temporal:hints=late");
	assert_true(perfect <= late);
	assert_true(late <= none);
	/* A perfect hint hides nearly all of the switch. */
	assert_true(perfect - alone < 10 * US);
	assert_true(p50_ns("temporal:hints=wrong") <= none);
	assert_true(p50_ns("temporal:hints=early") <= none);
}

static struct hb_sim_result run_longer(const char *sharing, const char *arrivals)
{
	struct hb_sim_options options = engine_options(sharing);
	options.seconds = 5; /* signs have to be learned first, for four lengths of idleness */
	engine_high(&options, "service:graph", arrivals, -1);
	engine_low(&options, "train");
	return engine_run(&options);
}

/* Bytes that arrive some 300 us before the first launch leave time for a takeover. */
static void foresight_hides_the_switch_from_most_requests(void **state)
{
	struct hb_sim_result without = run_longer("temporal:without=foresight", "100/s"),
			     with = run_longer("temporal:hints=learned", "100/s");
	assert_true(with.high[0].p50_ns < without.high[0].p50_ns - 100 * US);
	assert_true(with.high[0].p99_ns <= without.high[0].p99_ns + 20 * US);
	/* Takeovers keep LP off the GPU, but not for much longer than the switches. */
	assert_true(with.low[0].relative < without.low[0].relative);
	assert_true(with.low[0].relative > without.low[0].relative - 0.03);
	hb_sim_result_fini(&without);
	hb_sim_result_fini(&with);
}

/* As in `hb run`: a program without early signs learns only from its own launches, which a period makes predictable. */
static void foresight_needs_no_hints_where_requests_are_periodic(void **state)
{
	struct hb_sim_result without = run_longer("temporal:without=foresight", "100/s:periodic"),
			     with = run_longer("temporal", "100/s:periodic");
	assert_true(with.high[0].p50_ns < without.high[0].p50_ns - 100 * US);
	hb_sim_result_fini(&without);
	hb_sim_result_fini(&with);
}

static void wrong_hints_cost_low_and_not_high(void **state)
{
	struct hb_sim_result perfect = engine_pair("temporal:hints=perfect"),
			     wrong = engine_pair("temporal:hints=wrong");
	assert_true(wrong.low[0].relative < perfect.low[0].relative);
	assert_true(wrong.low[0].relative > 0.5);
	hb_sim_result_fini(&perfect);
	hb_sim_result_fini(&wrong);
}

/* LP kernels that begin while the GPU serves a request, in the worst request. */
static unsigned low_kernels_in_a_request(const char *sharing)
{
	struct hb_sim_options options = engine_options(sharing);
	engine_high(&options, "service", "50/s", 0);
	engine_low(&options, "train");
	options.spans_to_ns = INT64_MAX;
	options.spans_max = 1000000;
	struct hb_sim_result result = engine_run(&options);
	assert_false(result.spans_truncated);
	unsigned most = 0;
	for (size_t i = 0; i < result.n_spans; i++) {
		const struct hb_span *request = &result.spans[i];
		unsigned n = 0;
		if (request->kind != HB_SPAN_REQUEST)
			continue;
		for (size_t j = 0; j < result.n_spans; j++) {
			const struct hb_span *span = &result.spans[j];
			n += span->kind == HB_SPAN_KERNEL && span->tenant == 1 && span->start_ns > request->start_ns &&
			     span->start_ns < request->end_ns;
		}
		most = n > most ? n : most;
	}
	hb_sim_result_fini(&result);
	return most;
}

static void gate_bounds_what_low_has_in_flight(void **state)
{
	/* One LP kernel runs when the request arrives, so one less can begin. */
	assert_true(low_kernels_in_a_request("mps_gate1") <= 1);
	assert_true(low_kernels_in_a_request("mps_gate2") <= 2);
	assert_true(low_kernels_in_a_request("mps_gate4") <= 4);
	assert_true(low_kernels_in_a_request("mps_prio") >= 1);
	struct hb_sim_result one = engine_pair("mps_gate1"), four = engine_pair("mps_gate4");
	/* With one launch in flight the GPU idles from the end of a launch to the next. */
	assert_true(one.low[0].relative < four.low[0].relative);
	hb_sim_result_fini(&one);
	hb_sim_result_fini(&four);
}

static void limit_takes_speed_from_low(void **state)
{
	double last = 2;
	static const char *const modes[] = {"mps_100", "mps_88", "mps_60", "mps_25"};
	for (size_t i = 0; i < 4; i++) {
		struct hb_sim_result result = engine_pair(modes[i]);
		assert_true(result.low[0].relative < last);
		last = result.low[0].relative;
		hb_sim_result_fini(&result);
	}
	assert_true(last < 0.7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mode_serves_all_requests_and_lets_low_work),
		cmocka_unit_test(same_seed_gives_the_same_result_in_every_mode),
		cmocka_unit_test(another_seed_gives_other_arrivals),
		cmocka_unit_test(exclusive_runs_every_tenant_alone),
		cmocka_unit_test(slo_auto_is_the_p99_alone),
		cmocka_unit_test(attainment_is_the_share_within_the_slo),
		cmocka_unit_test(attainment_of_tokens_is_that_of_their_mean),
		cmocka_unit_test(low_uses_the_slack_of_tokens),
		cmocka_unit_test(modes_keep_the_order_that_was_measured),
		cmocka_unit_test(better_hints_are_never_worse_for_a_graph),
		cmocka_unit_test(foresight_hides_the_switch_from_most_requests),
		cmocka_unit_test(foresight_needs_no_hints_where_requests_are_periodic),
		cmocka_unit_test(wrong_hints_cost_low_and_not_high),
		cmocka_unit_test(gate_bounds_what_low_has_in_flight),
		cmocka_unit_test(limit_takes_speed_from_low),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
