/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of the core that scenarios cannot express: its memory, its queue of
 * actions, invalid arguments, and text that can be printed and parsed. The test wraps
 * malloc to count every allocation of the core and of the code that it calls.
 */
#include "base/hist.h"
#include "core/event_text.h"
#include "core/policy.h"
#include "counted_malloc.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct hb_core *make_core(const char *policy, uint32_t max_tenants)
{
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.policy = policy;
	config.max_tenants = max_tenants;
	config.max_high = max_tenants < config.max_high ? max_tenants : config.max_high;
	struct hb_core *core = hb_core_new(&config, 0, NULL);
	assert_non_null(core);
	return core;
}

static int add(struct hb_core *core, uint32_t tenant, enum hb_priority priority)
{
	struct hb_event event = {.kind = HB_EVENT_TENANT_ADD, .tenant = tenant, .tenant_add.priority = priority};
	snprintf(event.tenant_add.name.text, sizeof event.tenant_add.name.text, "t%u", tenant);
	return hb_core_post(core, 0, &event);
}

static int simple(struct hb_core *core, int64_t now_ns, enum hb_event_kind kind, uint32_t tenant)
{
	struct hb_event event = {.kind = kind, .tenant = tenant};
	return hb_core_post(core, now_ns, &event);
}

static unsigned drain(struct hb_core *core)
{
	struct hb_action action;
	unsigned n = 0;
	while (hb_core_next_action(core, &action))
		n++;
	return n;
}

static void bad_configs_are_refused(void **state)
{
	struct hb_core_config config;
	int error = 0;
	hb_core_config_init(&config);
	config.policy = "no_such_policy";
	assert_null(hb_core_new(&config, 0, &error));
	assert_int_equal(error, -EINVAL);
	config.policy = "gate";
	config.max_tenants = 0;
	assert_null(hb_core_new(&config, 0, NULL));
	hb_core_config_init(&config);
	assert_null(hb_core_new(&config, -1, &error));
	config.quantum_ns = 0;
	assert_null(hb_core_new(&config, 0, &error));
	assert_int_equal(error, -EINVAL);
	struct hb_policy_ops greedy = {.name = "greedy", .state_bytes = HB_POLICY_STATE_MAX + 1};
	hb_core_config_init(&config);
	config.ops = &greedy;
	assert_null(hb_core_new(&config, 0, NULL));
	hb_core_free(NULL);
}

static void every_policy_of_the_table_starts(void **state)
{
	for (const char *const *name = hb_policy_names; *name; name++) {
		struct hb_core *core = make_core(*name, 4);
		assert_string_equal(hb_core_policy(core), *name);
		assert_int_equal(hb_core_ejection(core)->reason, HB_EJECT_NONE);
		assert_non_null(hb_policy_find(*name)->summary);
		hb_core_free(core);
	}
}

static void odd_events_and_times_are_errors(void **state)
{
	struct hb_core *core = make_core("builtin", 4);
	assert_int_equal(simple(core, 0, HB_EVENT_KINDS, 0), -EINVAL);
	assert_int_equal(simple(core, 0, (enum hb_event_kind) - 1, 0), -EINVAL);
	assert_int_equal(simple(core, 0, HB_EVENT_BUSY, HB_TENANT_NONE), -ENOENT);
	assert_int_equal(simple(core, HB_TIME_NEVER, HB_EVENT_BUSY, 0), -EINVAL);
	assert_int_equal(hb_core_step(core, -1), -EINVAL);
	assert_int_equal(hb_core_step(core, HB_TIME_LIMIT_NS), -EINVAL);
	struct hb_event event = {.kind = HB_EVENT_TENANT_ADD, .tenant = 0};
	memset(event.tenant_add.name.text, 'x', sizeof event.tenant_add.name.text);
	assert_int_equal(hb_core_post(core, 0, &event), -EINVAL);
	assert_null(hb_core_tenant(core, 0));
	hb_core_free(core);
}

/* Changes LP's gate with every event and never takes an action. */
static int fill_with_actions(struct hb_core *core, unsigned *posted)
{
	int error = 0;
	for (*posted = 0; !error; (*posted)++)
		error = simple(core, 0, *posted % 2 ? HB_EVENT_IDLE : HB_EVENT_BUSY, 0);
	return error;
}

