/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random tenants under every policy. A simple owner with a simple GPU posts events,
 * and after each step the core's state is compared with the owner's own records.
 * HB_SEED=N repeats one run; a failure names the seed.
 */
#include "base/rng.h"
#include "core/core.h"
#include "core/event_text.h"
#include "core/policy.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS 10
#define STEPS 20000

struct client {
	bool present, high;
	enum hb_gate_state gate;
	uint32_t in_flight;
	bool wants; /* a thread waits at the closed gate */
	bool owes_drained;
};

struct owner {
	struct hb_core *core;
	struct hb_rng rng;
	uint64_t seed;
	const char *policy;
	int64_t now_ns;
	struct client clients[TENANTS];
	uint64_t hash; /* of all actions, byte for byte */
	uint64_t actions, events;
};

#define CHECK(owner, condition) \
	do { \
		if (!(condition)) \
			fail_msg("HB_SEED=%llu policy %s event %llu: " #condition, (unsigned long long)(owner)->seed, \
				 (owner)->policy, (unsigned long long)(owner)->events); \
	} while (0)

static void take_actions(struct owner *owner);

static int post(struct owner *owner, const struct hb_event *event)
{
	owner->events++;
	int error = hb_core_post(owner->core, owner->now_ns, event);
	take_actions(owner);
	return error;
}

static void post_kind(struct owner *owner, enum hb_event_kind kind, uint32_t tenant)
{
	struct hb_event event = {.kind = kind, .tenant = tenant};
	CHECK(owner, post(owner, &event) == 0);
}

/* --- the GPU --- */

static void submit(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (client->in_flight++ == 0)
		post_kind(owner, HB_EVENT_BUSY, tenant);
}

static void report_drained(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (!client->owes_drained || client->in_flight || client->gate != HB_GATE_CLOSED)
		return;
	client->owes_drained = false;
	post_kind(owner, HB_EVENT_DRAINED, tenant);
}

static void launch(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (client->gate == HB_GATE_CLOSED) {
		client->wants = true;
		post_kind(owner, HB_EVENT_WAITING, tenant);
		return;
	}
	submit(owner, tenant);
}

static void finish_all(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (!client->in_flight)
		return;
	client->in_flight = 0;
	post_kind(owner, HB_EVENT_IDLE, tenant);
	report_drained(owner, tenant);
}

/* --- carrying out --- */

static void apply_gate(struct owner *owner, const struct hb_action *action)
{
	struct client *client = &owner->clients[action->tenant];
	CHECK(owner, action->gate.state <= HB_GATE_CLOSED);
	client->gate = action->gate.state;
	client->owes_drained = client->gate == HB_GATE_CLOSED;
	if (client->gate == HB_GATE_CLOSED) {
		report_drained(owner, action->tenant);
		return;
	}
	bool wanted = client->wants;
	client->wants = false;
	if (wanted)
		submit(owner, action->tenant);
}

