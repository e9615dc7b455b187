/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's life, its time and its queue of actions. Called by whoever owns a
 * GPU: daemon, simulator, scenario runner, replay. Events themselves are in
 * core_post.c. All memory is taken here, in hb_core_new().
 */
#include "base/hist.h"
#include "core/core_priv.h"
#include "decide/defaults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_LIMIT 4096
#define WORK_LIMIT (1u << 20)
#define QUANTUM_MAX_NS INT64_C(10000000000)

/*
 * Actions one event or timer can cause at most: four callbacks of a policy at
 * their limit (an inferred request that ends and changes the SLO, the next that
 * begins, busy), a change of turns over all tenants, and an ejection that undoes
 * everything (record, and gate, slice, hold, mask and terms of each tenant).
 */
#define ACTIONS_ROOM(tenants) (4 * HB_POLICY_ASKS(tenants) + 8 * (uint32_t)(tenants) + 8)

void hb_core_config_init(struct hb_core_config *config)
{
	*config = (struct hb_core_config){
		.policy = "builtin",
		.max_tenants = HB_TENANTS_DEFAULT,
		.max_high = 64,
		.max_requests = 16384,
		.max_launches = 16384,
		.quantum_ns = HB_DEFAULT_QUANTUM_NS,
		.turn_grace_ns = HB_DEFAULT_TURN_GRACE_NS,
		.stall_limit_ns = HB_DEFAULT_STALL_LIMIT_NS,
		.sms = HB_DEFAULT_SMS,
		.low_slice_ns = HB_DEFAULT_LOW_SLICE_NS,
		.high_slice_ns = HB_DEFAULT_HIGH_SLICE_NS,
		.switch_ns = HB_DEFAULT_SWITCH_NS,
		.hold_lead_ns = HB_DEFAULT_TAKEOVER_LEAD_NS,
		.hold_grace_ns = HB_DEFAULT_TAKEOVER_GRACE_NS,
		.hold_budget_ppm = HB_DEFAULT_TAKEOVER_BUDGET_PPM,
	};
}

static bool config_valid(const struct hb_core_config *config)
{
	return config->max_tenants && config->max_tenants <= TENANTS_LIMIT && config->max_high &&
	       config->max_high <= config->max_tenants && config->max_requests && config->max_requests <= WORK_LIMIT &&
	       config->max_launches && config->max_launches <= WORK_LIMIT && config->quantum_ns > 0 &&
	       config->quantum_ns <= QUANTUM_MAX_NS && config->turn_grace_ns > 0 &&
	       config->turn_grace_ns <= QUANTUM_MAX_NS && config->stall_limit_ns > 0 &&
	       config->stall_limit_ns < HB_TIME_LIMIT_NS && config->sms && config->gate_depth <= HB_GATE_DEPTH_MAX &&
	       config->low_slice_ns >= 0 && config->low_slice_ns <= HB_SPLIT_MAX_NS && config->high_slice_ns >= 0 &&
	       config->high_slice_ns <= HB_SPLIT_MAX_NS && config->switch_ns >= 0 && config->hold_lead_ns >= 0 &&
	       config->hold_grace_ns > 0 && config->hold_lead_ns <= HB_TAKEOVER_MAX_NS / 2 &&
	       config->hold_grace_ns <= HB_TAKEOVER_MAX_NS / 2 && config->hold_budget_ppm <= 1000000 &&
	       config->orion_budget_ns >= 0 && config->orion_budget_ns < HB_TIME_LIMIT_NS;
}

static bool ops_valid(const struct hb_policy_ops *ops)
{
	return ops && ops->name && *ops->name && strlen(ops->name) < sizeof(struct hb_name) &&
	       ops->state_bytes <= HB_POLICY_STATE_MAX && ops->tenant_bytes <= HB_POLICY_TENANT_MAX;
}

/* State of a tenant starts at a multiple of 16 so that any struct fits. */
static size_t tenant_stride(const struct hb_policy_ops *ops)
{
	return (ops->tenant_bytes + 15) & ~(size_t)15;
}