static void actions_not_taken_are_an_error_and_never_lost(void **state)
{
	struct hb_core *core = make_core("gate", 4);
	unsigned posted;
	assert_int_equal(add(core, 0, HB_PRIORITY_HIGH), 0);
	assert_int_equal(add(core, 1, HB_PRIORITY_LOW), 0);
	unsigned before = 1; /* the gate's depth at the start */
	assert_int_equal(fill_with_actions(core, &posted), -ENOBUFS);
	bool busy = hb_core_tenant(core, 0)->busy;
	assert_int_equal(drain(core), before + posted - 1);
	assert_int_equal(simple(core, 0, busy ? HB_EVENT_IDLE : HB_EVENT_BUSY, 0), 0);
	assert_int_equal(drain(core), 1);
	hb_core_free(core);
}

static void set_timer(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_timer(policy, tenant, 0, 1000000);
}

static void close_at_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_gate(policy, tenant, HB_GATE_CLOSED, 0);
}

static void swap_slices(struct hb_policy *policy, uint32_t tenant)
{
	int64_t slice_ns = hb_policy_tenant(policy, tenant)->slice_compute_ns == 1000 ? 2000 : 1000;
	hb_policy_slice(policy, tenant, slice_ns, slice_ns);
}

static void a_timer_waits_for_room_and_then_fires(void **state)
{
	const struct hb_policy_ops ops = {
		.name = "timed", .busy = set_timer, .tenant_changed = swap_slices, .timer = close_at_timer};
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.ops = &ops;
	config.max_tenants = config.max_high = 4;
	struct hb_core *core = hb_core_new(&config, 0, NULL);
	assert_int_equal(add(core, 0, HB_PRIORITY_LOW), 0);
	assert_int_equal(simple(core, 0, HB_EVENT_BUSY, 0), 0);
	int error = 0;
	while (!error)
		error = simple(core, 0, HB_EVENT_TENANT_SET, 0);
	assert_int_equal(error, -ENOBUFS);
	assert_int_equal(hb_core_step(core, 1000000), -ENOBUFS);
	assert_true(hb_core_next_wake(core) <= 1000000);
	drain(core);
	assert_int_equal(hb_core_step(core, 1000000), 0);
	assert_int_equal(drain(core), 1);
	assert_int_equal(hb_core_tenant(core, 0)->gate, HB_GATE_CLOSED);
	hb_core_free(core);
}

static void actions_of_a_tenant_that_left_are_withdrawn(void **state)
{
	struct hb_core *core = make_core("temporal", 8);
	struct hb_action action;
	for (uint32_t id = 0; id < 8; id++)
		assert_int_equal(add(core, id, id % 2 ? HB_PRIORITY_LOW : HB_PRIORITY_HIGH), 0);
	for (uint32_t id = 0; id < 4; id++)
		assert_int_equal(simple(core, 0, HB_EVENT_TENANT_REMOVE, id), 0);
	unsigned n = 0;
	for (; hb_core_next_action(core, &action); n++)
		assert_true(action.tenant >= 4);
	assert_true(n > 0);
	hb_core_free(core);
}

static void time_stays_where_it_was_after_an_error(void **state)
{
	struct hb_core *core = make_core("builtin", 4);
	assert_int_equal(hb_core_step(core, 1000), 0);
	assert_int_equal(hb_core_step(core, 999), -EINVAL);
	assert_int_equal(add(core, 0, HB_PRIORITY_LOW), -EINVAL);
	assert_int_equal(hb_core_step(core, 1000), 0);
	hb_core_free(core);
}

/* Makes a core do everything it can, including an ejection and a dump of the policy. */
static void exercise(struct hb_core *core)
{
	int64_t now_ns = 0;
	for (int round = 0; round < 50; round++) {
		for (uint32_t id = 0; id < 8; id++)
			hb_core_post(core, now_ns,
				     &(struct hb_event){
					     .kind = HB_EVENT_TENANT_ADD,
					     .tenant = id,
					     .tenant_add = {.name = {"t"}, .priority = id % 2, .slo_auto = true}});
		for (uint64_t i = 0; i < 20; i++, now_ns += 100000) {
			uint32_t id = i % 8;
			simple(core, now_ns, HB_EVENT_WAITING, id);
			simple(core, now_ns, HB_EVENT_BUSY, (id + 1) % 8);
			simple(core, now_ns, HB_EVENT_DRAINED, id);
			simple(core, now_ns, HB_EVENT_IDLE, (id + 1) % 8);
			struct hb_event request = {.kind = HB_EVENT_REQUEST_PAST, .tenant = id};
			request.request_past.begin_ns = request.request_past.end_ns = now_ns;
			hb_core_post(core, now_ns, &request);
			hb_core_step(core, now_ns);
			drain(core);
		}
		now_ns += INT64_C(3000000000); /* long enough for a stall */
		hb_core_step(core, now_ns);
		drain(core);
		for (uint32_t id = 0; id < 8; id++)
			simple(core, now_ns, HB_EVENT_TENANT_REMOVE, id);
	}
}

