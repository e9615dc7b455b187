/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects the simulation with the scheduling core: posts events, and carries out the
 * core's actions on the GPU model and on the programs' gates.
 */
#include "sim/simulation.h"

#include <errno.h>

/* LP's progress is reported in steps of this length. */
#define PROGRESS_EVERY_NS INT64_C(1000000)

int hb_simulation_open_core(struct hb_simulation *simulation)
{
	struct hb_core_config config;
	hb_core_config_init(&config);
	config.policy = simulation->mode.policy;
	config.gate_depth = simulation->mode.gate_depth;
	config.low_shared = simulation->mode.mps || simulation->mode.mps_low;
	config.low_minimum_ppm = simulation->mode.low_minimum_ppm;
	config.switch_ns = (int64_t)simulation->spec.switch_ns;
	int error = 0;
	simulation->core = hb_core_new(&config, 0, &error);
	simulation->passive = simulation->mode.policy[0] == 'b'; /* builtin */
	return simulation->core ? 0 : error;
}

/* Each process has copy groups of its own, also in a shared context. */
static void set_slice(struct hb_simulation *simulation, uint32_t tenant, int64_t compute_ns, int64_t copy_ns)
{
	if (!simulation->mode.mps || compute_ns)
		hb_gpu_model_set_slice(simulation->model, simulation->context_of[tenant], compute_ns, copy_ns);
	hb_gpu_model_set_copy_slice(simulation->model, simulation->programs[tenant].client, copy_ns);
}

static void apply_action(struct hb_simulation *simulation, const struct hb_action *action)
{
	struct hb_program *program = action->tenant < simulation->n_programs ? &simulation->programs[action->tenant]
									     : NULL;
	if (!program)
		return;
	switch (action->kind) {
	case HB_ACTION_GATE:
		hb_gate_set(&program->gate, action->gate.state, action->gate.depth);
		hb_program_gate_changed(simulation, program);
		break;
	case HB_ACTION_SLICE:
		set_slice(simulation, action->tenant, action->slice.compute_ns, action->slice.copy_ns);
		break;
	case HB_ACTION_ALLOWANCE:
		if (program->spatial && !simulation->mode.without_beside)
			program->spatial->high.allowance_ppm = action->allowance.delay_ppm;
		break;
	case HB_ACTION_EJECTED:
		simulation->failure = hb_error_set(simulation->error, -EPROTO, "policy %s was ejected: %s",
						   hb_core_ejection(simulation->core)->policy.text,
						   hb_core_ejection(simulation->core)->message);
		break;
	case HB_ACTION_MEMORY_MOVE:
	case HB_ACTION_MEMORY_RETURN: /* answers to events that the simulation does not post: it has no memory */
	case HB_ACTION_MEMORY_EVICT:
	case HB_ACTION_MEMORY_ANSWER:
	case HB_ACTION_KINDS:
		break;
	}
}

static void apply_actions(struct hb_simulation *simulation)
{
	struct hb_action action;
	while (hb_core_next_action(simulation->core, &action))
		apply_action(simulation, &action);
}

void hb_simulation_post(struct hb_simulation *simulation, const struct hb_program *program, struct hb_event *event)
{
	if (simulation->passive)
		return;
	event->tenant = program->id;
	int result = hb_core_post(simulation->core, simulation->now_ns, event);
	if (result < 0 && !simulation->failure)
		simulation->failure = hb_error_set(simulation->error, result,
						   "the core refused event %d of tenant %u at %lld ns",
						   (int)event->kind, event->tenant, (long long)simulation->now_ns);
	apply_actions(simulation);
}

void hb_simulation_post_kind(struct hb_simulation *simulation, const struct hb_program *program,
			     enum hb_event_kind kind)
{
	struct hb_event event = {.kind = kind};
	hb_simulation_post(simulation, program, &event);
}

/* A graph counts as a whole. */
void hb_simulation_note_progress(struct hb_simulation *simulation, struct hb_program *program, uint32_t op)
{
	struct hb_event event = {.kind = HB_EVENT_PROGRESS};
	const struct hb_iteration *iteration = &program->workload->iterations[program->iteration];
	if (!simulation->mode.low_minimum_ppm || program->spatial)
		return;
	program->work_ns += program->works[op].duration_ns;
	for (uint32_t i = 1; program->tenant->graph && i < iteration->n_ops; i++)
		program->work_ns += program->works[op + i].duration_ns;
	if (program->work_ns < PROGRESS_EVERY_NS)
		return;
	event.progress.work_ns = program->work_ns;
	program->work_ns = 0;
	hb_simulation_post(simulation, program, &event);
}

void hb_simulation_step_core(struct hb_simulation *simulation)
{
	hb_core_step(simulation->core, simulation->now_ns);
	apply_actions(simulation);
}
