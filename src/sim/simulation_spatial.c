/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of the spatial engine in the simulator: what the shim does on
 * a real GPU at HP's and LP's launches, with the same code (core/slack_*.h) and
 * the times that its parts take there. Called by program.c.
 */
#include "decide/baseline_orion.h"
#include "sim/simulation.h"

#include <errno.h>
#include <stdlib.h>

/* A thread that waits looks at the board and the counter this often. */
#define SPIN_NS 500
/* A slice starts all blocks of the grid; those outside of it leave at once. */
#define LEAVE_NS 1.25

static uint32_t flags_of(const struct hb_simulation *engine, const struct hb_gpu_model_work *work, bool kernel)
{
	if (work->kind != HB_GPU_MODEL_KERNEL)
		return HB_SPATIAL_FREE;
	if (!kernel)
		return 0; /* memsets: the driver's own launches */
	bool plain = work->cluster <= 1 && !engine->mode.without_slices;
	return HB_SPATIAL_MASKABLE | (plain ? HB_SPATIAL_SPLITTABLE : 0) | (work->cluster > 1 ? HB_SPATIAL_CLUSTER : 0);
}

static int make_shapes(const struct hb_simulation *engine, struct hb_program *program)
{
	const struct hb_workload *workload = program->workload;
	struct hb_program_slack *slack = program->slack;
	slack->shapes = calloc(workload->n_ops, sizeof *slack->shapes);
	if (!slack->shapes)
		return -ENOMEM;
	for (uint32_t op = 0; op < workload->n_ops; op++) {
		const struct hb_gpu_model_work *work = &program->works[op];
		struct hb_spatial_shape *shape = &slack->shapes[op];
		bool kernel = workload->ops[op].kind == HB_OP_KERNEL;
		shape->key = hb_spatial_key(workload->ops[op].name, (uint32_t)work->blocks, 1, 1, work->threads,
					    work->shared_bytes);
		shape->flags = flags_of(engine, work, kernel);
		if (program->tenant->graph) {
			*shape = (struct hb_spatial_shape){.key = hb_spatial_key(op, 0, 0, 0, 0, 0)};
			continue;
		}
		shape->blocks = work->blocks;
		shape->per_sm = work->kind == HB_GPU_MODEL_KERNEL ? hb_gpu_model_occupancy(&engine->spec, work) : 0;
	}
	return 0;
}

int hb_simulation_open_slack(struct hb_simulation *engine, struct hb_program *program)
{
	uint32_t sms = (uint32_t)engine->spec.sm_count;
	program->slack = calloc(1, sizeof *program->slack);
	if (!program->slack)
		return -ENOMEM;
	if (program->high) {
		hb_spatial_high_init(&program->slack->high, hb_spatial_claim(&engine->board, program->id + 1), sms);
		hb_spatial_high_set_slo(&program->slack->high, program->tenant->slo_ns);
		if (engine->mode.reserve_sms)
			hb_spatial_high_set_learned(&program->slack->high, engine->mode.reserve_sms, engine->mode.gaps);
		return 0;
	}
	struct hb_spatial_limits limits;
	hb_spatial_limits_init(&limits, sms);
	limits.masks = !engine->mode.without_masks;
	hb_spatial_limits_set_window(&limits, engine->mode.window_ns);
	program->slack->low = malloc(sizeof *program->slack->low);
	if (!program->slack->low)
		return -ENOMEM;
	hb_spatial_low_init(program->slack->low, &limits);
	return make_shapes(engine, program);
}

void hb_simulation_close_slack(struct hb_program *program)
{
	if (!program->slack)
		return;
	free(program->slack->low);
	free(program->slack->shapes);
	free(program->slack);
}

void hb_simulation_slack_launch(struct hb_simulation *engine, struct hb_program *program)
{
	struct hb_program_slack *slack = program->slack;
	if (program->high) {
		if (program->op == 0)
			hb_spatial_high_begin(&slack->high, engine->now_ns, 0);
		hb_spatial_high_launch(&slack->high, engine->now_ns);
		return;
	}
	uint32_t mark = hb_spatial_went(slack->low, &slack->stream, engine->now_ns, &slack->answer);
	slack->marks = mark != 0;
	program->mark = mark;
}

/* LP's threads look all the time while they wait. */
void hb_simulation_slack_end(struct hb_simulation *engine, struct hb_program *program)
{
	hb_spatial_high_wait(&program->slack->high, program->sync_from_ns);
	hb_spatial_high_end(&program->slack->high, engine->now_ns);
	for (uint32_t i = engine->n_high; i < engine->n_programs; i++) {
		struct hb_program *low = &engine->programs[i];
		if (low->state == PROGRAM_GATED && low->slack && low->wake_ns > engine->now_ns + SPIN_NS)
			low->wake_ns = engine->now_ns + SPIN_NS;
	}
}

/* --- LP --- */

static void look_at_counter(struct hb_simulation *engine, struct hb_program *program)
{
	struct hb_program_slack *slack = program->slack;
	/* A thread that waits has looked just before. */
	int64_t looked_ns = program->state == PROGRAM_GATED ? engine->now_ns - SPIN_NS : slack->looked_ns;
	if (slack->counter != slack->stream.done)
		hb_spatial_done(slack->low, &slack->stream, slack->counter, looked_ns, engine->now_ns);
	slack->looked_ns = engine->now_ns;
}

