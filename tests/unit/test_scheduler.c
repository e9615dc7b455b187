/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of the serving scheduler, with a back end that takes exactly the profiled time: no batch starts that cannot
 * be in time, no request starves, cancelled and late requests leave at once, every request ends exactly once, and nothing
 * is allocated. The baselines are the negative controls. HB_SEED=N repeats a random run. malloc counts allocations.
 */
#include "base/rng.h"
#include "counted_malloc.h"
#include "scheduler_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void a_request_alone_starts_at_once(void **state)
{
	open_policy("ours", 1);
	assert_true(submit(7, 0, HB_SCHEDULER_HIGH, 10 * MS) != 0);
	steps();
	assert_int_equal(rig.started, 1);
	assert_int_equal(rig.last_cookie, 7);
	assert_int_equal(hb_scheduler_queued(rig.scheduler, HB_SCHEDULER_HIGH), 0);
	advance_to(20 * MS);
	assert_null(hb_scheduler_batch_get(rig.scheduler, rig.last_slot));
}

static void the_earliest_deadline_is_first(void **state)
{
	open_policy("ours", 3);
	submit(1, 0, HB_SCHEDULER_HIGH, 40 * MS);
	submit(2, 1, HB_SCHEDULER_HIGH, 20 * MS);
	submit(3, 2, HB_SCHEDULER_HIGH, 30 * MS);
	struct hb_scheduler_action action;
	assert_true(hb_scheduler_step(rig.scheduler, rig.now_ns, &action));
	assert_int_equal(hb_scheduler_batch_get(rig.scheduler, action.slot)->cookies[0], 2);
}

/* Eight items take 9 ms, five take 6 ms. The first deadline leaves 14 ms minus several times the prediction error. */
static void a_batch_is_as_large_as_its_deadline_allows(void **state)
{
	open_policy("ours", 1);
	for (uint64_t i = 0; i < 8; i++)
		submit(i, 0, HB_SCHEDULER_HIGH, i ? 60 * MS : 14 * MS);
	struct hb_scheduler_action action;
	assert_true(hb_scheduler_step(rig.scheduler, rig.now_ns, &action));
	batch_started(action.slot);
	assert_in_range(rig.last_items, 3, 6);
	/* Control: with enough time all eight are one batch, and a policy that ignores deadlines takes all at once. */
	closes(NULL);
	open_policy("ours", 1);
	for (uint64_t i = 0; i < 8; i++)
		submit(i, 0, HB_SCHEDULER_HIGH, 60 * MS);
	steps();
	assert_int_equal(rig.last_items, 8);
	closes(NULL);
	open_policy("fifo", 1);
	for (uint64_t i = 0; i < 8; i++)
		submit(i, 0, HB_SCHEDULER_HIGH, i ? 60 * MS : 14 * MS);
	steps();
	assert_int_equal(rig.last_items, 8);
}

/* The batch in flight is in time only if it runs alone. */
static void low_priority_waits_if_high_priority_would_miss(void **state)
{
	for (int tight = 0; tight < 2; tight++) {
		open_policy("ours", 2);
		teach_interference();
		submit(1, 0, HB_SCHEDULER_HIGH, tight ? 2200 * US : 50 * MS);
		steps();
		assert_int_equal(rig.started, 1);
		submit(2, 1, HB_SCHEDULER_LOW, INT64_MAX);
		steps();
		assert_int_equal(rig.started, tight ? 1 : 2);
		advance_to(rig.now_ns + 3000 * MS); /* it starts when no high-priority request is expected any more */
		assert_int_equal(rig.started, 2);
		closes(NULL);
	}
}

static void a_prediction_includes_the_batches_in_flight(void **state)
{
	open_policy("ours", 2);
	teach_interference();
	assert_true(predict_high(0).ns < 2.01e6);
	for (int i = 0; i < BATCH_MOST; i++)
		submit(1, 1, HB_SCHEDULER_LOW, INT64_MAX);
	steps();
	assert_int_equal(rig.started, 1);
	struct hb_estimate beside = predict_high(0);
	assert_true(beside.ns > 3.5e6 && beside.ns < 4.5e6);
	assert_true(beside.error >= 0 && beside.error < 1);
}

