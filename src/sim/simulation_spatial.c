/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in the simulator: does at the launches of HP and LP programs what
 * the shim does, with the same code (decide/spatial_high.h, decide/spatial_low.h) and
 * the times that the shim's parts take on an H200. Called by program.c.
 */
#include "decide/baseline_orion.h"
#include "sim/simulation.h"

#include <errno.h>
#include <stdlib.h>

/* A waiting thread polls the board and the counter this often. */
#define SPIN_NS 500
/* A part of a split kernel starts all blocks of the grid; blocks outside of the part end after this time each. */
#define LEAVE_NS 1.25

static uint32_t flags_of(const struct hb_simulation *simulation, const struct hb_gpu_model_work *work, bool kernel)
{
	if (work->kind != HB_GPU_MODEL_KERNEL)
		return HB_SPATIAL_FREE;
	if (!kernel)
		return 0; /* a memset is a launch of the driver */
	bool plain = work->cluster <= 1 && !simulation->mode.without_slices;
	return HB_SPATIAL_MASKABLE | (plain ? HB_SPATIAL_SPLITTABLE : 0) | (work->cluster > 1 ? HB_SPATIAL_CLUSTER : 0);
}

static int make_shapes(const struct hb_simulation *simulation, struct hb_program *program)
{
	const struct hb_workload *workload = program->workload;
	struct hb_program_spatial *spatial = program->spatial;
	spatial->shapes = calloc(workload->n_ops, sizeof *spatial->shapes);
	if (!spatial->shapes)
		return -ENOMEM;
	for (uint32_t op = 0; op < workload->n_ops; op++) {
		const struct hb_gpu_model_work *work = &program->works[op];
		struct hb_spatial_shape *shape = &spatial->shapes[op];
		bool kernel = workload->ops[op].kind == HB_OP_KERNEL;
		shape->key = hb_spatial_key(workload->ops[op].name, (uint32_t)work->blocks, 1, 1, work->threads,
					    work->shared_bytes);
		shape->flags = flags_of(simulation, work, kernel);
		if (program->graph) {
			*shape = (struct hb_spatial_shape){.key = hb_spatial_key(op, 0, 0, 0, 0, 0)};
			continue;
		}
		shape->blocks = work->blocks;
		shape->per_sm = work->kind == HB_GPU_MODEL_KERNEL ? hb_gpu_model_occupancy(&simulation->spec, work) : 0;
	}
	return 0;
}

static int open_foresight(struct hb_program_spatial *spatial)
{
	spatial->foresight = malloc(sizeof *spatial->foresight);
	if (!spatial->foresight)
		return -ENOMEM;
	hb_process_foresight_init_masks(spatial->foresight);
	return 0;
}

int hb_simulation_open_spatial(struct hb_simulation *simulation, struct hb_program *program)
{
	uint32_t sms = (uint32_t)simulation->spec.sm_count;
	program->spatial = calloc(1, sizeof *program->spatial);
	if (!program->spatial)
		return -ENOMEM;
	if (program->high) {
		hb_spatial_high_init(&program->spatial->high, hb_spatial_claim(&simulation->board, program->id + 1),
				     sms);
		hb_spatial_high_set_slo(&program->spatial->high, program->tenant->slo_ns);
		if (simulation->mode.reserve_sms)
			hb_spatial_high_set_learned(&program->spatial->high, simulation->mode.reserve_sms,
						    simulation->mode.gaps);
		return simulation->mode.expects ? open_foresight(program->spatial) : 0;
	}
	struct hb_spatial_limits limits;
	hb_spatial_limits_init(&limits, sms);
	limits.masks = !simulation->mode.without_masks;
	hb_spatial_limits_set_window(&limits, simulation->mode.window_ns);
	program->spatial->low = malloc(sizeof *program->spatial->low);
	if (!program->spatial->low)
		return -ENOMEM;
	hb_spatial_low_init(program->spatial->low, &limits);
	program->spatial->least.ppm = simulation->mode.low_minimum_ppm;
	return make_shapes(simulation, program);
}

void hb_simulation_close_spatial(struct hb_program *program)
{
	if (!program->spatial)
		return;
	free(program->spatial->foresight);
	free(program->spatial->low);
	free(program->spatial->shapes);
	free(program->spatial);
}

/* --- HP --- */

