/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates a core, lets time pass and takes events. Called by the owner of a GPU:
 * daemon, simulator, scenario runner, replay. All memory is allocated here, in
 * hb_core_new(). core_post.c has the effects of events.
 */
#include "base/hist.h"
#include "core/core_priv.h"
#include "core/low_minimum.h"
#include "decide/defaults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_LIMIT 4096
#define QUANTUM_MAX_NS INT64_C(10000000000)

void hb_core_config_init(struct hb_core_config *config)
{
	*config = (struct hb_core_config){
		.policy = "builtin",
		.max_tenants = HB_TENANTS_DEFAULT,
		.max_high = 64,
		.quantum_ns = HB_DEFAULT_QUANTUM_NS,
		.turn_grace_ns = HB_DEFAULT_TURN_GRACE_NS,
		.stall_limit_ns = HB_DEFAULT_STALL_LIMIT_NS,
		.low_slice_ns = HB_DEFAULT_LOW_SLICE_NS,
		.high_slice_ns = HB_DEFAULT_HIGH_SLICE_NS,
		.switch_ns = HB_DEFAULT_SWITCH_NS,
		.memory_room_ns = HB_DEFAULT_MEMORY_ROOM_NS,
	};
}

static bool is_slice(int64_t slice_ns)
{
	return slice_ns >= 0 && slice_ns <= HB_SLICE_MAX_NS;
}

static bool is_time(int64_t ns)
{
	return ns >= 0 && ns < HB_TIME_LIMIT_NS;
}

static bool is_config_valid(const struct hb_core_config *config)
{
	return config->max_tenants && config->max_tenants <= TENANTS_LIMIT && config->max_high &&
	       config->max_high <= config->max_tenants && config->quantum_ns > 0 &&
	       config->quantum_ns <= QUANTUM_MAX_NS && config->turn_grace_ns > 0 &&
	       config->turn_grace_ns <= QUANTUM_MAX_NS && config->stall_limit_ns > 0 &&
	       config->stall_limit_ns < HB_TIME_LIMIT_NS && config->gate_depth <= HB_GATE_DEPTH_MAX &&
	       is_slice(config->low_slice_ns) && is_slice(config->high_slice_ns) && config->switch_ns >= 0 &&
	       config->low_minimum_ppm <= HB_LOW_MINIMUM_MOST_PPM && is_time(config->memory_idle_ns) &&
	       is_time(config->memory_room_ns);
}

static bool are_ops_valid(const struct hb_policy_ops *ops)
{
	return ops && ops->name && *ops->name && strlen(ops->name) < sizeof(struct hb_name) &&
	       ops->state_bytes <= HB_POLICY_STATE_MAX && ops->tenant_bytes <= HB_POLICY_TENANT_MAX;
}

/* The state of each tenant starts at a multiple of 16, so that it may be any struct. */
static size_t tenant_stride(const struct hb_policy_ops *ops)
{
	return (ops->tenant_bytes + 15) & ~(size_t)15;
}

static int allocate_tables(struct hb_core *core)
{
	uint32_t n = core->config.max_tenants;
	core->n_words = (n + 63) / 64;
	core->slots = calloc(n, sizeof *core->slots);
	core->turns.users = calloc(n, sizeof *core->turns.users);
	core->present[0] = calloc(core->n_words, sizeof *core->present[0]);
	core->present[1] = calloc(core->n_words, sizeof *core->present[1]);
	core->actions_size = 2 * hb_core_most_actions(n);
	core->actions = calloc(core->actions_size, sizeof *core->actions);
	/* One byte more, because an area may have no bytes. */
	core->policy_state = calloc(1, core->ops->state_bytes + 1);
	core->tenant_state = calloc(n, tenant_stride(core->ops) + 1);
	core->hists = calloc(2 * (size_t)core->config.max_high, sizeof *core->hists);
	core->free_hists = calloc(core->config.max_high, sizeof *core->free_hists);
	if (!core->slots || !core->turns.users || !core->present[0] || !core->present[1] || !core->actions ||
	    !core->policy_state || !core->tenant_state || !core->hists || !core->free_hists)
		return -ENOMEM;
	return hb_timers_init(&core->timers, (n + 1) * HB_POLICY_TIMERS + 2);
}