static void a_request_that_cannot_be_in_time_is_refused_at_once(void **state)
{
	open_policy("ours", 1);
	submit(5, 0, HB_SCHEDULER_HIGH, 1900 * US);
	submit(6, 0, HB_SCHEDULER_LOW, 1900 * US);
	steps();
	assert_int_equal(rig.started, 0);
	assert_int_equal(rig.refused, 2);
	assert_int_equal(rig.last_reason, HB_SCHEDULER_LATE);
	assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->refused[HB_SCHEDULER_HIGH], 1);
}

static void with_separate_queues_only_the_own_worker_limits_a_model(void **state)
{
	static const uint32_t models[] = {0, 1, 0, 0, 3}, started[] = {1, 2, 3, 3, 4}; /* two slots each */
	open_policy("separate", 4);
	for (int i = 0; i < 5; i++) {
		submit((uint64_t)i, models[i], i < 4 ? HB_SCHEDULER_LOW : HB_SCHEDULER_HIGH, INT64_MAX);
		steps();
		assert_int_equal(rig.started, started[i]);
	}
}

static uint64_t seed_of(uint64_t fallback)
{
	const char *text = getenv("HB_SEED");
	return text ? strtoull(text, NULL, 10) : fallback;
}

static uint64_t random_load(const char *policy, uint64_t seed)
{
	struct hb_rng rng;
	hb_rng_init(&rng, seed, 1);
	open_policy(policy, 4);
	for (uint64_t i = 0; i < 2000; i++) {
		advance_to(rig.now_ns + (int64_t)hb_rng_exponential(&rng, 1.5e6));
		submit(i, (uint32_t)hb_rng_below(&rng, 4), hb_rng_below(&rng, 2) ? HB_SCHEDULER_HIGH : HB_SCHEDULER_LOW,
		       (int64_t)hb_rng_below(&rng, 12 * MS));
		steps();
	}
	uint64_t hopeless = rig.late_starts;
	assert_true(rig.started > 100);
	closes(NULL);
	return hopeless;
}

/* Even alone, the batch would end after its first deadline. */
static void no_batch_starts_that_cannot_be_in_time(void **state)
{
	uint64_t seed = seed_of(1);
	assert_int_equal(random_load("clockwork", seed), 0);
	assert_int_equal(random_load("ours", seed), 0);
	assert_true(random_load("fifo", seed) > 10);
	assert_true(random_load("priority-fifo", seed) > 10);
}

/* High priority uses the entire GPU; a low-priority request without a deadline waits. */
static uint64_t low_served_beside_saturation(const char *policy)
{
	open_policy(policy, 2);
	submit(1000000, 1, HB_SCHEDULER_LOW, INT64_MAX);
	for (uint64_t i = 0; i < 4000; i++) {
		submit(i, 0, HB_SCHEDULER_HIGH, 3 * MS);
		advance_to(rig.now_ns + 1 * MS);
	}
	return hb_scheduler_counts_get(rig.scheduler)->started[HB_SCHEDULER_LOW];
}

static void low_priority_does_not_starve(void **state)
{
	assert_int_equal(low_served_beside_saturation("ours"), 1);
	closes(NULL);
	assert_int_equal(low_served_beside_saturation("preempt"), 0);
}

/* Requests without a deadline are equally urgent, so the oldest is next, and each model gets its turn. */
static void models_without_deadlines_share_the_gpu(void **state)
{
	for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++) {
		open_policy("ours", 3);
		teach_interference();
		memset(rig.started_of, 0, sizeof rig.started_of);
		for (uint64_t i = 0; i < 600; i++, advance_to(rig.now_ns + US))
			submit(i, i % 3, (enum hb_scheduler_priority) class, INT64_MAX);
		steps();
		advance_to(rig.now_ns + 40 * run_ns(BATCH_MOST));
		assert_true(rig.started >= 30);
		for (uint32_t model = 0; model < 3; model++)
			assert_in_range(rig.started_of[model], rig.started / 4, rig.started / 2);
		closes(NULL);
	}
}

static void aged_requests_start_beside_high_priority_of_their_model(void **state)
{
	model_slots = 1; /* as a worker that carries out one batch at a time */
	open_policy("ours", 1);
	model_slots = 0;
	submit(1000000, 0, HB_SCHEDULER_LOW, INT64_MAX);
	for (uint64_t i = 0; i < 4000; i++) {
		submit(i, 0, HB_SCHEDULER_HIGH, 3 * MS);
		advance_to(rig.now_ns + 1 * MS);
	}
	assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->started[HB_SCHEDULER_LOW], 1);
}

