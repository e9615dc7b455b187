/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduling core of one GPU; see gpu_core.h. */
#include "daemon/gpu_core.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_minimum.h"
#include "daemon/recorder.h"
#include "decide/defaults.h"

#include <string.h>

int64_t hb_gpu_low_slice_ns(const struct hb_gpu *gpu)
{
	int64_t configured_ns = gpu->daemon->config.low_slice_ns;
	return configured_ns ? configured_ns : HB_DEFAULT_LOW_SLICE_NS;
}

static void fill_core_config(const struct hb_gpu *gpu, struct hb_core_config *core)
{
	const struct hb_daemon_config *config = &gpu->daemon->config;
	hb_core_config_init(core);
	/* Each engine has a policy of its own, unless the configuration names another one. */
	bool configured = strcmp(config->policy, HB_DEFAULT_POLICY) != 0;
	core->policy = gpu->engine == HB_ENGINE_SPATIAL && !configured ? "spatial" : config->policy;
	core->max_tenants = HB_TENANCIES_MAX;
	core->quantum_ns = config->quantum_ns;
	core->low_shared = gpu->engine != HB_ENGINE_TURNS;
	core->low_minimum_ppm = hb_low_minimum_ppm(gpu->daemon);
	core->memory_idle_ns = config->elastic_idle_ns;
	core->memory_room_ns = config->elastic_return_ns;
	if (config->low_slice_ns)
		core->low_slice_ns = config->low_slice_ns;
	if (config->high_slice_ns)
		core->high_slice_ns = config->high_slice_ns;
}

int hb_gpu_make_core(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_core_config config;
	int error = 0;
	fill_core_config(gpu, &config);
	struct hb_core *made = hb_core_new(&config, now_ns, &error);
	if (!made)
		return error;
	hb_recorder_core(gpu, now_ns, &config);
	gpu->core = made;
	gpu->core_config = config;
	return 0;
}

/* --- decisions ----------------------------------------------------------------------- */

static void note_gate(struct hb_tenant_state *state, const struct hb_action *action)
{
	state->gate = action->gate.state;
	state->depth = action->gate.depth;
	state->draining = false; /* hb_gpu_apply() knows whether it begins anew */
	state->gate_changed = true;
}

static void note_slices(struct hb_tenant_state *state, const struct hb_action *action)
{
	state->compute_ns = action->slice.compute_ns;
	state->copy_ns = action->slice.copy_ns;
	state->slices_changed = true;
}

/* The processes of LP tenants that run inside the MPS server have no time slices of their own: the server gets them. */
static void note_server_slices(struct hb_gpu *gpu, const struct hb_action *action)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && hb_tenancy_is_server(tenancy))
			note_slices(&gpu->tenants[i], action);
	}
}

static void log_ejection(const struct hb_gpu *gpu, const struct hb_action *action)
{
	hb_log_warning("GPU %u: the policy %s failed (%s); the built-in policy has replaced it", gpu->number,
		       action->ejected.policy.text, hb_core_ejection(gpu->core)->message);
}

static void note_action(struct hb_gpu *gpu, const struct hb_action *action)
{
	if (action->kind == HB_ACTION_EJECTED) {
		log_ejection(gpu, action);
		return;
	}
	struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, action->tenant);
	struct hb_tenant_state *state = &gpu->tenants[action->tenant];
	if (!tenancy)
		return;
	switch (action->kind) {
	case HB_ACTION_GATE:
		note_gate(state, action);
		break;
	case HB_ACTION_SLICE:
		note_slices(state, action);
		if (hb_tenancy_is_low(tenancy))
			note_server_slices(gpu, action);
		break;
	case HB_ACTION_ALLOWANCE:
		state->allowance_ppm = action->allowance.delay_ppm;
		break;
	default:
		hb_gpu_elastic_act(gpu, tenancy, action, hb_clock_now_ns());
		break;
	}
}

static void note_actions(struct hb_gpu *gpu)
{
	struct hb_action action;
	while (hb_core_next_action(gpu->core, &action)) {
		hb_recorder_action(gpu, &action);
		note_action(gpu, &action);
	}
}

/* --- events -------------------------------------------------------------------------- */

int hb_gpu_post(struct hb_gpu *gpu, int64_t now_ns, const struct hb_event *event)
{
	hb_recorder_event(gpu, now_ns, event);
	int result = hb_core_post(gpu->core, now_ns, event);
	if (result < 0)
		hb_log_debug("GPU %u: the core refuses event %d of tenant %u: %s", gpu->number, (int)event->kind,
			     event->tenant, strerror(-result));
	note_actions(gpu);
	return result;
}

int hb_gpu_post_kind(struct hb_gpu *gpu, int64_t now_ns, uint32_t tenant, enum hb_event_kind kind)
{
	struct hb_event event = {.kind = kind, .tenant = tenant};
	return hb_gpu_post(gpu, now_ns, &event);
}

void hb_gpu_step(struct hb_gpu *gpu, int64_t now_ns)
{
	hb_recorder_step(gpu, now_ns);
	hb_core_step(gpu->core, now_ns);
	note_actions(gpu);
}