static void nothing_is_allocated_after_creation(void **state)
{
	for (const char *const *name = hb_policy_names; *name; name++) {
		struct hb_core *core = make_core(*name, 8);
		unsigned long before = hb_test_allocations;
		assert_true(before > 0); /* the counter counts */
		exercise(core);
		assert_int_equal(hb_test_allocations, before);
		hb_core_free(core);
	}
}

static void ask_nonsense(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, -1, 0);
}

static void talk(const struct hb_policy *policy, FILE *out)
{
	for (int i = 0; i < 1000; i++)
		fprintf(out, "line %d of a policy that talks too much\n", i);
}

static void an_ejection_allocates_nothing_and_cuts_what_is_too_long(void **state)
{
	const struct hb_policy_ops ops = {.name = "talker", .busy = ask_nonsense, .dump = talk};
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.ops = &ops;
	struct hb_core *core = hb_core_new(&config, 0, NULL);
	assert_non_null(core);
	assert_int_equal(add(core, 0, HB_PRIORITY_LOW), 0);
	unsigned long before = hb_test_allocations;
	assert_int_equal(simple(core, 0, HB_EVENT_BUSY, 0), 0);
	assert_int_equal(hb_test_allocations, before);
	const struct hb_ejection *ejection = hb_core_ejection(core);
	assert_int_equal(ejection->reason, HB_EJECT_BAD_TIME);
	assert_string_equal(ejection->policy.text, "talker");
	assert_string_equal(ejection->message, "compute slice of -1 ns");
	assert_memory_equal(ejection->dump, "line 0 of a policy", 18);
	assert_true(strlen(ejection->dump) > 1000);
	assert_true(strlen(ejection->dump) < sizeof ejection->dump);
	assert_string_equal(hb_core_policy(core), "builtin");
	hb_core_free(core);
}

static uint32_t only_tenant(void *argument, const char *word)
{
	return strcmp(word, "t") ? HB_TENANT_NONE : 3;
}

/* The text of an event, parsed; NULL = it could not be. */
static const char *there_and_back(const char *text, char *out, size_t size)
{
	char copy[400], *words[16], *rest = copy;
	size_t n = 0;
	struct hb_event event;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *word; n < 16 && (word = strsep(&rest, " "));)
		words[n++] = word;
	if (hb_event_parse(words, n, only_tenant, NULL, &event, NULL))
		return NULL;
	FILE *stream = fmemopen(out, size, "w");
	hb_event_print(&event, "t", stream);
	fclose(stream);
	return out;
}

static void text_of_events_goes_both_ways(void **state)
{
	static const char *const texts[] = {
		"tenant_add t name=serve priority=high slo=2.5ms share=99.95% auto weight=7",
		"tenant_set t slo=10ms",
		"request_past t begin=1s end=2s deadline=3s measured harm=5us held lost=4294967295",
		"busy t",
	};
	char out[400];
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_string_equal(there_and_back(texts[i], out, sizeof out), texts[i]);
	assert_null(there_and_back("busy nobody", out, sizeof out));
	assert_null(there_and_back("request_past t begin=-1 end=1s", out, sizeof out));
	assert_null(there_and_back("request_past t begin=0ns end=1s lost=4294967296", out, sizeof out));
	assert_null(there_and_back("busy", out, sizeof out));
	assert_null(there_and_back("tenant_set t share=99.99999%", out, sizeof out));
}

static void attainment_without_requests_is_complete(void **state)
{
	struct hb_tenant tenant = {0};
	assert_int_equal(hb_tenant_attainment_ppm(&tenant), 1000000);
	tenant.counters.requests_judged = 3;
	tenant.counters.requests_met = 2;
	assert_int_equal(hb_tenant_attainment_ppm(&tenant), 666666);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_configs_are_refused),
		cmocka_unit_test(every_policy_of_the_table_starts),
		cmocka_unit_test(odd_events_and_times_are_errors),
		cmocka_unit_test(actions_not_taken_are_an_error_and_never_lost),
		cmocka_unit_test(a_timer_waits_for_room_and_then_fires),
		cmocka_unit_test(actions_of_a_tenant_that_left_are_withdrawn),
		cmocka_unit_test(time_stays_where_it_was_after_an_error),
		cmocka_unit_test(nothing_is_allocated_after_creation),
		cmocka_unit_test(an_ejection_allocates_nothing_and_cuts_what_is_too_long),
		cmocka_unit_test(text_of_events_goes_both_ways),
		cmocka_unit_test(attainment_without_requests_is_complete),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