static void aged_requests_take_no_more_than_their_share(void **state)
{
	open_policy("ours", 2);
	teach_interference();
	for (uint64_t i = 0; i < 3000; i++)
		submit(100000 + i, 1, HB_SCHEDULER_LOW, INT64_MAX);
	for (uint64_t i = 0; i < 5000; i++) {
		submit(i, 0, HB_SCHEDULER_HIGH, 2100 * US);
		advance_to(rig.now_ns + 1 * MS);
	}
	const struct hb_scheduler_counts *counts = hb_scheduler_counts_get(rig.scheduler);
	/* 4 s after the first second, 2 ms each, 2 % of the time: 40. */
	assert_in_range(counts->aged, 20, 42);
}

static void a_cancelled_request_never_starts(void **state)
{
	open_policy("ours", 1);
	uint64_t first = submit(1, 0, HB_SCHEDULER_HIGH, 50 * MS);
	uint64_t second = submit(2, 0, HB_SCHEDULER_LOW, 50 * MS);
	assert_true(hb_scheduler_cancel(rig.scheduler, rig.now_ns, second));
	assert_false(hb_scheduler_cancel(rig.scheduler, rig.now_ns, second)); /* only once */
	assert_false(hb_scheduler_cancel(rig.scheduler, rig.now_ns, UINT64_MAX));
	steps();
	assert_int_equal(rig.started, 1);
	assert_int_equal(rig.last_cookie, 1);
	assert_false(hb_scheduler_cancel(rig.scheduler, rig.now_ns, first)); /* it runs */
	advance_to(50 * MS);
	assert_int_equal(rig.started, 1);
	uint64_t again = submit(3, 0, HB_SCHEDULER_HIGH, 50 * MS);
	assert_false(hb_scheduler_cancel(rig.scheduler, rig.now_ns,
					 first)); /* its slot in the pool is used by another request */
	assert_true(hb_scheduler_cancel(rig.scheduler, rig.now_ns, again));
}

static void a_timeout_is_reported_when_it_happens(void **state)
{
	open_policy("fifo", 3);
	submit(1, 0, HB_SCHEDULER_HIGH, 90 * MS);
	submit(2, 1, HB_SCHEDULER_HIGH, 90 * MS);
	steps(); /* two in flight, no more */
	submit(3, 2, HB_SCHEDULER_LOW, 500 * US);
	steps();
	assert_int_equal(rig.refused, 0);
	assert_int_equal(hb_scheduler_next_wake_ns(rig.scheduler), rig.now_ns + 500 * US);
	advance_to(rig.now_ns + 500 * US);
	assert_int_equal(rig.refused, 1);
	assert_int_equal(rig.last_cookie, 3);
	assert_int_equal(rig.last_reason, HB_SCHEDULER_TIMEOUT);
}

static void a_late_request_is_downgraded_if_so_configured(void **state)
{
	struct hb_scheduler_config config;
	hb_scheduler_config_init(&config);
	config.late[HB_SCHEDULER_HIGH] = HB_SCHEDULER_DOWNGRADE;
	open_with(config, 1);
	submit(1, 0, HB_SCHEDULER_HIGH, 1 * MS);
	steps();
	assert_int_equal(rig.refused, 0);
	assert_int_equal(rig.started, 1);
	assert_int_equal(hb_scheduler_batch_get(rig.scheduler, rig.last_slot)->priority, HB_SCHEDULER_LOW);
	assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->downgraded[HB_SCHEDULER_HIGH], 1);
}

/* A worker dies: the slot is free again and nothing is learned. */
static void a_failed_batch_frees_its_slot(void **state)
{
	open_policy("ours", 1);
	submit(1, 0, HB_SCHEDULER_HIGH, 50 * MS);
	steps();
	uint64_t known = hb_scheduler_predictor(rig.scheduler)->ended;
	hb_scheduler_end(rig.scheduler, rig.now_ns, rig.last_slot, false);
	rig.end_ns[rig.last_slot] = 0;
	assert_int_equal(hb_scheduler_predictor(rig.scheduler)->ended, known);
	submit(2, 0, HB_SCHEDULER_HIGH, 50 * MS);
	steps();
	assert_int_equal(rig.started, 2);
}

#define REQUESTS 5000

/*
 * Every policy, with unusual requests, cancellations and failed batches: each accepted request ends exactly once. Paused
 * batches also end.
 */
