/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects the simulation with the scheduling core: posts events, and carries out the
 * core's actions on the GPU model and on the programs' gates.
 */
#include "sim/simulation.h"

#include <errno.h>

int hb_simulation_open_core(struct hb_simulation *engine)
{
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.policy = engine->mode.policy;
	config.gate_depth = engine->mode.gate_depth;
	config.low_shared = engine->mode.mps || engine->mode.mps_low;
	config.switch_ns = (int64_t)engine->spec.switch_ns;
	int error = 0;
	engine->core = hb_core_new(&config, 0, &error);
	engine->passive = engine->mode.policy[0] == 'b'; /* builtin */
	return engine->core ? 0 : error;
}

static void set_slice(struct hb_simulation *engine, uint32_t tenant, int64_t compute_ns, int64_t copy_ns)
{
	hb_gpu_model_set_slice(engine->model, engine->context_of[tenant], compute_ns, copy_ns);
}

static void apply_action(struct hb_simulation *engine, const struct hb_action *action)
{
	struct hb_program *program = action->tenant < engine->n_programs ? &engine->programs[action->tenant] : NULL;
	if (!program)
		return;
	switch (action->kind) {
	case HB_ACTION_GATE:
		hb_gate_set(&program->gate, action->gate.state, action->gate.depth);
		hb_program_gate_changed(engine, program);
		break;
	case HB_ACTION_SLICE:
		set_slice(engine, action->tenant, action->slice.compute_ns, action->slice.copy_ns);
		break;
	case HB_ACTION_ALLOWANCE:
		if (program->slack && !engine->mode.without_beside)
			atomic_store(&program->slack->high.beacon->terms_ppm, action->allowance.delay_ppm);
		break;
	case HB_ACTION_EJECTED:
		engine->failure = hb_error_set(engine->error, -EPROTO, "policy %s was ejected: %s",
					       hb_core_ejection(engine->core)->policy.text,
					       hb_core_ejection(engine->core)->message);
		break;
	case HB_ACTION_KINDS:
		break;
	}
}

static void apply_actions(struct hb_simulation *engine)
{
	struct hb_action action;
	while (hb_core_next_action(engine->core, &action))
		apply_action(engine, &action);
}

void hb_simulation_post(struct hb_simulation *engine, const struct hb_program *program, struct hb_event *event)
{
	if (engine->passive)
		return;
	event->tenant = program->id;
	int result = hb_core_post(engine->core, engine->now_ns, event);
	if (result < 0 && !engine->failure)
		engine->failure = hb_error_set(engine->error, result,
					       "the core refused event %d of tenant %u at %lld ns", (int)event->kind,
					       event->tenant, (long long)engine->now_ns);
	apply_actions(engine);
}

void hb_simulation_post_kind(struct hb_simulation *engine, const struct hb_program *program, enum hb_event_kind kind)
{
	struct hb_event event = {.kind = kind};
	hb_simulation_post(engine, program, &event);
}

void hb_simulation_step_core(struct hb_simulation *engine)
{
	hb_core_step(engine->core, engine->now_ns);
	apply_actions(engine);
}
