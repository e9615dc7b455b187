/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random tenants under every policy: an honest owner with a simple GPU posts
 * what happens, and after each step the promises of the core are checked
 * against the owner's own books. HB_SEED=N repeats one run; a failure names it.
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
#define PENDING_MAX 4

struct client {
	bool present, high;
	enum hb_gate_state gate;
	uint32_t in_flight;
	bool wants; /* a thread waits at the closed gate */
	bool owes_drained;
	uint64_t next_launch, pending[PENDING_MAX];
	uint32_t n_pending;
	uint64_t first_request, next_request;
};

struct owner {
	struct hb_core *core;
	struct hb_rng rng;
	uint64_t seed;
	const char *policy;
	bool infers;
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

/* A launch of its own, or one that asks where the gate wants that. */
static void launch(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (client->gate == HB_GATE_CLOSED) {
		client->wants = true;
		post_kind(owner, HB_EVENT_WAITING, tenant);
		return;
	}
	if (client->gate == HB_GATE_PER_LAUNCH && client->n_pending == PENDING_MAX)
		return;
	struct hb_event event = {.kind = HB_EVENT_LAUNCH, .tenant = tenant};
	bool asks = client->gate == HB_GATE_PER_LAUNCH;
	event.launch.launch = client->next_launch++;
	event.launch.duration_ns = (int64_t)hb_rng_below(&owner->rng, 100000);
	event.launch.sms = (uint32_t)hb_rng_below(&owner->rng, 100);
	event.launch.class = (enum hb_class)hb_rng_below(&owner->rng, 3);
	if (asks)
		client->pending[client->n_pending++] = event.launch.launch;
	CHECK(owner, post(owner, &event) == 0);
	if (!asks)
		submit(owner, tenant);
}

static void finish_all(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	if (!client->in_flight)
		return;
	client->in_flight = 0;
	const struct hb_work *work;
	while ((work = hb_tenant_launch(owner->core, tenant))) {
		struct hb_event event = {.kind = HB_EVENT_COMPLETE, .tenant = tenant, .complete = {work->id}};
		CHECK(owner, post(owner, &event) == 0);
	}
	post_kind(owner, HB_EVENT_IDLE, tenant);
	report_drained(owner, tenant);
}

/* --- carrying out --- */

static void apply_gate(struct owner *owner, const struct hb_action *action)
{
	struct client *client = &owner->clients[action->tenant];
	CHECK(owner, action->gate.state <= HB_GATE_PER_LAUNCH);
	client->gate = action->gate.state;
	client->owes_drained = client->gate == HB_GATE_CLOSED;
	if (client->gate == HB_GATE_CLOSED) {
		report_drained(owner, action->tenant);
		return;
	}
	uint32_t released = client->gate == HB_GATE_OPEN ? client->n_pending + client->wants : 0;
	client->wants = false;
	if (released)
		client->n_pending = 0;
	for (; released; released--)
		submit(owner, action->tenant);
}

static void apply_admit(struct owner *owner, const struct hb_action *action)
{
	struct client *client = &owner->clients[action->tenant];
	CHECK(owner, client->n_pending > 0 && client->pending[0] == action->admit.launch);
	memmove(client->pending, client->pending + 1, sizeof client->pending - sizeof *client->pending);
	client->n_pending--;
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
		else if (action.kind == HB_ACTION_ADMIT)
			apply_admit(owner, &action);
		else if (action.kind == HB_ACTION_SLICE)
			CHECK(owner, action.slice.compute_ns >= 0 && action.slice.compute_ns <= HB_SPLIT_MAX_NS);
		else if (action.kind == HB_ACTION_TERMS)
			CHECK(owner, owner->clients[action.tenant].high && action.terms.delay_ppm <= 60000);
		else if (action.kind == HB_ACTION_HOLD)
			CHECK(owner, owner->clients[action.tenant].high && action.hold.limit_ns <= HB_TAKEOVER_MAX_NS);
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
		CHECK(owner, tenant->pending == client->n_pending);
		if (client->next_request || !owner->infers)
			CHECK(owner, tenant->requests == client->next_request - client->first_request);
		else
			CHECK(owner, tenant->requests <= client->high);
	}
}