static void every_request_ends_exactly_once(void **state)
{
	static uint64_t handles[REQUESTS];
	uint64_t seed = seed_of(3);
	for (const char *const *policy = hb_scheduler_policy_names; *policy; policy++) {
		struct hb_rng rng;
		hb_rng_init(&rng, seed, 2);
		struct hb_scheduler_config config;
		hb_scheduler_config_init(&config);
		config.policy = *policy;
		open_stopping(config, 5, 0.05);
		rig.beside = 2;
		rig.fate = calloc(REQUESTS, 1);
		for (uint64_t i = 0; i < REQUESTS; i++) {
			int64_t within = hb_rng_below(&rng, 8) ? (int64_t)hb_rng_below(&rng, 40 * MS) : INT64_MAX;
			handles[i] = submit(i, (uint32_t)hb_rng_below(&rng, 6),
					    (enum hb_scheduler_priority)hb_rng_below(&rng, 2), within);
			rig.fate[i] += !handles[i];
			uint64_t other = hb_rng_below(&rng, i + 1);
			if (hb_rng_below(&rng, 10) == 0 && handles[other])
				rig.fate[other] += hb_scheduler_cancel(rig.scheduler, rig.now_ns, handles[other]);
			steps();
			if (hb_rng_below(&rng, 50) == 0 && rig.end_ns[rig.last_slot]) {
				rig.end_ns[rig.last_slot] = 0;
				hb_scheduler_end(rig.scheduler, rig.now_ns, rig.last_slot, false);
				steps();
			}
			advance_to(rig.now_ns + (int64_t)hb_rng_exponential(&rng, 1e6));
		}
		advance_to(rig.now_ns + 2000000 * MS);
		for (uint64_t i = 0; i < REQUESTS; i++)
			assert_int_equal(rig.fate[i], 1);
		/* Without interference a pause is predicted to save nothing. */
		bool pauses = strcmp(*policy, "preempt") == 0 || strcmp(*policy, "ours") == 0 ||
			      strcmp(*policy, "ours-no-transfer") == 0;
		assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->pauses > 0, pauses);
		free(rig.fate);
		closes(NULL);
	}
}

static void a_full_queue_refuses_and_submitting_never_allocates(void **state)
{
	struct hb_scheduler_config config;
	hb_scheduler_config_init(&config);
	config.queue_max = 16;
	open_with(config, 2);
	for (uint64_t i = 0; i < 16; i++)
		assert_true(submit(i, 0, HB_SCHEDULER_LOW, 900 * MS) != 0);
	assert_true(submit(16, 0, HB_SCHEDULER_LOW, 900 * MS) == 0);
	for (uint64_t i = 17; i < 33; i++)
		assert_true(submit(i, 0, HB_SCHEDULER_HIGH, 900 * MS) != 0);
	assert_true(submit(33, 0, HB_SCHEDULER_HIGH, 900 * MS) == 0);
	assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->full[HB_SCHEDULER_LOW], 1);
	assert_int_equal(hb_scheduler_counts_get(rig.scheduler)->full[HB_SCHEDULER_HIGH], 1);
	unsigned long before = hb_test_allocations;
	for (uint64_t i = 0; i < 50000; i++) {
		submit(i, i % 3 == 0, i % 2 ? HB_SCHEDULER_HIGH : HB_SCHEDULER_LOW, 20 * MS);
		steps();
		advance_to(rig.now_ns + 1 * MS);
	}
	assert_int_equal(hb_test_allocations, before);
	assert_true(rig.items > 30000);
}

static void a_batch_has_no_more_data_than_its_room(void **state)
{
	const struct hb_scheduler_model roomy = {
		.max_items = BATCH_MOST, .run_guess_ns = 1 * MS, .sm_demand = {1, 1}, .room_bytes = 100};
	static const uint64_t bytes[] = {60, 40, 1, 99, 101, 100}, batches[] = {2, 2, 1, 1};
	struct hb_error error;
	for (size_t policy = 0; hb_scheduler_policy_names[policy]; policy++) {
		open_policy(hb_scheduler_policy_names[policy], 1);
		assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 0, &roomy, &error), 0);
		for (uint64_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
			assert_true(
				hb_scheduler_submit(rig.scheduler, rig.now_ns,
						    &(struct hb_scheduler_request){i, 0, 1, HB_SCHEDULER_HIGH,
										   rig.now_ns + 5000 * MS, bytes[i]}));
		for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
			struct hb_scheduler_action action;
			assert_true(hb_scheduler_step(rig.scheduler, rig.now_ns, &action));
			assert_int_equal(action.kind, HB_SCHEDULER_START);
			assert_int_equal(hb_scheduler_batch_get(rig.scheduler, action.slot)->n_requests, batches[i]);
			rig.now_ns += 1 * MS;
			hb_scheduler_stage(rig.scheduler, rig.now_ns, action.slot, HB_STAGE_RUN);
			hb_scheduler_end(rig.scheduler, rig.now_ns, action.slot, true);
		}
		closes(NULL);
	}
}

