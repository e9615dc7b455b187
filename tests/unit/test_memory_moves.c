/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of core/memory_moves.c at random: HP tenants need memory, LP tenants move
 * it, refuse, move less or more, do not answer, come and leave. The rules one by one
 * are in tests/scenario/memory_*.txt.
 */
#include "base/rng.h"
#include "core/core.h"

#include "unit.h"

#include <stdio.h>
#include <string.h>

#define TENANTS 8
#define HIGH 3 /* the first tenants are HP */
#define STEPS 30000
#define MS INT64_C(1000000)
#define SKIP_NS (10000 * MS)

struct model {
	struct hb_core *core;
	struct hb_rng rng;
	int64_t now_ns;
	bool present[TENANTS];
	uint64_t movable[TENANTS], ordered[TENANTS]; /* LP */
	int64_t ordered_ns[TENANTS], refused_ns[TENANTS];
	bool needs[TENANTS]; /* HP */
	int64_t need_ns[TENANTS];
	unsigned answers[4], moves;
};

static void check_move(struct model *model, const struct hb_action *action)
{
	uint32_t id = action->tenant;
	uint64_t bytes = action->memory_move.peer_bytes + action->memory_move.host_bytes;
	assert_true(id >= HIGH && id < TENANTS && model->present[id]);
	/* One order at a time; one that was not answered in time is over. */
	assert_true(!model->ordered[id] || model->now_ns - model->ordered_ns[id] >= SKIP_NS);
	assert_true(model->refused_ns[id] < 0 || model->now_ns - model->refused_ns[id] >= SKIP_NS);
	assert_true(bytes && bytes <= model->movable[id]);
	model->ordered[id] = bytes;
	model->ordered_ns[id] = model->now_ns;
	model->moves++;
}

static void check_answer(struct model *model, const struct hb_action *action)
{
	uint32_t id = action->tenant;
	assert_true(id < HIGH && model->present[id] && model->needs[id]);
	model->needs[id] = false;
	assert_true((unsigned)action->memory_answer.result < 4);
	model->answers[action->memory_answer.result]++;
}

static void take_actions(struct model *model)
{
	struct hb_action action;
	while (hb_core_next_action(model->core, &action)) {
		if (action.kind == HB_ACTION_MEMORY_MOVE)
			check_move(model, &action);
		else if (action.kind == HB_ACTION_MEMORY_ANSWER)
			check_answer(model, &action);
	}
}

static void post(struct model *model, const struct hb_event *event)
{
	assert_int_equal(hb_core_post(model->core, model->now_ns, event), 0);
	take_actions(model);
}

static void join_or_leave(struct model *model, uint32_t id)
{
	struct hb_event event = {.tenant = id};
	event.kind = model->present[id] ? HB_EVENT_TENANT_REMOVE : HB_EVENT_TENANT_ADD;
	if (!model->present[id]) {
		snprintf(event.tenant_add.name.text, sizeof event.tenant_add.name.text, "t%u", id);
		event.tenant_add.priority = id < HIGH ? HB_PRIORITY_HIGH : HB_PRIORITY_LOW;
	}
	model->present[id] = !model->present[id];
	model->movable[id] = model->ordered[id] = 0;
	model->refused_ns[id] = -1;
	model->needs[id] = false;
	post(model, &event);
}

static void need_memory(struct model *model, uint32_t id)
{
	struct hb_event event = {.kind = HB_EVENT_MEMORY_NEED, .tenant = id};
	event.memory_need.need_bytes = 1 + hb_rng_below(&model->rng, 100);
	event.memory_need.free_bytes = hb_rng_below(&model->rng, 30);
	event.memory_need.peer_bytes = hb_rng_below(&model->rng, 60);
	event.memory_need.host_bytes = hb_rng_below(&model->rng, 120);
	model->needs[id] = true;
	model->need_ns[id] = model->now_ns;
	post(model, &event);
}

static void report_memory(struct model *model, uint32_t id, uint64_t bytes)
{
	struct hb_event event = {.kind = HB_EVENT_MEMORY_STATE, .tenant = id};
	event.memory_state.movable_bytes = model->movable[id] = bytes;
	post(model, &event);
}

static void answer_order(struct model *model, uint32_t id)
{
	struct hb_event event = {.kind = HB_EVENT_MEMORY_MOVED, .tenant = id};
	uint64_t ordered = model->ordered[id], kind = hb_rng_below(&model->rng, 8);
	uint64_t moved = kind == 0 ? 0 : kind == 1 ? hb_rng_below(&model->rng, ordered) : ordered + kind / 7;
	event.memory_moved.moved_bytes = moved;
	if (model->now_ns - model->ordered_ns[id] < HB_MEMORY_MOVE_LIMIT_NS) {
		model->movable[id] -= moved < model->movable[id] ? moved : model->movable[id];
		/* Not earlier: the core may have given up the order any time since then. */
		model->refused_ns[id] = moved < ordered - ordered / 8 ? model->ordered_ns[id] : -1;
		model->ordered[id] = 0;
	}
	post(model, &event);
	/* The core may have given up the order before, because its need had to be answered. */
	report_memory(model, id, model->movable[id]);
}

static void pass_time(struct model *model)
{
	int64_t until_ns = model->now_ns + (int64_t)hb_rng_below(&model->rng, (uint64_t)(400 * MS));
	for (int64_t wake_ns; (wake_ns = hb_core_next_wake(model->core)) <= until_ns;) {
		model->now_ns = wake_ns > model->now_ns ? wake_ns : model->now_ns;
		assert_int_equal(hb_core_step(model->core, model->now_ns), 0);
		take_actions(model);
	}
	model->now_ns = until_ns;
}

/* Each need waits for those before it, each of which is answered within the limit. */
static void check_bounds(const struct model *model)
{
	for (uint32_t id = 0; id < HIGH; id++)
		if (model->needs[id])
			assert_true(model->now_ns - model->need_ns[id] <= HIGH * HB_MEMORY_NEED_LIMIT_NS);
}

static void one_step(struct model *model)
{
	uint32_t id = (uint32_t)hb_rng_below(&model->rng, TENANTS);
	if (!model->present[id] || hb_rng_below(&model->rng, 100) == 0)
		join_or_leave(model, id);
	else if (id < HIGH && !model->needs[id])
		need_memory(model, id);
	else if (id >= HIGH && model->ordered[id] && hb_rng_below(&model->rng, 8))
		answer_order(model, id);
	else if (id >= HIGH && !model->ordered[id] && hb_rng_below(&model->rng, 2))
		report_memory(model, id, hb_rng_below(&model->rng, 60));
	else
		pass_time(model);
	check_bounds(model);
}

static void every_need_is_answered_and_orders_are_sound(void **state)
{
	static struct model model;
	struct hb_core_config config;
	(void)state;
	hb_core_config_init(&config);
	config.max_tenants = TENANTS;
	config.max_high = HIGH;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		model = (struct model){0};
		hb_rng_init(&model.rng, seed, 0);
		model.core = hb_core_new(&config, 0, NULL);
		assert_non_null(model.core);
		for (int i = 0; i < STEPS; i++)
			one_step(&model);
		hb_core_free(model.core);
		assert_true(model.moves > 1000);
		for (int i = 0; i < 4; i++)
			assert_true(model.answers[i] > 100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_need_is_answered_and_orders_are_sound)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
