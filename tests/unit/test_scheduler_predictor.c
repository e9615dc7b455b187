/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serving predictor: copies that share the link end when the formula says;
 * interference is learned from completed batches; forecasts change with the set
 * of batches in flight; error estimates grow with the observed errors.
 */
#include "base/rng.h"
#include "server/scheduler/predictor.h"
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MS 1e6
#define RATE 1e10 /* bytes/s */

static struct hb_predictor *predictor;

static const struct hb_scheduler_model copying = {
	.name = "copying", .max_items = 8, .in_bytes = 1e7, .run_guess_ns = 1, .sm_demand = {0.5, 0.5}};
/* Models that only copy, each in a process of its own; numbers 2 and above. */
#define COPIERS 12
#define COPIER(i) (2 + (i))
static const struct hb_scheduler_model running = {
	.name = "running", .max_items = 4, .run_guess_ns = 4e6, .sm_demand = {0.6, 0.6}, .memory_demand = {0.5, 0.5}};

static int with_both_parts(void **state)
{
	struct hb_predictor_parts parts = {true, true};
	predictor = malloc(sizeof *predictor);
	hb_predictor_init(predictor, parts);
	assert_int_equal(hb_predictor_add_model(predictor, &copying), 0);
	assert_int_equal(hb_predictor_add_model(predictor, &running), 1);
	for (int i = 0; i < COPIERS; i++)
		assert_int_equal(hb_predictor_add_model(predictor, &copying), COPIER(i));
	/* The exact speed of the link, without latency. */
	for (uint32_t items = 1; items <= 8; items++) {
		double stage_ns[HB_STAGES] = {copying.in_bytes * items / RATE * 1e9, 1, 0};
		hb_predictor_profiled(predictor, 0, items, stage_ns);
		hb_predictor_profiled(predictor, 0, items, stage_ns);
	}
	return 0;
}

static int gone(void **state)
{
	free(predictor);
	return 0;
}

static bool near(double a, double b, double part)
{
	return fabs(a - b) <= part * fabs(b);
}

static void the_link_is_learned(void **state)
{
	assert_true(near(hb_predictor_transfer_ns(predictor, HB_STAGE_IN, 3.3e7), 3.3 * MS, 0.001));
	assert_true(hb_predictor_transfer_ns(predictor, HB_STAGE_IN, 0) == 0);
}

/* Copies of 1, 2 and 4 ms at the same time end at 3, 3 + 2 and 7 ms. */
static void copies_that_share_the_link_end_when_the_formula_says(void **state)
{
	static const uint32_t items[] = {1, 2, 4};
	static const double done_ms[] = {3, 5, 7};
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, 0, &forecast);
	for (int i = 0; i < 3; i++)
		hb_forecast_add(predictor, &forecast, (uint32_t)COPIER(i), items[i], HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	for (int i = 0; i < 3; i++)
		assert_true(near(forecast.flow[i].finish_ns, done_ms[i] * MS, 0.001));
}

/* For any sizes: when the k-th smallest copy ends, the link has done its size for it and for every larger copy. */
static void copies_of_any_size_follow_processor_sharing(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 1, 1);
	for (int round = 0; round < 200; round++) {
		uint32_t n = 1 + (uint32_t)hb_rng_below(&rng, COPIERS), items[COPIERS];
		struct hb_forecast forecast;
		hb_forecast_begin(predictor, 0, &forecast);
		for (uint32_t i = 0; i < n; i++) {
			items[i] = 1 + (uint32_t)hb_rng_below(&rng, 8);
			hb_forecast_add(predictor, &forecast, COPIER(i), items[i], HB_SCHEDULER_LOW, false);
		}
		hb_forecast_run(predictor, &forecast, NULL);
		for (uint32_t i = 0; i < n; i++) {
			double done_ms = 0;
			for (uint32_t k = 0; k < n; k++)
				done_ms += items[k] < items[i] ? items[k] : items[i];
			assert_true(near(forecast.flow[i].finish_ns, done_ms * MS, 0.001));
		}
	}
}

/*
 * One process has copies of 4 and 2 ms, another one of 8 ms; each process gets
 * half of the link. The copies end at 8, 12 and 14 ms.
 */
