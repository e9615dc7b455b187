/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of the serving scheduler, with a back end that takes exactly the profiled time: no batch starts that cannot
 * be in time, no request starves, cancelled and late requests leave at once, every request ends exactly once, and nothing
 * is allocated. The baselines are the negative controls. HB_SEED=N repeats a random run. malloc counts allocations.
 */
#include "base/rng.h"
#include "counted_malloc.h"
#include "server/scheduler/scheduler.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define RUN_NS (2 * MS) /* run time of one item */
#define RUN_MORE_NS (1 * MS)
#define BATCH_MOST 8

static struct {
	struct hb_scheduler *scheduler;
	int64_t now_ns, end_ns[HB_SCHEDULER_FLIGHTS_MAX]; /* 0 = free, INT64_MAX = paused */
	int64_t left_ns[HB_SCHEDULER_FLIGHTS_MAX];        /* of a paused batch */
	uint64_t started, started_of[3];                  /* batches of all models, of each model */
	uint64_t items, refused, hopeless, late_starts;
	uint64_t last_cookie;
	uint32_t last_items, last_slot;
	enum hb_scheduler_reason last_reason;
	int64_t beside; /* factor on the time of a batch that starts beside others; 0 = 1 */
	uint8_t *fate;  /* by cookie: number of times that the request ended; NULL = not recorded */
} rig;

static uint32_t model_slots; /* of each model of the next scheduler; 0 = no limit of its own */

static int64_t run_ns(uint32_t items)
{
	return RUN_NS + RUN_MORE_NS * (items - 1);
}

static void open_stopping(struct hb_scheduler_config config, uint32_t models, double stop_share)
{
	struct hb_error error = {""};
	memset(&rig, 0, sizeof rig);
	rig.now_ns = 1;
	assert_int_equal(hb_scheduler_new(&config, &rig.scheduler, &error), 0);
	for (uint32_t model = 0; model < models; model++) {
		struct hb_scheduler_model known = {.max_items = BATCH_MOST, .run_guess_ns = 1, .sm_demand = {1, 1}};
		known.slots = model_slots;
		known.stop_share = stop_share;
		assert_int_equal(hb_scheduler_add_model(rig.scheduler, &known, &error), model);
		for (uint32_t items = 1; items <= BATCH_MOST; items++) {
			double stage_ns[HB_STAGES] = {0, (double)run_ns(items), 0};
			hb_scheduler_profiled(rig.scheduler, model, items, stage_ns);
		}
	}
}

static void open_with(struct hb_scheduler_config config, uint32_t models)
{
	open_stopping(config, models, 0);
}

static void open_policy(const char *policy, uint32_t models)
{
	struct hb_scheduler_config config;
	hb_scheduler_config_init(&config);
	config.policy = policy;
	open_with(config, models);
}

static int closes(void **state)
{
	hb_scheduler_free(rig.scheduler);
	rig.scheduler = NULL;
	return 0;
}

static uint64_t submit(uint64_t cookie, uint32_t model, enum hb_scheduler_priority priority, int64_t within_ns)
{
	int64_t deadline_ns = within_ns == INT64_MAX ? within_ns : rig.now_ns + within_ns;
	return hb_scheduler_submit(rig.scheduler, rig.now_ns,
				   &(struct hb_scheduler_request){cookie, model, 1, priority, deadline_ns});
}

static void batch_started(uint32_t slot)
{
	const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(rig.scheduler, slot);
	assert_non_null(batch);
	assert_int_equal(rig.end_ns[slot], 0);
	hb_scheduler_stage(rig.scheduler, rig.now_ns, slot, HB_STAGE_RUN);
	bool company = false;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		company |= rig.end_ns[i] != 0;
	rig.end_ns[slot] = rig.now_ns + run_ns(batch->items) * (company && rig.beside ? rig.beside : 1);
	rig.late_starts += batch->deadline_ns < rig.end_ns[slot];
	rig.started++;
	rig.started_of[batch->model]++;
	rig.items += batch->items;
	rig.last_items = batch->items;
	rig.last_slot = slot;
	rig.last_cookie = batch->cookies[0];
	for (uint32_t i = 0; rig.fate && i < batch->n_requests; i++)
		rig.fate[batch->cookies[i]]++;
}

static void pause_batch(uint32_t slot, bool paused)
{
	if (paused)
		rig.left_ns[slot] = rig.end_ns[slot] - rig.now_ns;
	rig.end_ns[slot] = paused ? INT64_MAX : rig.now_ns + rig.left_ns[slot];
}

/* The predicted time of a high-priority request of one item that starts now. */
static struct hb_estimate predict_high(uint32_t model)
{
	const struct hb_predictor *predictor = hb_scheduler_predictor(rig.scheduler);
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, rig.now_ns, &forecast);
	uint32_t index = hb_forecast_add(predictor, &forecast, model, 1, HB_SCHEDULER_HIGH, false);
	hb_forecast_run(predictor, &forecast, NULL);
	return (struct hb_estimate){
		.ns = forecast.flow[index].finish_ns,
		.error = hb_predictor_error(predictor, HB_SCHEDULER_HIGH, forecast.flow[index].beside),
	};
}

static void steps(void)
{
	struct hb_scheduler_action action;
	while (hb_scheduler_step(rig.scheduler, rig.now_ns, &action)) {
		if (action.kind == HB_SCHEDULER_START) {
			batch_started(action.slot);
		} else if (action.kind == HB_SCHEDULER_REFUSE) {
			rig.refused++;
			rig.last_cookie = action.cookie;
			rig.last_reason = action.reason;
			if (rig.fate)
				rig.fate[action.cookie]++;
		} else {
			pause_batch(action.slot, action.kind == HB_SCHEDULER_PAUSE);
		}
	}
}

static int64_t next_end(uint32_t *slot)
{
	int64_t next = INT64_MAX;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (rig.end_ns[i] && rig.end_ns[i] < next) {
			next = rig.end_ns[i];
			*slot = i;
		}
	return next;
}

/* Advances the time and handles all events on the way. */
static void advance_to(int64_t until_ns)
{
	for (;;) {
		uint32_t slot = 0;
		int64_t end = next_end(&slot), wake = hb_scheduler_next_wake_ns(rig.scheduler);
		int64_t next = end < wake ? end : wake;
		if (next > until_ns)
			break;
		assert_true(next >= rig.now_ns); /* a wake time in the past would be repeated forever */
		rig.now_ns = next;
		if (end <= next) {
			rig.end_ns[slot] = 0;
			hb_scheduler_end(rig.scheduler, rig.now_ns, slot, true);
		}
		steps();
	}
	rig.now_ns = until_ns;
}

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

/* High priority beside low priority takes twice as long, and the predictor has learned it. */
static void teach_interference(void)
{
	rig.beside = 2;
	for (uint64_t i = 0; i < 40; i++) {
		for (int k = 0; k < BATCH_MOST; k++)
			submit(1, 1, HB_SCHEDULER_LOW, INT64_MAX);
		steps();
		submit(2, 0, HB_SCHEDULER_HIGH, 1000 * MS);
		steps();
		advance_to(rig.now_ns + 10 * MS);
	}
	assert_int_equal(rig.started, 80);
	rig.started = 0;
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