static void announce_request(const struct hb_simulation *simulation, struct hb_program_spatial *spatial)
{
	struct hb_foresight_expected expected;
	if (!hb_foresight_expects(&spatial->foresight->foresight, simulation->now_ns, &expected))
		expected = (struct hb_foresight_expected){0};
	hb_spatial_high_expect(&spatial->high, expected.from_ns, expected.until_ns);
}

void hb_simulation_spatial_sign(struct hb_simulation *simulation, struct hb_program *program, enum hb_sign kind,
				uint64_t source, uint32_t who, int64_t expected_ns)
{
	struct hb_program_spatial *spatial = program->spatial;
	if (!spatial || !spatial->foresight)
		return;
	hb_process_foresight_sign(spatial->foresight, simulation->now_ns, kind, source, who, expected_ns);
	announce_request(simulation, spatial);
}

/* As the shim estimates it from the launch: hb_spatial_needed_sms(). */
static uint32_t needed_sms(const struct hb_simulation *simulation, const struct hb_program *program)
{
	uint32_t op = program->workload->iterations[program->iteration].first_op + program->op;
	const struct hb_gpu_model_work *work = &program->works[op];
	if (program->graph || simulation->mode.without_following)
		return 0;
	return work->kind == HB_GPU_MODEL_KERNEL
		       ? hb_spatial_needed_sms(work->blocks, work->threads, work->shared_bytes)
		       : 1;
}

void hb_simulation_spatial_launch(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_spatial *spatial = program->spatial;
	if (program->high) {
		if (program->op == 0)
			hb_spatial_high_begin(&spatial->high, simulation->now_ns, 0);
		if (program->op == 0 && spatial->foresight)
			hb_process_foresight_launch(spatial->foresight, simulation->now_ns);
		hb_spatial_high_need(&spatial->high, needed_sms(simulation, program));
		hb_spatial_high_launch(&spatial->high, simulation->now_ns);
		return;
	}
	uint32_t mark = hb_spatial_went(spatial->low, &spatial->stream, simulation->now_ns, &spatial->answer);
	hb_spatial_least_note(&spatial->least, (uint32_t)simulation->spec.sm_count, &spatial->answer);
	spatial->marks = mark != 0;
	program->mark = mark;
}

/* Waiting LP threads notice the end of the request when they poll next. */
void hb_simulation_spatial_end(struct hb_simulation *simulation, struct hb_program *program)
{
	hb_spatial_high_wait(&program->spatial->high, program->sync_from_ns);
	hb_spatial_high_end(&program->spatial->high, simulation->now_ns);
	if (program->spatial->foresight) {
		hb_process_foresight_idle(program->spatial->foresight, simulation->now_ns, 0);
		announce_request(simulation, program->spatial);
	}
	for (uint32_t i = simulation->n_high; i < simulation->n_programs; i++) {
		struct hb_program *low = &simulation->programs[i];
		if (low->state == PROGRAM_GATED && low->spatial && low->wake_ns > simulation->now_ns + SPIN_NS)
			low->wake_ns = simulation->now_ns + SPIN_NS;
	}
}

/* --- LP --- */

static void read_counter(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_spatial *spatial = program->spatial;
	/* A waiting thread polled a moment ago. */
	int64_t read_ns = program->state == PROGRAM_GATED ? simulation->now_ns - SPIN_NS : spatial->read_ns;
	if (spatial->counter != spatial->stream.done)
		hb_spatial_done(spatial->low, &spatial->stream, spatial->counter, read_ns, simulation->now_ns);
	spatial->read_ns = simulation->now_ns;
}

/* Describes the HP program that serves a request; of several, the one with the least time alone. */
static struct hb_orion_high describe_high(const struct hb_simulation *simulation, const struct hb_spatial_view *view)
{
	struct hb_orion_high described = {.present = view->present};
	for (uint32_t i = 0; i < simulation->n_high; i++) {
		const struct hb_program *high = &simulation->programs[i];
		if (high->served_ns < 0 || (described.alone_ns && high->spatial->high.alone_ns >= described.alone_ns))
			continue;
		described.measures_alone = high->spatial->high.closed;
		described.alone_ns = high->spatial->high.alone_ns;
		described.class = high->launched_class;
	}
	return described;
}

