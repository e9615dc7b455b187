/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight in the simulator: does for a modelled HP program what the shim does in
 * an HP process, with the same rules (decide/process_foresight.h,
 * decide/takeover_steps.h) and the times that the shim's parts take on an H200.
 * program.c reports the program's signs, launches and waits; the takeover thread
 * is modelled here. Takeover kernels run in the program's context of the GPU model,
 * so they cost context switches and LP time.
 */
#include "decide/defaults.h"
#include "sim/simulation.h"

#include <errno.h>
#include <stdlib.h>

/* A sleeping takeover thread that is called runs after this time (median on an H200 host). */
#define THREAD_WAKES_NS INT64_C(36000)
/* The thread launches the two takeover kernels with cold caches; a running thread of the program takes less. */
#define THREAD_LAUNCHES_NS INT64_C(25000)
#define PROGRAM_LAUNCHES_NS INT64_C(15000)
/* The daemon counts a tenant as at work for this long after its last launch. */
#define AT_WORK_NS INT64_C(1000000000)

int hb_simulation_open_takeover(struct hb_simulation *simulation, struct hb_program *program)
{
	program->takeover = calloc(1, sizeof *program->takeover);
	if (!program->takeover)
		return -ENOMEM;
	hb_process_foresight_init(&program->takeover->process);
	program->takeover->thread_ns = INT64_MAX;
	program->takeover->planned_ns = INT64_MAX;
	program->takeover->launch_ns = INT64_MAX;
	program->takeover->end_ns = INT64_MAX;
	program->takeover->acted_ns = INT64_MIN;
	program->takeover->stream = hb_gpu_model_add_stream(simulation->model, program->client, -5);
	return program->takeover->stream < 0 ? program->takeover->stream : 0;
}

void hb_simulation_close_takeover(struct hb_program *program)
{
	free(program->takeover);
}

static void refresh_facts(const struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_process_foresight *process = &program->takeover->process;
	struct hb_gpu_facts facts = {.low_present = simulation->n_programs > simulation->n_high};
	if (!hb_process_foresight_wants_facts(process, simulation->now_ns))
		return;
	for (uint32_t i = 0; i < simulation->n_high; i++) {
		const struct hb_program *high = &simulation->programs[i];
		facts.high_at_work += high->launched_ns >= 0 && simulation->now_ns - high->launched_ns < AT_WORK_NS;
	}
	hb_process_foresight_note_gpus(process, simulation->now_ns, &facts, 1);
}

/* --- the GPU --- */

static void launch_kernels(struct hb_simulation *simulation, struct hb_program *program, int64_t limit_ns)
{
	struct hb_program_takeover *takeover = program->takeover;
	struct hb_gpu_model_work work = {.kind = HB_GPU_MODEL_TAKEOVER, .duration_ns = limit_ns, .name = "takeover"};
	work.cookie = hb_cookie(program->id, 0, 0) | HB_COOKIE_TAKEOVER;
	/* A single takeover kernel would lose the GPU as soon as it runs. */
	for (int i = 0; i < 2; i++)
		if (hb_gpu_model_submit(simulation->model, simulation->now_ns, takeover->stream, &work) < 0)
			simulation->failure = -ENOMEM;
	takeover->held = true;
	takeover->end_ns = simulation->now_ns + limit_ns;
}

static void release_gpu(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	takeover->end_ns = INT64_MAX;
	takeover->launch_ns = INT64_MAX;
	if (takeover->held)
		hb_gpu_model_release_takeovers(simulation->model, simulation->now_ns, takeover->stream);
	takeover->held = false;
}

/* --- the takeover thread --- */

static void call_thread(struct hb_simulation *simulation, struct hb_program *program, int64_t at_ns)
{
	struct hb_program_takeover *takeover = program->takeover;
	int64_t wakes_ns = simulation->now_ns + THREAD_WAKES_NS;
	if (at_ns < takeover->planned_ns && wakes_ns < takeover->thread_ns)
		takeover->thread_ns = wakes_ns;
}

static void follow_plan(struct hb_simulation *simulation, struct hb_program *program,
			const struct hb_takeover_plan *before)
{
	struct hb_takeover_plan after = hb_process_foresight_plan(&program->takeover->process);
	struct hb_takeover_change change = hb_takeover_compare(before, &after);
	if (change.release)
		release_gpu(simulation, program);
	call_thread(simulation, program, change.call_for_ns);
}

static void start_takeover(struct hb_simulation *simulation, struct hb_program *program,
			   const struct hb_takeover_plan *plan, int64_t takes_ns)
{
	struct hb_program_takeover *takeover = program->takeover;
	takeover->acted_ns = plan->since_ns;
	takeover->launch_ns = simulation->now_ns + takes_ns;
	hb_takeover_linger_reset(&takeover->linger);
}