static void check_policy(struct owner *owner)
{
	unsigned low_open = 0, low_closed = 0, low_busy = 0, high_busy = 0, high_wants = 0, holding = 0;
	for (uint32_t id = 0; id < TENANTS; id++) {
		const struct client *client = &owner->clients[id];
		const struct hb_tenant *tenant = hb_core_tenant(owner->core, id);
		low_open += client->present && !client->high && client->gate == HB_GATE_OPEN;
		low_closed += client->present && !client->high && client->gate != HB_GATE_OPEN;
		low_busy += client->present && !client->high && client->in_flight;
		high_busy += client->present && client->high && client->in_flight;
		holding += tenant && tenant->holding;
		high_wants += tenant && client->high && hb_tenant_wants_gpu(tenant);
	}
	if (!strcmp(owner->policy, "temporal")) {
		CHECK(owner, low_open <= 1 && low_busy <= 1);
		/* A hold is for a tenant that does not work yet, and takes nothing from one that does. */
		CHECK(owner, !(high_busy && holding));
	}
	if (!strcmp(owner->policy, "reef"))
		CHECK(owner, !(high_busy && low_busy));
	if (!strcmp(owner->policy, "gate") || !strcmp(owner->policy, "reef"))
		CHECK(owner, !(high_wants && low_open));
	if (!strcmp(owner->policy, "orion"))
		CHECK(owner, !(high_busy && low_open));
	if (!strcmp(owner->policy, "slack"))
		CHECK(owner, low_closed == 0);
	if (!high_wants && strcmp(owner->policy, "temporal") != 0)
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

static void request(struct owner *owner, uint32_t tenant)
{
	struct client *client = &owner->clients[tenant];
	uint64_t unfinished = client->next_request - client->first_request;
	bool ends = unfinished && hb_rng_below(&owner->rng, 4 + unfinished) >= 4 - 2;
	struct hb_event event = {.tenant = tenant};
	event.kind = ends ? HB_EVENT_REQUEST_END : HB_EVENT_REQUEST_BEGIN;
	if (ends)
		event.request_end.request = client->first_request++;
	else
		event.request_begin.request = client->next_request++;
	CHECK(owner, post(owner, &event) == 0);
}

static void hint(struct owner *owner, uint32_t tenant)
{
	struct hb_event event = {.kind = HB_EVENT_HINT, .tenant = tenant};
	event.hint.sign = (enum hb_sign)hb_rng_below(&owner->rng, HB_SIGNS);
	event.hint.source = hb_rng_below(&owner->rng, 3);
	if (hb_rng_below(&owner->rng, 2))
		event.hint.expected_start_ns = owner->now_ns + (int64_t)hb_rng_below(&owner->rng, 3000000);
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
		request(owner, tenant);
	else if (what < 75)
		hint(owner, tenant);
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
	config.infer_requests = seed % 2;
	memset(owner, 0, sizeof *owner);
	owner->policy = policy;
	owner->infers = config.infer_requests;
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
			assert_true(owner.events > STEPS / 2);
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

/* Any bytes in an event are an error or an event, never a crash; the queue stays within its bounds. */
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
	config.max_requests = config.max_launches = 16;
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
			if (event.kind == HB_EVENT_TENANT_ADD)
				event.tenant_add.slo_auto = hb_rng_below(&rng, 2);
			if (event.kind == HB_EVENT_TENANT_SET)
				event.tenant_set.slo_auto = hb_rng_below(&rng, 2);
			if (event.kind == HB_EVENT_REQUEST_END) /* its harm is whatever it is */
				event.request_end.measured = hb_rng_below(&rng, 2);
			if (event.kind == HB_EVENT_REQUEST_PAST) {
				event.request_past.held = hb_rng_below(&rng, 2);
				event.request_past.measured = hb_rng_below(&rng, 2);
				event.request_past.harm_ns = (int64_t)hb_rng_below(&rng, 1000000);
			}
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