/* As bench/shim/bench_orion.c does: beside a request, Orion's rule replaces the engine's answer. */
static void apply_orion_rule(const struct hb_simulation *simulation, struct hb_program *program, uint32_t op,
			     const struct hb_spatial_view *view)
{
	struct hb_program_spatial *spatial = program->spatial;
	const struct hb_spatial_shape *shape = &spatial->shapes[op];
	const struct hb_gpu_model_work *work = &program->works[op];
	uint32_t sms = (uint32_t)simulation->spec.sm_count;
	uint64_t needed = shape->per_sm ? (shape->blocks + shape->per_sm - 1) / shape->per_sm : 0;
	const struct hb_orion_launch launch = {
		.sms = needed < sms ? (uint32_t)needed : sms,
		.duration_ns = spatial->answer.known ? spatial->answer.ns : 0,
		.class = work->name ? hb_kernel_class(work->name) : HB_CLASS_UNKNOWN,
	};
	const struct hb_orion_high high = describe_high(simulation, view);
	if (hb_orion_may_start(&spatial->orion_used_ns, &high, &launch, sms / 2))
		return;
	spatial->answer.verdict = HB_SPATIAL_WAIT;
	spatial->answer.until_ns = view->look_at_ns;
}

bool hb_simulation_spatial_go(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_spatial *spatial = program->spatial;
	uint32_t op = program->workload->iterations[program->iteration].first_op + program->op;
	struct hb_spatial_shape shape = spatial->shapes[op];
	struct hb_spatial_view view;
	read_counter(simulation, program);
	hb_spatial_look(&simulation->board, simulation->now_ns, &view);
	if (spatial->blocks_done)
		shape.left_ppm = (uint32_t)((shape.blocks - spatial->blocks_done) * HB_SPATIAL_PPM / shape.blocks) + 1;
	bool orion = simulation->mode.orion && !(shape.flags & HB_SPATIAL_FREE);
	if (orion && view.present)
		shape.flags |= HB_SPATIAL_FREE;
	hb_spatial_least_relax(&spatial->least, &spatial->stream, (uint32_t)simulation->spec.sm_count,
			       simulation->now_ns, &view);
	hb_spatial_ask(spatial->low, &spatial->stream, &view, simulation->now_ns, &shape, &spatial->answer);
	if (orion)
		apply_orion_rule(simulation, program, op, &view);
	if (spatial->answer.verdict != HB_SPATIAL_WAIT)
		return true;
	if (program->state != PROGRAM_GATED)
		program->gated_since_ns = simulation->now_ns;
	program->state = PROGRAM_GATED;
	int64_t least_ns = simulation->now_ns + SPIN_NS;
	program->wake_ns = spatial->answer.until_ns > least_ns ? spatial->answer.until_ns : least_ns;
	return false;
}

/* Reduces the work to the part of the grid that is launched now. */
static void cut_grid(struct hb_program_spatial *spatial, struct hb_gpu_model_work *work)
{
	uint64_t all = work->blocks, left = all - spatial->blocks_done, part = left;
	if (spatial->answer.verdict == HB_SPATIAL_SPLIT) {
		part = all * spatial->answer.part_ppm / HB_SPATIAL_PPM;
		part = part < 1 ? 1 : part < left ? part : left;
	}
	if (part == all)
		return;
	spatial->blocks_done = part == left ? 0 : spatial->blocks_done + part;
	work->duration_ns = (int64_t)((double)work->duration_ns * (double)part / (double)all);
	work->duration_ns += (int64_t)((double)all * LEAVE_NS) + 1;
	work->blocks = part;
}

void hb_simulation_spatial_shape(const struct hb_simulation *simulation, struct hb_program *program,
				 struct hb_gpu_model_work *work)
{
	if (work->kind != HB_GPU_MODEL_KERNEL)
		return;
	work->sm_limit = program->spatial->answer.sms;
	work->sm_spread = !simulation->mode.masks_gpcs;
	cut_grid(program->spatial, work);
}

void hb_simulation_spatial_marked(struct hb_simulation *simulation, struct hb_program *program, uint32_t mark)
{
	if (!mark)
		return;
	program->spatial->counter = mark;
	if (program->state == PROGRAM_GATED && program->wake_ns > simulation->now_ns + SPIN_NS)
		program->wake_ns = simulation->now_ns + SPIN_NS;
}

void hb_simulation_spatial_idle(struct hb_simulation *simulation, struct hb_program *program)
{
	read_counter(simulation, program);
	hb_spatial_idle(&program->spatial->stream, simulation->now_ns);
}