static void a_number_can_be_given_to_another_model_when_the_first_is_idle(void **state)
{
	const struct hb_scheduler_model other = {
		.name = "other", .max_items = 1, .run_guess_ns = 7 * MS, .sm_demand = {1, 1}};
	struct hb_error error;
	open_policy("ours", 2);
	double known_ns = predict_high(0).ns;
	assert_true(submit(1, 0, HB_SCHEDULER_HIGH, 90 * MS) != 0);
	assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 0, &other, &error), -EBUSY); /* it waits */
	steps();
	assert_int_equal(rig.started, 1);
	assert_int_equal(hb_scheduler_in_flight(rig.scheduler, 0), 1);
	assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 0, &other, &error), -EBUSY); /* it runs */
	advance_to(rig.now_ns + 50 * MS);
	assert_int_equal(hb_scheduler_in_flight(rig.scheduler, 0), 0);
	assert_int_equal(predict_high(0).ns, known_ns);
	assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 0, &other, &error), 0);
	assert_int_equal(predict_high(0).ns, 7 * MS);
	assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 2, &other, &error), -EINVAL);
	struct hb_scheduler_model wrong = other;
	wrong.max_items = 0;
	assert_int_equal(hb_scheduler_replace_model(rig.scheduler, 0, &wrong, &error), -EINVAL);
}

static void impossible_values_are_refused(void **state)
{
	struct hb_scheduler_config config, good;
	struct hb_error error;
	struct hb_scheduler *scheduler = NULL;
	hb_scheduler_config_init(&good);
#define BAD(field, value) \
	config = good; \
	config.field = value; \
	assert_true(hb_scheduler_new(&config, &scheduler, &error) < 0); \
	assert_null(scheduler)
	BAD(policy, "best");
	BAD(queue_max, 0);
	BAD(slots, 0);
	BAD(concurrency, 0);
	BAD(batch_most, 0);
	BAD(age_ns, 0);
	BAD(aged_share, 0);
	BAD(aged_share, 2);
	open_policy("ours", 1);
	struct hb_scheduler_request request = {.model = 0, .items = BATCH_MOST + 1, .deadline_ns = INT64_MAX};
	assert_true(hb_scheduler_submit(rig.scheduler, 1, &request) == 0);
	request.items = 0;
	assert_true(hb_scheduler_submit(rig.scheduler, 1, &request) == 0);
	request = (struct hb_scheduler_request){.model = 1, .items = 1, .deadline_ns = INT64_MAX};
	assert_true(hb_scheduler_submit(rig.scheduler, 1, &request) == 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, closes)
	const struct CMUnitTest tests[] = {
		TEST(a_request_alone_starts_at_once),
		TEST(the_earliest_deadline_is_first),
		TEST(a_batch_is_as_large_as_its_deadline_allows),
		TEST(low_priority_waits_if_high_priority_would_miss),
		TEST(a_prediction_includes_the_batches_in_flight),
		TEST(a_request_that_cannot_be_in_time_is_refused_at_once),
		TEST(with_separate_queues_only_the_own_worker_limits_a_model),
		TEST(no_batch_starts_that_cannot_be_in_time),
		TEST(low_priority_does_not_starve),
		TEST(models_without_deadlines_share_the_gpu),
		TEST(aged_requests_start_beside_high_priority_of_their_model),
		TEST(aged_requests_take_no_more_than_their_share),
		TEST(a_cancelled_request_never_starts),
		TEST(a_timeout_is_reported_when_it_happens),
		TEST(a_late_request_is_downgraded_if_so_configured),
		TEST(a_failed_batch_frees_its_slot),
		TEST(every_request_ends_exactly_once),
		TEST(a_full_queue_refuses_and_submitting_never_allocates),
		TEST(a_batch_has_no_more_data_than_its_room),
		TEST(a_number_can_be_given_to_another_model_when_the_first_is_idle),
		TEST(impossible_values_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