static int allocate_tables(struct hb_core *core)
{
	uint32_t n = core->config.max_tenants;
	core->n_words = (n + 63) / 64;
	core->slots = calloc(n, sizeof *core->slots);
	core->present[0] = calloc(core->n_words, sizeof *core->present[0]);
	core->present[1] = calloc(core->n_words, sizeof *core->present[1]);
	core->actions_size = 2 * ACTIONS_ROOM(n);
	core->actions = calloc(core->actions_size, sizeof *core->actions);
	/* One byte more: an area of no bytes is still an area. */
	core->policy_state = calloc(1, core->ops->state_bytes + 1);
	core->tenant_state = calloc(n, tenant_stride(core->ops) + 1);
	core->hists = calloc(2 * (size_t)core->config.max_high, sizeof *core->hists);
	core->free_hists = calloc(core->config.max_high, sizeof *core->free_hists);
	if (!core->slots || !core->present[0] || !core->present[1] || !core->actions || !core->policy_state ||
	    !core->tenant_state || !core->hists || !core->free_hists)
		return -ENOMEM;
	int error = hb_pool_init(&core->requests, core->config.max_requests);
	if (!error)
		error = hb_pool_init(&core->launches, core->config.max_launches);
	if (!error)
		error = hb_timers_init(&core->timers, (n + 1) * HB_POLICY_TIMERS + 1 + n);
	return error;
}

/* The stream for the policy's last words, made now because opening one allocates. */
static int open_note(struct hb_core *core)
{
	core->note = fmemopen(core->ejection.dump, sizeof core->ejection.dump - 1, "w");
	if (!core->note)
		return -ENOMEM;
	setvbuf(core->note, core->note_buffer, _IOFBF, sizeof core->note_buffer);
	return 0;
}

static void start(struct hb_core *core, int64_t now_ns)
{
	core->now_ns = now_ns;
	core->storm_since_ns = now_ns;
	core->leaving = HB_TENANT_NONE;
	core->departed_idle_ns = -1;
	core->policy.core = core;
	core->turns = (struct hb_turns){
		.on = core->ops->turns,
		.holder = HB_TENANT_NONE,
		.last = HB_TENANT_NONE,
		.open_since_ns = HB_TIME_NEVER,
	};
	core->n_free_hists = core->config.max_high;
	for (uint32_t i = 0; i < core->n_free_hists; i++)
		core->free_hists[i] = core->n_free_hists - 1 - i;
	if (!core->ops->init)
		return;
	hb_guard_enter(core);
	int error = core->ops->init(&core->policy);
	if (error < 0)
		hb_guard_fault(core, HB_EJECT_INIT, HB_TENANT_NONE, "init failed: %d", error);
	hb_guard_leave(core);
}

struct hb_core *hb_core_new(const struct hb_core_config *config, int64_t now_ns, int *error)
{
	int ignored;
	if (!error)
		error = &ignored;
	const struct hb_policy_ops *ops = config->ops ? config->ops : hb_policy_find(config->policy);
	*error = -EINVAL;
	if (!ops_valid(ops) || !config_valid(config) || now_ns < 0 || now_ns >= HB_TIME_LIMIT_NS)
		return NULL;
	*error = -ENOMEM;
	struct hb_core *core = calloc(1, sizeof *core);
	if (!core)
		return NULL;
	core->config = *config;
	core->ops = ops;
	*error = allocate_tables(core);
	if (!*error)
		*error = open_note(core);
	if (*error) {
		hb_core_free(core);
		return NULL;
	}
	start(core, now_ns);
	return core;
}

void hb_core_free(struct hb_core *core)
{
	if (!core)
		return;
	if (core->note)
		fclose(core->note);
	hb_timers_fini(&core->timers);
	hb_pool_fini(&core->launches);
	hb_pool_fini(&core->requests);
	free(core->free_hists);
	free(core->hists);
	free(core->tenant_state);
	free(core->policy_state);
	free(core->actions);
	free(core->present[1]);
	free(core->present[0]);
	free(core->slots);
	free(core);
}

/* --- tenants --- */

struct hb_slot *hb_core_slot(const struct hb_core *core, uint32_t tenant)
{
	if (tenant >= core->config.max_tenants || !core->slots[tenant].tenant.present)
		return NULL;
	return &core->slots[tenant];
}

uint32_t hb_core_next_id(const struct hb_core *core, enum hb_priority priority, uint32_t after)
{
	uint32_t from = after == HB_TENANT_NONE ? 0 : after + 1;
	for (uint32_t word = from / 64; word < core->n_words; word++) {
		uint64_t bits = core->present[priority][word];
		if (word == from / 64)
			bits &= ~UINT64_C(0) << from % 64;
		if (bits)
			return word * 64 + (uint32_t)__builtin_ctzll(bits);
	}
	return HB_TENANT_NONE;
}

const struct hb_tenant *hb_core_tenant(const struct hb_core *core, uint32_t tenant)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	return slot ? &slot->tenant : NULL;
}

/* --- actions --- */

bool hb_core_room(const struct hb_core *core)
{
	return core->actions_size - core->actions_count >= ACTIONS_ROOM(core->n_tenants + 1);
}

