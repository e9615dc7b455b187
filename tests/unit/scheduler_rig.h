/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the serving scheduler: a scheduler and a back end that takes exactly the profiled time, in virtual time. Each
 * test program includes this header once.
 */
#ifndef HB_TEST_SCHEDULER_RIG_H
#define HB_TEST_SCHEDULER_RIG_H

#include "server/scheduler/scheduler.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define RUN_NS (2 * MS) /* run time of one item */
#define RUN_MORE_NS (1 * MS)
#define BATCH_MOST 8

static struct {
	struct hb_scheduler *scheduler;
	int64_t now_ns, end_ns[HB_SCHEDULER_FLIGHTS_MAX];      /* 0 = free, INT64_MAX = paused */
	int64_t left_ns[HB_SCHEDULER_FLIGHTS_MAX];             /* of a paused batch */
	uint64_t started, started_of[HB_SCHEDULER_MODELS_MAX]; /* batches of all models, of each model */
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

#endif