static void run_thread(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	refresh_facts(simulation, program);
	hb_process_foresight_step(&takeover->process, simulation->now_ns);
	struct hb_takeover_plan plan = hb_process_foresight_plan(&takeover->process);
	bool acted = takeover->acted_ns == plan.since_ns;
	bool lingering = hb_takeover_linger_runs(&takeover->linger, simulation->now_ns);
	enum hb_takeover_step step = hb_takeover_next_step(&plan, simulation->now_ns, acted, lingering, false);
	if (step == HB_TAKEOVER_TAKE) {
		start_takeover(simulation, program, &plan, THREAD_LAUNCHES_NS);
		takeover->planned_ns = takeover->thread_ns = takeover->launch_ns + 1;
		return;
	}
	if (step == HB_TAKEOVER_LET_GO)
		release_gpu(simulation, program);
	takeover->planned_ns = hb_takeover_wake_ns(&plan, simulation->now_ns, takeover->held, true);
	takeover->thread_ns = takeover->planned_ns;
	if (takeover->planned_ns != INT64_MAX && !hb_takeover_wakes_exactly(&plan, takeover->planned_ns))
		takeover->thread_ns += THREAD_WAKES_NS;
}

int64_t hb_simulation_next_takeover_ns(const struct hb_program *program)
{
	const struct hb_program_takeover *takeover = program->takeover;
	if (!takeover)
		return INT64_MAX;
	int64_t next_ns = takeover->thread_ns < takeover->launch_ns ? takeover->thread_ns : takeover->launch_ns;
	return takeover->end_ns < next_ns ? takeover->end_ns : next_ns;
}

void hb_simulation_step_takeover(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	if (takeover->end_ns <= simulation->now_ns)
		release_gpu(simulation, program);
	if (takeover->launch_ns <= simulation->now_ns) {
		takeover->launch_ns = INT64_MAX;
		launch_kernels(simulation, program, HB_FORESIGHT_TAKEOVER_MAX_NS);
	}
	if (takeover->thread_ns <= simulation->now_ns)
		run_thread(simulation, program);
}

/* --- what the program does --- */

void hb_simulation_takeover_sign(struct hb_simulation *simulation, struct hb_program *program, enum hb_sign kind,
				 uint64_t source, uint32_t who, int64_t expected_ns)
{
	if (!program->takeover) {
		hb_simulation_spatial_sign(simulation, program, kind, source, who, expected_ns);
		return;
	}
	refresh_facts(simulation, program);
	struct hb_process_foresight *process = &program->takeover->process;
	struct hb_takeover_plan before = hb_process_foresight_plan(process);
	hb_process_foresight_sign(process, simulation->now_ns, kind, source, who, expected_ns);
	struct hb_takeover_plan after = hb_process_foresight_plan(process);
	if (kind == HB_SIGN_API && after.until_ns && after.since_ns != before.since_ns)
		start_takeover(simulation, program, &after, PROGRAM_LAUNCHES_NS);
	follow_plan(simulation, program, &before);
}

/* Each launch makes the takeover kernels linger; after the last renewal they end by themselves. */
void hb_simulation_takeover_launch(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	if (takeover->held && hb_takeover_linger_note(&takeover->linger, simulation->now_ns) != HB_TAKEOVER_NOT_RENEWED)
		takeover->end_ns = simulation->now_ns + HB_DEFAULT_TAKEOVER_LINGER_NS;
	if (!takeover->launches_since_idle++) {
		refresh_facts(simulation, program);
		hb_process_foresight_launch(&takeover->process, simulation->now_ns);
	}
	takeover->graphs += program->graph;
	takeover->kernels += !program->graph;
}

void hb_simulation_takeover_wait(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	refresh_facts(simulation, program);
	int64_t keep_ns = hb_process_foresight_wait(&takeover->process, simulation->now_ns, takeover->kernels,
						    takeover->graphs, false, &takeover->wait);
	/* The driver accepts kernels behind the work only while the work runs. */
	takeover->wait.keep_ns = program->in_flight ? keep_ns : 0;
}

void hb_simulation_takeover_drained(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	if (!takeover->wait.keep_ns)
		return;
	release_gpu(simulation, program);
	launch_kernels(simulation, program, takeover->wait.keep_ns);
}

void hb_simulation_takeover_idle(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_program_takeover *takeover = program->takeover;
	struct hb_process_foresight *process = &takeover->process;
	refresh_facts(simulation, program);
	struct hb_takeover_plan before = hb_process_foresight_plan(process);
	hb_process_foresight_learn_wait(process, simulation->now_ns, takeover->kernels, takeover->graphs,
					&takeover->wait);
	bool kept = takeover->wait.keep_ns && takeover->held;
	hb_process_foresight_idle(process, simulation->now_ns, kept ? takeover->wait.keep_ns : 0);
	takeover->wait = (struct hb_process_wait){0};
	takeover->launches_since_idle = 0;
	hb_takeover_linger_reset(&takeover->linger);
	struct hb_takeover_plan after = hb_process_foresight_plan(process);
	if (kept && after.until_ns)
		takeover->acted_ns = after.since_ns;
	follow_plan(simulation, program, &before);
}