struct hb_action *hb_core_emit(struct hb_core *core, enum hb_action_kind kind, uint32_t tenant)
{
	uint32_t place = (core->actions_first + core->actions_count++) % core->actions_size;
	/* Zeroed so that the same decision is the same bytes. */
	memset(&core->actions[place], 0, sizeof core->actions[place]);
	core->actions[place].kind = kind;
	core->actions[place].tenant = tenant;
	return &core->actions[place];
}

bool hb_core_next_action(struct hb_core *core, struct hb_action *action)
{
	if (!core->actions_count)
		return false;
	*action = core->actions[core->actions_first];
	core->actions_first = (core->actions_first + 1) % core->actions_size;
	core->actions_count--;
	return true;
}

/* Takes out what was asked for a tenant that has left, so that a new tenant of the same id never gets it. */
void hb_core_withdraw(struct hb_core *core, uint32_t tenant)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < core->actions_count; i++) {
		const struct hb_action *action = &core->actions[(core->actions_first + i) % core->actions_size];
		if (action->tenant != tenant)
			core->actions[(core->actions_first + kept++) % core->actions_size] = *action;
	}
	core->actions_count = kept;
}

/* --- time --- */

uint32_t hb_core_policy_timer(const struct hb_core *core, uint32_t tenant, uint32_t tag)
{
	uint32_t group = tenant == HB_TENANT_NONE ? core->config.max_tenants : tenant;
	return group * HB_POLICY_TIMERS + tag;
}

uint32_t hb_core_turn_timer(const struct hb_core *core)
{
	return (core->config.max_tenants + 1) * HB_POLICY_TIMERS;
}

uint32_t hb_core_infer_timer(const struct hb_core *core, uint32_t tenant)
{
	return hb_core_turn_timer(core) + 1 + tenant;
}

void hb_core_cancel_policy_timer(struct hb_core *core, uint32_t timer)
{
	if (hb_timers_pending(&core->timers, timer))
		core->n_policy_timers--;
	hb_timers_cancel(&core->timers, timer);
}

static void fire(struct hb_core *core, uint32_t timer)
{
	/* The turn's timer only makes settle() look again. */
	if (timer > hb_core_turn_timer(core)) {
		hb_infer_timer(core, timer - hb_core_infer_timer(core, 0));
	} else if (timer < hb_core_turn_timer(core)) {
		uint32_t group = timer / HB_POLICY_TIMERS;
		core->n_policy_timers--;
		if (hb_guard_timer(core))
			HB_POLICY_CALL(core, timer, group == core->config.max_tenants ? HB_TENANT_NONE : group,
				       timer % HB_POLICY_TIMERS);
	}
	hb_core_settle(core);
}

/* Everything due up to `until_ns`, at the time now_ns. */
static int run_until(struct hb_core *core, int64_t until_ns)
{
	while (hb_timers_next_ns(&core->timers) <= until_ns) {
		if (!hb_core_room(core))
			return -ENOBUFS;
		fire(core, hb_timers_pop(&core->timers));
	}
	if (!hb_core_room(core))
		return -ENOBUFS;
	hb_guard_check(core, until_ns);
	return 0;
}

void hb_core_settle(struct hb_core *core)
{
	hb_turns_settle(core);
	hb_guard_watch(core);
}

int hb_core_post(struct hb_core *core, int64_t now_ns, const struct hb_event *event)
{
	if (now_ns < core->now_ns || now_ns >= HB_TIME_LIMIT_NS)
		return -EINVAL;
	/* Timers due before run at the new time: that is when they really run. */
	int64_t before_ns = now_ns - 1;
	core->now_ns = now_ns;
	int error = run_until(core, before_ns);
	if (error)
		return error;
	error = hb_core_apply_event(core, event);
	hb_core_settle(core);
	return error;
}

int hb_core_step(struct hb_core *core, int64_t now_ns)
{
	if (now_ns < core->now_ns || now_ns >= HB_TIME_LIMIT_NS)
		return -EINVAL;
	core->now_ns = now_ns;
	return run_until(core, now_ns);
}

int64_t hb_core_next_wake(const struct hb_core *core)
{
	int64_t timer_ns = hb_timers_next_ns(&core->timers);
	int64_t stall_ns = hb_guard_next_ns(core);
	return timer_ns < stall_ns ? timer_ns : stall_ns;
}

/* --- looking --- */

bool hb_core_wants_launches(const struct hb_core *core)
{
	return core->ops->launches;
}

const char *hb_core_policy(const struct hb_core *core)
{
	return core->ops->name;
}

bool hb_core_high_by_requests(const struct hb_core *core)
{
	return core->ops->high_by_requests;
}

const struct hb_ejection *hb_core_ejection(const struct hb_core *core)
{
	return &core->ejection;
}
