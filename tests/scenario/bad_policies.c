/* SPDX-License-Identifier: Apache-2.0 */
/* See bad_policies.h. Most policies misbehave when a tenant becomes busy, so that a scenario chooses the moment. */
#include "bad_policies.h"

#include <errno.h>
#include <string.h>

static void gate_stranger(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, 7, HB_GATE_CLOSED, 0);
}

static void slice_stranger(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, UINT32_MAX - 1, 8, 8);
}

static void timer_before_time(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_timer(policy, tenant, 0, -1);
}

static void timer_bad_tag(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_timer(policy, tenant, HB_POLICY_TIMERS, 1000);
}

static void slice_long(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, HB_SLICE_MAX_NS + 1, 0);
}

static void slice_negative(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, 1000, -1);
}

static void allowance_large(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_allow(policy, tenant, 1000001);
}

/* Valid for HP tenants, invalid for LP tenants. */
static void allowance_for_all(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_allow(policy, tenant, 1000000);
}

static void gate_bad_state(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, (enum hb_gate_state)3, 0);
}

static void gate_deep(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, HB_GATE_OPEN, HB_GATE_DEPTH_MAX + 1);
}

static void flutter(struct hb_policy *policy, uint32_t tenant)
{
	for (int i = 0; i < 1000; i++)
		hb_policy_gate(policy, tenant, i % 2 ? HB_GATE_OPEN : HB_GATE_CLOSED, 0);
}

static void flutter_turns(struct hb_policy *policy, uint32_t tenant)
{
	for (int i = 0; i < 1000; i++)
		hb_policy_turns(policy, i % 2 ? HB_TURNS_OFF : HB_TURNS_BY_USER);
}

/* Sets one of everything and then makes an invalid call: everything has to be undone. */
static void set_all_then_fault(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, 1000, 1000);
	hb_policy_allow(policy, tenant, 16);
	hb_policy_timer(policy, tenant, 0, hb_policy_now_ns(policy) + 1000);
	hb_policy_timer(policy, HB_TENANT_NONE, 1, hb_policy_now_ns(policy) + 2000);
	hb_policy_gate(policy, tenant, HB_GATE_CLOSED, 0);
	hb_policy_gate(policy, 7, HB_GATE_CLOSED, 0);
	hb_policy_allow(policy, tenant, 32);
}

static void set_storm_timer(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_timer(policy, HB_TENANT_NONE, 0, hb_policy_now_ns(policy));
}

static void storm_again(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	set_storm_timer(policy, tenant);
}

static void creep_again(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_timer(policy, HB_TENANT_NONE, 0, hb_policy_now_ns(policy) + 1);
}

/* A thousand timers a millisecond is the limit; one every 10 us is well below. */
static void tick_again(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_timer(policy, HB_TENANT_NONE, 0, hb_policy_now_ns(policy) + 10000);
}

static void close_it(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, HB_GATE_CLOSED, 0);
}

static void close_and_set_timer(struct hb_policy *policy, uint32_t tenant)
{
	close_it(policy, tenant);
	hb_policy_timer(policy, tenant, 2, INT64_C(5000000000));
}

static void open_late(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_gate(policy, tenant, HB_GATE_OPEN, 0);
}

static int init_fails(struct hb_policy *policy)
{
	return -EOPNOTSUPP;
}

static void gate_the_departed(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant))
		hb_policy_gate(policy, tenant, HB_GATE_OPEN, 0);
}

/* Order of timers of one time: 3 is set first, then 0, then the tenant's own. */
static void three_timers(struct hb_policy *policy, uint32_t tenant)
{
	int64_t at_ns = hb_policy_now_ns(policy) + 1000;
	hb_policy_timer(policy, HB_TENANT_NONE, 3, at_ns);
	hb_policy_timer(policy, HB_TENANT_NONE, 0, at_ns);
	hb_policy_timer(policy, tenant, 1, at_ns);
	hb_policy_timer(policy, tenant, 2, at_ns);
	hb_policy_cancel(policy, tenant, 2);
}

/* Shows the timer as an action. */
static void show_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_slice(policy, hb_policy_next(policy, HB_PRIORITY_LOW, HB_TENANT_NONE), 0, tag + 1);
}

static bool is_high(const struct hb_policy *policy, uint32_t tenant)
{
	return hb_policy_tenant(policy, tenant)->priority == HB_PRIORITY_HIGH;
}

static void turns_off(struct hb_policy *policy, uint32_t tenant)
{
	if (is_high(policy, tenant))
		hb_policy_turns(policy, HB_TURNS_OFF);
}

static void turns_on(struct hb_policy *policy, uint32_t tenant)
{
	if (is_high(policy, tenant))
		hb_policy_turns(policy, HB_TURNS_BY_USER);
}

/* Closes LP's gates while HP works, in addition to the turns. */
static void pause_low(struct hb_policy *policy, uint32_t tenant)
{
	if (is_high(policy, tenant))
		hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_CLOSED, 0);
}

static void resume_low(struct hb_policy *policy, uint32_t tenant)
{
	if (is_high(policy, tenant))
		hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_OPEN, 0);
}

static void last_words(const struct hb_policy *policy, FILE *out)
{
	fputs("I meant well\n", out);
}

static const struct hb_policy_ops bad_policies[] = {
	{.name = "gate_stranger", .busy = gate_stranger, .dump = last_words},
	{.name = "slice_stranger", .busy = slice_stranger},
	{.name = "timer_before_time", .busy = timer_before_time},
	{.name = "timer_bad_tag", .busy = timer_bad_tag},
	{.name = "slice_long", .busy = slice_long},
	{.name = "slice_negative", .busy = slice_negative},
	{.name = "allowance_large", .busy = allowance_large},
	{.name = "allowance_for_all", .busy = allowance_for_all},
	{.name = "gate_bad_state", .busy = gate_bad_state},
	{.name = "gate_deep", .busy = gate_deep},
	{.name = "flutter", .busy = flutter},
	{.name = "flutter_turns", .busy = flutter_turns},
	{.name = "set_all_then_fault", .busy = set_all_then_fault, .dump = last_words},
	{.name = "storm", .busy = set_storm_timer, .timer = storm_again},
	{.name = "creep", .busy = set_storm_timer, .timer = creep_again},
	{.name = "tick", .busy = set_storm_timer, .timer = tick_again},
	{.name = "shut", .tenant_added = close_it, .dump = last_words},
	{.name = "shut_with_timer", .tenant_added = close_and_set_timer, .timer = open_late},
	{.name = "init_fails", .init = init_fails},
	{.name = "gate_the_departed", .tenant_removed = gate_the_departed},
	{.name = "three_timers", .busy = three_timers, .timer = show_timer},
	{.name = "turns", .turns = true},
	{.name = "turns_but_not_served", .turns = true, .busy = turns_off, .idle = turns_on},
	{.name = "turns_paused", .turns = true, .busy = pause_low, .idle = resume_low},
};

const struct hb_policy_ops *hb_bad_policy_find(const char *name)
{
	for (size_t i = 0; i < sizeof bad_policies / sizeof *bad_policies; i++)
		if (!strcmp(bad_policies[i].name, name))
			return &bad_policies[i];
	return NULL;
}
