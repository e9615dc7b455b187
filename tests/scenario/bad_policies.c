/* SPDX-License-Identifier: Apache-2.0 */
/* See bad_policies.h. Most misbehave when a tenant becomes busy, so that a scenario chooses the moment. */
#include "bad_policies.h"

#include <errno.h>
#include <string.h>

static void gate_stranger(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, 7, HB_GATE_CLOSED, 0);
}

static void mask_stranger(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_mask(policy, UINT32_MAX - 1, 8);
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
	hb_policy_slice(policy, tenant, HB_SPLIT_MAX_NS + 1, 0);
}

static void slice_negative(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, 1000, -1);
}

static void hold_long(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_hold(policy, tenant, HB_TAKEOVER_MAX_NS + 1);
}

static void mask_large(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_mask(policy, tenant, 133);
}

static void terms_large(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_terms(policy, tenant, 1000001);
}

/* Right for HP tenants, nonsense for LP ones. */
static void terms_for_all(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_terms(policy, tenant, 1000000);
}

static void gate_bad_state(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, (enum hb_gate_state)3, 0);
}

static void gate_deep(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, HB_GATE_OPEN, HB_GATE_DEPTH_MAX + 1);
}

static void gate_per_launch_blind(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, HB_GATE_PER_LAUNCH, 0);
}

static void admit_nothing(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_admit(policy, tenant, 1);
}

static void flutter(struct hb_policy *policy, uint32_t tenant)
{
	for (int i = 0; i < 1000; i++)
		hb_policy_gate(policy, tenant, i % 2 ? HB_GATE_OPEN : HB_GATE_CLOSED, 0);
}

static void flutter_turns(struct hb_policy *policy, uint32_t tenant)
{
	for (int i = 0; i < 1000; i++)
		hb_policy_turns(policy, i % 2 == 0);
}

static void give_up(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_fail(policy, "tenant %u is beyond me", tenant);
}

/* Sets one of everything, then asks for nonsense: all of it has to be undone. */
static void set_all_then_fault(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_slice(policy, tenant, 1000, 1000);
	hb_policy_mask(policy, tenant, 16);
	hb_policy_hold(policy, tenant, 1000000);
	hb_policy_timer(policy, tenant, 0, hb_policy_now_ns(policy) + 1000);
	hb_policy_timer(policy, HB_TENANT_NONE, 1, hb_policy_now_ns(policy) + 2000);
	hb_policy_gate(policy, tenant, HB_GATE_CLOSED, 0);
	hb_policy_gate(policy, 7, HB_GATE_CLOSED, 0);
	hb_policy_mask(policy, tenant, 32);
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

static void gate_per_launch(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_gate(policy, tenant, HB_GATE_PER_LAUNCH, 0);
}

static void admit_second(struct hb_policy *policy, uint32_t tenant, const struct hb_work *launch, bool waits)
{
	if (waits && launch->id == 2)
		hb_policy_admit(policy, tenant, launch->id);
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

/* Makes the timer visible as an action. */
static void show_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	hb_policy_mask(policy, hb_policy_next(policy, HB_PRIORITY_LOW, HB_TENANT_NONE), tag + 1);
}

static void turns_off(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request)
{
	hb_policy_turns(policy, false);
}

static void turns_on(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request)
{
	hb_policy_turns(policy, true);
}

/* Shuts LP out while an HP request is served, inside its turns. */
static void pause_low(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request)
{
	hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_CLOSED, 0);
}

static void resume_low(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request)
{
	hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_OPEN, 0);
}

static void last_words(const struct hb_policy *policy, FILE *out)
{
	fputs("I meant well\n", out);
}

static const struct hb_policy_ops bad_policies[] = {
	{.name = "gate_stranger", .busy = gate_stranger, .dump = last_words},
	{.name = "mask_stranger", .busy = mask_stranger},
	{.name = "timer_before_time", .busy = timer_before_time},
	{.name = "timer_bad_tag", .busy = timer_bad_tag},
	{.name = "slice_long", .busy = slice_long},
	{.name = "slice_negative", .busy = slice_negative},
	{.name = "hold_long", .busy = hold_long},
	{.name = "mask_large", .busy = mask_large},
	{.name = "terms_large", .busy = terms_large},
	{.name = "terms_for_all", .busy = terms_for_all},
	{.name = "gate_bad_state", .busy = gate_bad_state},
	{.name = "gate_deep", .busy = gate_deep},
	{.name = "gate_per_launch_blind", .busy = gate_per_launch_blind},
	{.name = "admit_nothing", .busy = admit_nothing, .launches = true},
	{.name = "admit_second", .tenant_added = gate_per_launch, .launched = admit_second, .launches = true},
	{.name = "admit_never", .tenant_added = gate_per_launch, .launches = true},
	{.name = "flutter", .busy = flutter},
	{.name = "flutter_turns", .busy = flutter_turns},
	{.name = "give_up", .busy = give_up},
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
	{.name = "turns_but_not_served", .turns = true, .request_begun = turns_off, .request_ended = turns_on},
	{.name = "turns_paused", .turns = true, .request_begun = pause_low, .request_ended = resume_low},
};

const struct hb_policy_ops *hb_bad_policy_find(const char *name)
{
	for (size_t i = 0; i < sizeof bad_policies / sizeof *bad_policies; i++)
		if (!strcmp(bad_policies[i].name, name))
			return &bad_policies[i];
	return NULL;
}