/* What the HP program that serves a request does now; with several, the one with the least time alone. */
static struct hb_orion_high describe_high(const struct hb_simulation *engine, const struct hb_spatial_view *view)
{
	struct hb_orion_high described = {.present = view->present};
	for (uint32_t i = 0; i < engine->n_high; i++) {
		const struct hb_program *high = &engine->programs[i];
		if (high->served_ns < 0 || (described.alone_ns && high->slack->high.alone_ns >= described.alone_ns))
			continue;
		described.measures_alone = high->slack->high.closed;
		described.alone_ns = high->slack->high.alone_ns;
		described.class = high->launched_class;
	}
	return described;
}

/* As bench/shim/bench_orion.c does: beside a request, Orion's rule replaces the engine's answer. */
static void apply_orion_rule(const struct hb_simulation *engine, struct hb_program *program, uint32_t op,
			     const struct hb_spatial_view *view)
{
	struct hb_program_slack *slack = program->slack;
	const struct hb_spatial_shape *shape = &slack->shapes[op];
	const struct hb_gpu_model_work *work = &program->works[op];
	uint32_t sms = (uint32_t)engine->spec.sm_count;
	uint64_t needed = shape->per_sm ? (shape->blocks + shape->per_sm - 1) / shape->per_sm : 0;
	const struct hb_orion_launch launch = {
		.sms = needed < sms ? (uint32_t)needed : sms,
		.duration_ns = slack->answer.known ? slack->answer.ns : 0,
		.class = work->name ? hb_kernel_class(work->name) : HB_CLASS_UNKNOWN,
	};
	const struct hb_orion_high high = describe_high(engine, view);
	if (hb_orion_may_start(&slack->orion_used_ns, &high, &launch, sms / 2))
		return;
	slack->answer.verdict = HB_SPATIAL_WAIT;
	slack->answer.until_ns = view->look_at_ns;
}

bool hb_simulation_slack_go(struct hb_simulation *engine, struct hb_program *program)
{
	struct hb_program_slack *slack = program->slack;
	uint32_t op = program->workload->iterations[program->iteration].first_op + program->op;
	struct hb_spatial_shape shape = slack->shapes[op];
	struct hb_spatial_view view;
	look_at_counter(engine, program);
	hb_spatial_look(&engine->board, engine->now_ns, &view);
	if (slack->blocks_done)
		shape.left_ppm = (uint32_t)((shape.blocks - slack->blocks_done) * HB_SPATIAL_PPM / shape.blocks) + 1;
	bool orion = engine->mode.orion && !(shape.flags & HB_SPATIAL_FREE);
	if (orion && view.present)
		shape.flags |= HB_SPATIAL_FREE;
	hb_spatial_ask(slack->low, &slack->stream, &view, engine->now_ns, &shape, &slack->answer);
	if (orion)
		apply_orion_rule(engine, program, op, &view);
	if (slack->answer.verdict != HB_SPATIAL_WAIT)
		return true;
	if (program->state != PROGRAM_GATED)
		program->gated_since_ns = engine->now_ns;
	program->state = PROGRAM_GATED;
	int64_t least_ns = engine->now_ns + SPIN_NS;
	program->wake_ns = slack->answer.until_ns > least_ns ? slack->answer.until_ns : least_ns;
	return false;
}

/* The part of a grid that goes now. */
static void cut(struct hb_program_slack *slack, struct hb_gpu_model_work *work)
{
	uint64_t all = work->blocks, left = all - slack->blocks_done, part = left;
	if (slack->answer.verdict == HB_SPATIAL_SPLIT) {
		part = all * slack->answer.part_ppm / HB_SPATIAL_PPM;
		part = part < 1 ? 1 : part < left ? part : left;
	}
	if (part == all)
		return;
	slack->blocks_done = part == left ? 0 : slack->blocks_done + part;
	work->duration_ns = (int64_t)((double)work->duration_ns * (double)part / (double)all);
	work->duration_ns += (int64_t)((double)all * LEAVE_NS) + 1;
	work->blocks = part;
}

void hb_simulation_slack_shape(const struct hb_simulation *engine, struct hb_program *program,
			       struct hb_gpu_model_work *work)
{
	if (work->kind != HB_GPU_MODEL_KERNEL)
		return;
	work->sm_limit = program->slack->answer.sms;
	work->sm_spread = !engine->mode.masks_gpcs;
	cut(program->slack, work);
}

void hb_simulation_slack_marked(struct hb_simulation *engine, struct hb_program *program, uint32_t mark)
{
	if (!mark)
		return;
	program->slack->counter = mark;
	if (program->state == PROGRAM_GATED && program->wake_ns > engine->now_ns + SPIN_NS)
		program->wake_ns = engine->now_ns + SPIN_NS;
}

void hb_simulation_slack_idle(struct hb_simulation *engine, struct hb_program *program)
{
	hb_spatial_idle(&program->slack->stream, engine->now_ns);
}