static void copies_of_one_process_follow_one_another(void **state)
{
	struct hb_forecast forecast;
	hb_predictor_begin(predictor, 0, 7, 0, 4, HB_SCHEDULER_HIGH);
	hb_predictor_begin(predictor, 0, 3, 0, 2, HB_SCHEDULER_HIGH);
	hb_forecast_begin(predictor, 0, &forecast);
	hb_forecast_add(predictor, &forecast, 0, 8, HB_SCHEDULER_LOW, false);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_int_equal(forecast.slot[0], 3);
	assert_true(near(forecast.flow[0].finish_ns, 12 * MS, 0.001));
	assert_true(near(forecast.flow[1].finish_ns, 8 * MS, 0.001));
	assert_true(near(forecast.flow[2].finish_ns, 14 * MS, 0.001));
	/* The same in the accounting: the first copy runs alone and ends at 4 ms; the second has 1 ms left at 5 ms. */
	hb_predictor_stage(predictor, 4000000, 7, HB_STAGE_RUN);
	hb_forecast_begin(predictor, 5000000, &forecast);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_true(near(forecast.flow[0].finish_ns, 1 * MS, 0.001));
}

static void without_the_transfer_part_copies_do_not_delay_each_other(void **state)
{
	struct hb_forecast forecast;
	predictor->parts.transfer = false;
	hb_forecast_begin(predictor, 0, &forecast);
	hb_forecast_add(predictor, &forecast, 0, 2, HB_SCHEDULER_HIGH, false);
	hb_forecast_add(predictor, &forecast, 0, 4, HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_true(near(forecast.flow[0].finish_ns, 2 * MS, 0.001));
	assert_true(near(forecast.flow[1].finish_ns, 4 * MS, 0.001));
}

static double link_use_of(const struct hb_predictor *of, double bytes)
{
	return hb_predictor_link_use(of, HB_STAGE_IN, hb_predictor_transfer_ns(of, HB_STAGE_IN, bytes));
}

/* A copy that is only latency neither delays other copies nor is delayed by them. */
static void latency_is_not_shared(void **state)
{
	const struct hb_scheduler_model small = {
		.name = "small", .max_items = 1, .in_bytes = 8, .run_guess_ns = 1, .sm_demand = {0.5, 0.5}};
	struct hb_predictor_parts parts = {true, true};
	struct hb_forecast forecast;
	hb_predictor_init(predictor, parts);
	hb_predictor_add_model(predictor, &copying);
	hb_predictor_add_model(predictor, &small);
	for (uint32_t items = 1; items <= 8; items++) {
		double stage_ns[HB_STAGES] = {0.3 * MS + copying.in_bytes * items / RATE * 1e9, 1, 0};
		hb_predictor_profiled(predictor, 0, items, stage_ns);
		hb_predictor_profiled(predictor, 0, items, stage_ns);
	}
	assert_true(link_use_of(predictor, 8) < 0.01);
	assert_true(near(link_use_of(predictor, 4 * copying.in_bytes), 4 / 4.3, 0.01));
	hb_forecast_begin(predictor, 0, &forecast);
	hb_forecast_add(predictor, &forecast, 0, 4, HB_SCHEDULER_HIGH, false);
	hb_forecast_add(predictor, &forecast, 1, 1, HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_true(near(forecast.flow[0].finish_ns, 4.3 * MS, 0.01));
	assert_true(near(forecast.flow[1].finish_ns, 0.3 * MS, 0.01));
	hb_forecast_begin(predictor, 0, &forecast);
	hb_forecast_add(predictor, &forecast, 0, 4, HB_SCHEDULER_HIGH, false);
	hb_forecast_add(predictor, &forecast, 0, 4, HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_true(near(forecast.flow[1].finish_ns, 8.3 * MS, 0.05));
}

/* A copy of 4 ms runs alone for 2 ms; then a second one joins and both run at half speed. */
static void a_batch_that_ends_or_joins_changes_the_forecast(void **state)
{
	struct hb_forecast forecast;
	hb_predictor_begin(predictor, 0, 3, 0, 4, HB_SCHEDULER_HIGH);
	hb_predictor_begin(predictor, 2000000, 5, 0, 4, HB_SCHEDULER_LOW);
	hb_forecast_begin(predictor, 2000000, &forecast);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_int_equal(forecast.n, 2);
	assert_true(near(forecast.flow[0].finish_ns, 4 * MS, 0.001)); /* at 6 ms */
	assert_true(near(forecast.flow[1].finish_ns, 6 * MS, 0.001)); /* at 8 ms */
	/* The first copy fails: its remaining work does not delay the second any more. */
	hb_predictor_end(predictor, 3000000, 3, false);
	hb_forecast_begin(predictor, 3000000, &forecast);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_int_equal(forecast.n, 1);
	assert_true(near(forecast.flow[0].finish_ns, 3.5 * MS, 0.001));
}

/* Runs two batches beside each other that both take `slower` times as long as alone; returns the new time. */
static int64_t pair_runs(int64_t now_ns, double slower)
{
	for (uint32_t slot = 0; slot < 2; slot++) {
		hb_predictor_begin(predictor, now_ns, slot, 1, 1, HB_SCHEDULER_HIGH);
		hb_predictor_stage(predictor, now_ns, slot, HB_STAGE_RUN);
	}
	now_ns += (int64_t)(4 * MS * slower);
	for (uint32_t slot = 0; slot < 2; slot++)
		hb_predictor_stage(predictor, now_ns, slot, HB_STAGE_OUT);
	for (uint32_t slot = 0; slot < 2; slot++)
		hb_predictor_end(predictor, now_ns, slot, true);
	return now_ns;
}

static double pair_forecast_ns(int64_t now_ns, double *error_ns)
{
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, now_ns, &forecast);
	hb_forecast_add(predictor, &forecast, 1, 1, HB_SCHEDULER_HIGH, false);
	hb_forecast_add(predictor, &forecast, 1, 1, HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	*error_ns = hb_forecast_error_ns(predictor, &forecast, 1);
	return forecast.flow[1].finish_ns;
}

static void interference_is_learned_and_forgotten(void **state)
{
	int64_t now_ns = 0;
	double error_ns, stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	/* Before any measurement, batches that fill the GPU are assumed to share it in turns. */
	assert_true(pair_forecast_ns(0, &error_ns) > 4.4 * MS && pair_forecast_ns(0, &error_ns) <= 8 * MS);
	for (int i = 0; i < 50; i++)
		now_ns = pair_runs(now_ns, 1.6);
	assert_true(near(pair_forecast_ns(now_ns, &error_ns), 6.4 * MS, 0.02));
	for (int i = 0; i < 400; i++)
		now_ns = pair_runs(now_ns, 1.1);
	assert_true(near(pair_forecast_ns(now_ns, &error_ns), 4.4 * MS, 0.05));
	/* The time alone is unchanged. */
	assert_true(near(hb_predictor_alone(predictor, 1, 1).ns, 4 * MS, 0.001));
	predictor->parts.interference = false;
	assert_true(near(pair_forecast_ns(now_ns, &error_ns), 4 * MS, 0.001));
}

/* A batch of 4 ms of which a tenth still executes after a pause, beside a high-priority copy of 10 ms. */
static void a_paused_batch_resumes_when_high_priority_has_ended(void **state)
{
	struct hb_scheduler_model stops = running;
	struct hb_forecast forecast;
	double stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	stops.stop_share = 0.1;
	assert_int_equal(hb_predictor_replace_model(predictor, 1, &stops), 0);
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	hb_predictor_begin(predictor, 0, 0, 1, 1, HB_SCHEDULER_LOW);
	hb_predictor_stage(predictor, 0, 0, HB_STAGE_RUN);
	hb_predictor_begin(predictor, 0, 1, 0, 8, HB_SCHEDULER_HIGH); /* copies for 8 ms, then a run of no time */
	hb_forecast_begin(predictor, 1000000, &forecast);
	hb_forecast_pause(predictor, &forecast, 0, true);
	hb_forecast_run(predictor, &forecast, NULL);
	/* The run stops at 1.4 ms with 1.4 of 4 ms done; 2.6 ms are left at 8 ms. */
	assert_true(near(forecast.flow[0].finish_ns, 9.6 * MS, 0.001));
	hb_predictor_pause(predictor, 1000000, 0, true);
	/* The predictor is called late: the run has been paused since 1.4 ms. */
	hb_forecast_begin(predictor, 6000000, &forecast);
	assert_true(near(forecast.flow[0].left_ns[HB_STAGE_RUN], 2.6 * MS, 0.001));
	hb_predictor_pause(predictor, 6000000, 0, false);
	hb_forecast_begin(predictor, 7000000, &forecast);
	assert_true(near(forecast.flow[0].left_ns[HB_STAGE_RUN], 1.6 * MS, 0.001));
	/* The scheduler chose when it ends: neither the time alone nor the error learns from it. */
	double alone_ns = hb_predictor_alone(predictor, 1, 1).ns,
	       error = hb_predictor_error(predictor, HB_SCHEDULER_LOW, 0);
	hb_predictor_end(predictor, 60000000, 0, true);
	assert_true(hb_predictor_alone(predictor, 1, 1).ns == alone_ns);
	assert_true(hb_predictor_error(predictor, HB_SCHEDULER_LOW, 0) == error);
}

static void a_model_that_cannot_be_paused_continues(void **state)
{
	struct hb_forecast forecast;
	double stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	hb_predictor_begin(predictor, 0, 0, 1, 1, HB_SCHEDULER_LOW);
	hb_predictor_stage(predictor, 0, 0, HB_STAGE_RUN);
	hb_predictor_pause(predictor, 0, 0, true);
	hb_forecast_begin(predictor, 0, &forecast);
	hb_forecast_pause(predictor, &forecast, 0, true);
	hb_forecast_run(predictor, &forecast, NULL);
	assert_true(near(forecast.flow[0].finish_ns, 4 * MS, 0.001));
}

/* Two models beside the same batches: one is slowed three times as much as the other, and the predictor learns it. */
static void the_sensitivity_of_a_model_is_learned(void **state)
{
	static const double slower[] = {1.3, 1.9};
	struct hb_scheduler_model other = running;
	double stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	int64_t now_ns = 0;
	int second = hb_predictor_add_model(predictor, &other);
	uint32_t models[] = {1, (uint32_t)second};
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	hb_predictor_profiled(predictor, models[1], 1, stage_ns);
	for (int i = 0; i < 100; i++) {
		for (uint32_t slot = 0; slot < 2; slot++) {
			hb_predictor_begin(predictor, now_ns, slot, models[slot], 1, HB_SCHEDULER_HIGH);
			hb_predictor_stage(predictor, now_ns, slot, HB_STAGE_RUN);
		}
		for (uint32_t slot = 0; slot < 2; slot++) {
			int64_t end_ns = now_ns + (int64_t)(4 * MS * slower[slot]);
			hb_predictor_stage(predictor, end_ns, slot, HB_STAGE_OUT);
			hb_predictor_end(predictor, end_ns, slot, true);
		}
		now_ns += (int64_t)(20 * MS);
	}
	double first = hb_predictor_sensitivity(predictor, 1, HB_SCHEDULER_HIGH);
	double more = hb_predictor_sensitivity(predictor, models[1], HB_SCHEDULER_HIGH);
	assert_true(more > 1.8 * first);
	/* Another model with the same number begins with sensitivity 1. */
	assert_int_equal(hb_predictor_replace_model(predictor, models[1], &other), 0);
	assert_true(hb_predictor_sensitivity(predictor, models[1], HB_SCHEDULER_HIGH) == 1);
}

static void a_changed_demand_keeps_what_was_learned(void **state)
{
	const struct hb_demand demand = {{0.2, 0.4}, {0.1, 0.3}, 5, 6}, wrong = {.sm = {0, 1.1}};
	double stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	double run_ns = hb_solo_time_get(&predictor->solo[1], 1).ns;
	hb_predictor_begin(predictor, 0, 0, 1, 1, HB_SCHEDULER_LOW);
	assert_int_equal(hb_predictor_set_demand(predictor, 1, &demand), -EBUSY);
	hb_predictor_end(predictor, 1000000, 0, false);
	assert_int_equal(hb_predictor_set_demand(predictor, 1, &wrong), -EINVAL);
	assert_int_equal(hb_predictor_set_demand(predictor, HB_SCHEDULER_MODELS_MAX, &demand), -EINVAL);
	assert_int_equal(hb_predictor_set_demand(predictor, 1, &demand), 0);
	assert_true(predictor->models[1].sm_demand[1] == 0.4 && predictor->models[1].memory_demand[0] == 0.1);
	assert_true(predictor->models[1].in_bytes == 5 && predictor->models[1].out_bytes == 6);
	assert_true(hb_solo_time_get(&predictor->solo[1], 1).ns == run_ns);
}

static void the_error_estimate_follows_the_observed_errors(void **state)
{
	int64_t now_ns = 0;
	double sure_ns, unsure_ns, stage_ns[HB_STAGES] = {0, 4 * MS, 0};
	struct hb_rng rng;
	hb_rng_init(&rng, 6, 1);
	hb_predictor_profiled(predictor, 1, 1, stage_ns);
	for (int i = 0; i < 100; i++)
		now_ns = pair_runs(now_ns, 1.5);
	pair_forecast_ns(now_ns, &sure_ns);
	for (int i = 0; i < 100; i++)
		now_ns = pair_runs(now_ns, hb_rng_below(&rng, 2) ? 1.1 : 2.2);
	pair_forecast_ns(now_ns, &unsure_ns);
	assert_true(sure_ns < 0.3 * MS);
	assert_true(unsure_ns > 3 * sure_ns);
}

static void events_of_unknown_batches_and_models_are_ignored(void **state)
{
	struct hb_forecast forecast;
	hb_predictor_stage(predictor, 0, 4, HB_STAGE_RUN);
	hb_predictor_end(predictor, 0, 4, true);
	hb_predictor_begin(predictor, 0, HB_SCHEDULER_FLIGHTS_MAX, 0, 1, HB_SCHEDULER_HIGH);
	hb_predictor_begin(predictor, 0, 1, COPIER(COPIERS), 1, HB_SCHEDULER_HIGH); /* no such model */
	hb_forecast_begin(predictor, 0, &forecast);
	assert_int_equal(forecast.n, 0);
	struct hb_scheduler_model bad = running;
	bad.in_bytes = NAN;
	assert_true(hb_predictor_add_model(predictor, &bad) < 0);
	bad = running;
	bad.max_items = HB_SCHEDULER_BATCH_MAX + 1;
	assert_true(hb_predictor_add_model(predictor, &bad) < 0);
	bad = running;
	bad.sm_demand[1] = 1.5;
	assert_true(hb_predictor_add_model(predictor, &bad) < 0);
	/* A forecast that is full leaves further batches out and reports it. */
	for (int i = 0; i < HB_FORECAST_MAX; i++)
		assert_int_equal(hb_forecast_add(predictor, &forecast, 1, 1, HB_SCHEDULER_HIGH, true), i);
	assert_int_equal(hb_forecast_add(predictor, &forecast, 1, 1, HB_SCHEDULER_HIGH, true), HB_FORECAST_MAX);
	hb_forecast_run(predictor, &forecast, NULL);
	/* Waiting batches begin one after another. */
	assert_true(near(forecast.flow[HB_FORECAST_MAX - 1].finish_ns, HB_FORECAST_MAX * 4 * MS, 0.001));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, with_both_parts, gone)
	const struct CMUnitTest tests[] = {
		TEST(the_link_is_learned),
		TEST(copies_that_share_the_link_end_when_the_formula_says),
		TEST(copies_of_any_size_follow_processor_sharing),
		TEST(latency_is_not_shared),
		TEST(copies_of_one_process_follow_one_another),
		TEST(without_the_transfer_part_copies_do_not_delay_each_other),
		TEST(a_batch_that_ends_or_joins_changes_the_forecast),
		TEST(interference_is_learned_and_forgotten),
		TEST(a_paused_batch_resumes_when_high_priority_has_ended),
		TEST(a_model_that_cannot_be_paused_continues),
		TEST(the_sensitivity_of_a_model_is_learned),
		TEST(a_changed_demand_keeps_what_was_learned),
		TEST(the_error_estimate_follows_the_observed_errors),
		TEST(events_of_unknown_batches_and_models_are_ignored),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