static void hash_action(struct owner *owner, const struct hb_action *action)
{
	const unsigned char *bytes = (const unsigned char *)action;
	for (size_t i = 0; i < sizeof *action; i++)
		owner->hash = (owner->hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	owner->actions++;
}

static void take_actions(struct owner *owner)
{
	struct hb_action action;
	while (hb_core_next_action(owner->core, &action)) {
		hash_action(owner, &action);
		CHECK(owner, action.kind != HB_ACTION_EJECTED);
		CHECK(owner, action.tenant < TENANTS && owner->clients[action.tenant].present);
		if (action.kind == HB_ACTION_GATE)
			apply_gate(owner, &action);
		else if (action.kind == HB_ACTION_SLICE)
			CHECK(owner, action.slice.compute_ns >= 0 && action.slice.compute_ns <= HB_SLICE_MAX_NS);
		else if (action.kind == HB_ACTION_ALLOWANCE)
			CHECK(owner, owner->clients[action.tenant].high && action.allowance.delay_ppm <= 60000);
	}
}

/* --- promises --- */

static void check_books(struct owner *owner)
{
	for (uint32_t id = 0; id < TENANTS; id++) {
		const struct client *client = &owner->clients[id];
		const struct hb_tenant *tenant = hb_core_tenant(owner->core, id);
		CHECK(owner, !tenant == !client->present);
		if (!tenant)
			continue;
		CHECK(owner, tenant->gate == client->gate);
		CHECK(owner, tenant->busy == (client->in_flight > 0));
		CHECK(owner, tenant->undrained == client->owes_drained);
	}
}

static void check_policy(struct owner *owner)
{
	unsigned low_open = 0, low_closed = 0, low_busy = 0, high_wants = 0, weight = 0;
	bool by_weight = false;
	for (uint32_t id = 0; id < TENANTS; id++) {
		const struct client *client = &owner->clients[id];
		const struct hb_tenant *tenant = hb_core_tenant(owner->core, id);
		low_open += client->present && !client->high && client->gate == HB_GATE_OPEN;
		low_closed += client->present && !client->high && client->gate != HB_GATE_OPEN;
		low_busy += client->present && !client->high && client->in_flight;
		high_wants += tenant && client->high && hb_tenant_wants_gpu(tenant);
		if (!tenant || client->high)
			continue;
		by_weight |= weight && tenant->weight != weight;
		weight = tenant->weight;
	}
	if (!strcmp(owner->policy, "temporal"))
		CHECK(owner, low_open <= 1 && low_busy <= 1);
	if (!strcmp(owner->policy, "gate"))
		CHECK(owner, !(high_wants && low_open));
	if (!strcmp(owner->policy, "spatial"))
		CHECK(owner, by_weight ? low_open <= 1 : low_closed == 0);
	by_weight &= !strcmp(owner->policy, "spatial");
	if (!high_wants && !by_weight && strcmp(owner->policy, "temporal") != 0)
		for (uint32_t id = 0; id < TENANTS; id++)
			CHECK(owner, owner->clients[id].high || !owner->clients[id].wants);
}

/* --- what happens --- */

static void join_or_leave(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	struct hb_event event = {.tenant = tenant};
	bool present = client->present;
	memset(client, 0, sizeof *client);
	client->present = !present;
	if (present) {
		event.kind = HB_EVENT_TENANT_REMOVE;
	} else {
		client->high = hb_rng_below(&owner->rng, 3) == 0;
		event.kind = HB_EVENT_TENANT_ADD;
		snprintf(event.tenant_add.name.text, sizeof event.tenant_add.name.text, "t%u", tenant);
		event.tenant_add.priority = client->high ? HB_PRIORITY_HIGH : HB_PRIORITY_LOW;
		event.tenant_add.slo_ns = (int64_t)hb_rng_below(&owner->rng, 20000000);
		event.tenant_add.slo_auto = hb_rng_below(&owner->rng, 2);
		event.tenant_add.weight = (uint32_t)hb_rng_below(&owner->rng, 4);
	}
	CHECK(owner, post(owner, &event) == 0);
}

/* A request that has just ended. */
static void post_request(struct owner *owner, uint32_t tenant)
{
	struct hb_event event = {.kind = HB_EVENT_REQUEST_PAST, .tenant = tenant};
	int64_t latency_ns = (int64_t)hb_rng_below(&owner->rng, 5000000);
	event.request_past.end_ns = owner->now_ns;
	event.request_past.begin_ns = latency_ns < owner->now_ns ? owner->now_ns - latency_ns : 0;
	event.request_past.held = hb_rng_below(&owner->rng, 2);
	CHECK(owner, post(owner, &event) == 0);
}

static void pass_time(struct owner *owner)
{
	int64_t until_ns = owner->now_ns + (int64_t)hb_rng_exponential(&owner->rng, 300000);
	if (hb_rng_below(&owner->rng, 200) == 0)
		until_ns += INT64_C(200000000);
	for (int64_t wake_ns; (wake_ns = hb_core_next_wake(owner->core)) <= until_ns;) {
		owner->now_ns = wake_ns > owner->now_ns ? wake_ns : owner->now_ns;
		CHECK(owner, hb_core_step(owner->core, owner->now_ns) == 0);
		take_actions(owner);
	}
	owner->now_ns = until_ns;
}

static void one_step(struct owner *owner)
{
	uint32_t tenant = (uint32_t)hb_rng_below(&owner->rng, TENANTS);
	uint64_t what = hb_rng_below(&owner->rng, 100);
	const struct client *client = &owner->clients[tenant];
	if (what < 2 || !client->present)
		join_or_leave(owner, tenant);
	else if (what < 30)
		launch(owner, tenant);
	else if (what < 60)
		finish_all(owner, tenant);
	else if (what < 70 && client->high)
		post_request(owner, tenant);
	else
		pass_time(owner);
	check_books(owner);
	check_policy(owner);
}

static void run(struct owner *owner, const char *policy, uint64_t seed)
{
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.policy = policy;
	config.max_tenants = TENANTS;
	config.max_high = TENANTS;
	memset(owner, 0, sizeof *owner);
	owner->policy = policy;
	owner->seed = seed;
	hb_rng_init(&owner->rng, seed, 0);
	owner->core = hb_core_new(&config, 0, NULL);
	assert_non_null(owner->core);
	for (int i = 0; i < STEPS; i++)
		one_step(owner);
	hb_core_free(owner->core);
}

static uint64_t first_seed(void)
{
	const char *text = getenv("HB_SEED");
	return text ? strtoull(text, NULL, 10) : 1;
}

static void promises_hold_and_sound_policies_are_never_ejected(void **state)
{
	static struct owner owner;
	uint64_t n_seeds = getenv("HB_SEED") ? 1 : 2;
	for (const char *const *policy = hb_policy_names; *policy; policy++)
		for (uint64_t seed = first_seed(); seed < first_seed() + n_seeds; seed++) {
			run(&owner, *policy, seed);
			assert_true(owner.events > STEPS / 3);
			assert_true(!strcmp(*policy, "builtin") == (owner.actions == 0));
		}
}

static void the_same_events_give_the_same_bytes(void **state)
{
	static struct owner one, two, other;
	for (const char *const *policy = hb_policy_names; *policy; policy++) {
		run(&one, *policy, first_seed());
		run(&two, *policy, first_seed());
		run(&other, *policy, first_seed() + 1);
		assert_int_equal(one.actions, two.actions);
		assert_true(one.hash == two.hash);
		assert_true(one.actions == 0 || one.hash != other.hash);
	}
}

/* Random bytes as an event are refused or accepted, but never crash; the queue stays within its bounds. */
static void garbage_is_survived(void **state)
{
	struct hb_core_config config;
	struct hb_rng rng;
	struct hb_action action;
	int64_t now_ns = 0;
	unsigned accepted = 0, refused = 0;
	hb_rng_init(&rng, first_seed(), 1);
	hb_core_config_init(&config);
	config.max_tenants = config.max_high = 6;
	for (const char *const *policy = hb_policy_names; *policy; policy++) {
		config.policy = *policy;
		struct hb_core *core = hb_core_new(&config, now_ns, NULL);
		assert_non_null(core);
		for (int i = 0; i < STEPS; i++) {
			struct hb_event event;
			for (size_t word = 0; word < sizeof event / 4; word++)
				((uint32_t *)&event)[word] = hb_rng_below(&rng, 2) ? (uint32_t)hb_rng_below(&rng, 4)
										   : (uint32_t)hb_rng_u64(&rng);
			event.kind = (enum hb_event_kind)hb_rng_below(&rng, HB_EVENT_KINDS + 1);
			event.tenant = (uint32_t)hb_rng_below(&rng, 7);
			if (event.kind == HB_EVENT_TENANT_ADD) {
				event.tenant_add.slo_auto = hb_rng_below(&rng, 2);
				event.tenant_add.shared = hb_rng_below(&rng, 2);
				event.tenant_add.copy_weight = (uint32_t)hb_rng_below(&rng, 1100);
			}
			if (event.kind == HB_EVENT_TENANT_SET) {
				event.tenant_set.slo_auto = hb_rng_below(&rng, 2);
				event.tenant_set.copy_weight = (uint32_t)hb_rng_below(&rng, 1100);
			}
			if (event.kind == HB_EVENT_REQUEST_PAST) {
				event.request_past.held = hb_rng_below(&rng, 2);
				event.request_past.measured = hb_rng_below(&rng, 2);
				event.request_past.harm_ns = (int64_t)hb_rng_below(&rng, 1000000);
			}
			if (event.kind == HB_EVENT_MEMORY_STATE && hb_rng_below(&rng, 4))
				event.memory_state = (__typeof__(event.memory_state)){
					hb_rng_below(&rng, UINT64_C(1) << 40), hb_rng_below(&rng, UINT64_C(1) << 40)};
			if (event.kind == HB_EVENT_MEMORY_ROOM && hb_rng_below(&rng, 4))
				event.memory_room.room_bytes = hb_rng_below(&rng, UINT64_C(1) << 40);
			if (event.kind == HB_EVENT_MEMORY_RETURNED && hb_rng_below(&rng, 4))
				event.memory_returned.returned_bytes = hb_rng_below(&rng, UINT64_C(1) << 27);
			if (event.kind == HB_EVENT_MEMORY_NEED && hb_rng_below(&rng, 4))
				event.memory_need.need_bytes = hb_rng_below(&rng, UINT64_C(1) << 40);
			if (event.kind == HB_EVENT_MEMORY_MOVED && hb_rng_below(&rng, 4))
				event.memory_moved.moved_bytes = hb_rng_below(&rng, UINT64_C(1) << 40);
			now_ns += (int64_t)hb_rng_below(&rng, 1000000);
			int error = hb_core_post(core, now_ns, &event);
			accepted += !error;
			refused += error != 0;
			for (uint64_t n = hb_rng_below(&rng, 4); n && hb_core_next_action(core, &action); n--)
				assert_true((unsigned)action.kind < HB_ACTION_KINDS);
			while (error == -ENOBUFS && hb_core_next_action(core, &action))
				;
		}
		hb_core_free(core);
	}
	assert_true(accepted > 1000 && refused > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(promises_hold_and_sound_policies_are_never_ejected),
		cmocka_unit_test(the_same_events_give_the_same_bytes),
		cmocka_unit_test(garbage_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