/* Opens the stream for the dump of an ejected policy now, because opening one allocates memory. */
static int open_note(struct hb_core *core)
{
	core->note = fmemopen(core->ejection.dump, sizeof core->ejection.dump - 1, "w");
	if (!core->note)
		return -ENOMEM;
	setvbuf(core->note, core->note_buffer, _IOFBF, sizeof core->note_buffer);
	return 0;
}

static void start_core(struct hb_core *core, int64_t now_ns)
{
	core->now_ns = now_ns;
	core->storm_since_ns = now_ns;
	core->leaving = HB_TENANT_NONE;
	core->memory.asker = HB_TENANT_NONE;
	core->memory.returner = HB_TENANT_NONE;
	core->memory.room_since_ns = HB_TIME_NEVER;
	core->departed_idle_ns = -1;
	core->policy.core = core;
	hb_turns_init(core, core->ops->turns ? HB_TURNS_BY_USER : HB_TURNS_OFF);
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
	if (!are_ops_valid(ops) || !is_config_valid(config) || now_ns < 0 || now_ns >= HB_TIME_LIMIT_NS)
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
	start_core(core, now_ns);
	return core;
}

void hb_core_free(struct hb_core *core)
{
	if (!core)
		return;
	if (core->note)
		fclose(core->note);
	hb_timers_fini(&core->timers);
	free(core->free_hists);
	free(core->hists);
	free(core->tenant_state);
	free(core->policy_state);
	free(core->actions);
	free(core->present[1]);
	free(core->present[0]);
	free(core->turns.users);
	free(core->slots);
	free(core);
}

/* --- time --- */

static void settle(struct hb_core *core)
{
	hb_turns_settle(core);
	hb_memory_settle(core);
	hb_guard_watch(core);
}

/* The timer of the turns has no callback: settle() ends the turn. */
static void fire_timer(struct hb_core *core, uint32_t timer)
{
	if (timer == hb_core_memory_timer(core)) {
		hb_memory_expire(core);
	} else if (timer != hb_core_turn_timer(core)) {
		uint32_t group = timer / HB_POLICY_TIMERS;
		core->n_policy_timers--;
		if (hb_guard_timer(core))
			HB_POLICY_CALL(core, timer, group == core->config.max_tenants ? HB_TENANT_NONE : group,
				       timer % HB_POLICY_TIMERS);
	}
	settle(core);
}

/* Fires the timers due up to `until_ns`. Their time is core->now_ns, when they really run. */
static int run_until(struct hb_core *core, int64_t until_ns)
{
	while (hb_timers_next_ns(&core->timers) <= until_ns) {
		if (!hb_core_room(core))
			return -ENOBUFS;
		fire_timer(core, hb_timers_pop(&core->timers));
	}
	if (!hb_core_room(core))
		return -ENOBUFS;
	hb_guard_check(core, until_ns);
	return 0;
}

int hb_core_post(struct hb_core *core, int64_t now_ns, const struct hb_event *event)
{
	if (now_ns < core->now_ns || now_ns >= HB_TIME_LIMIT_NS)
		return -EINVAL;
	core->now_ns = now_ns;
	int error = run_until(core, now_ns - 1);
	if (error)
		return error;
	error = hb_core_apply_event(core, event);
	settle(core);
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

/* --- reading --- */

const char *hb_core_policy(const struct hb_core *core)
{
	return core->ops->name;
}

bool hb_core_high_by_requests(const struct hb_core *core)
{
	return core->ops->high_by_requests;
}

bool hb_core_takes_turns(const struct hb_core *core)
{
	return core->turns.order != HB_TURNS_OFF;
}

const struct hb_ejection *hb_core_ejection(const struct hb_core *core)
{
	return &core->ejection;
}
