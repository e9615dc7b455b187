/* SPDX-License-Identifier: Apache-2.0 */
/* The host side of a simulated tenant; see program.h. */
#include "decide/kernel_class.h"
#include "sim/intervals.h"
#include "sim/simulation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A blocked thread continues this long after its gate opened: it polls, as the shim does at first. */
#define GATE_WAKE_NS 1000
/* With a bounded depth each launch is followed by an event record, and its end is noticed by polling. */
#define DEPTH_RECORD_NS 1500
#define DEPTH_POLL_NS 1500
/* Relative spread of the lengths of a kernel's blocks. Traces do not contain it; assumed. */
#define BLOCK_SPREAD 0.15
/* Time from the request's start to the launch call of its graph. */
#define GRAPH_FIRST_NS 5000
/* Duration of the call that makes the GPU write a mark behind a launch (a stream memory operation). */
#define MARK_NS 1500
/* Between two tokens the host reads the one and prepares the other: some 30 us on an H200. */
#define TOKEN_GAP_NS 25000

void hb_program_fill_work(struct hb_gpu_model_work *work, const struct hb_trace_set *traces, const struct hb_op *op)
{
	const char *name = traces->names[op->name];
	*work = (struct hb_gpu_model_work){.kind = HB_GPU_MODEL_KERNEL, .duration_ns = op->duration_ns, .name = name};
	if ((op->kind == HB_OP_COPY_H2D || op->kind == HB_OP_COPY_D2H) && op->bytes) {
		work->kind = op->kind == HB_OP_COPY_H2D ? HB_GPU_MODEL_COPY_H2D : HB_GPU_MODEL_COPY_D2H;
		work->bytes = op->bytes;
		return;
	}
	bool kernel = op->kind == HB_OP_KERNEL;
	work->blocks = kernel ? op->blocks : 32; /* memsets and device copies are small kernels of the driver */
	work->threads = kernel ? op->threads : 512;
	work->registers = op->registers;
	work->shared_bytes = op->shared_bytes;
	work->cluster = op->cluster > 1 ? op->cluster : hb_kernel_cluster(name);
	if (work->blocks % work->cluster)
		work->cluster = 1;
	work->block_spread = BLOCK_SPREAD;
	work->power_share = kernel && hb_kernel_class(name) == HB_CLASS_COMPUTE;
	work->memory_share = hb_kernel_memory_share(kernel ? hb_kernel_class(name) : HB_CLASS_MEMORY);
}

/* Share of an iteration alone that is spent in matrix kernels. */
static double matrix_share(const struct hb_program_part *part)
{
	const struct hb_workload *workload = part->workload;
	double matrix = 0, busy = 0;
	for (uint32_t op = 0; op < workload->n_ops; op++) {
		matrix += part->works[op].power_share * (double)part->works[op].duration_ns;
		busy += (double)workload->ops[op].duration_ns;
	}
	double alone = (double)workload->alone_ns * workload->n_iterations;
	return matrix / (alone > busy ? alone : busy);
}

static int open_streams(struct hb_program *program, struct hb_simulation *simulation)
{
	uint32_t limit = 0;
	if (!program->high && simulation->mode.sm_limit_percent < 100)
		limit = (uint32_t)(simulation->spec.sm_count * simulation->mode.sm_limit_percent / 100.0 + 0.5);
	program->client = hb_gpu_model_add_client(simulation->model, simulation->context_of[program->id], limit);
	if (program->client < 0)
		return program->client;
	int priority = program->high && simulation->mode.priorities ? -5 : 0;
	program->stream = hb_gpu_model_add_stream(simulation->model, program->client, priority);
	return program->stream < 0 ? program->stream : 0;
}

/*
 * A kernel of a program with memory on the host reads and writes that part of its bytes over PCIe, besides all others: it takes
 * as long as the slower of the two. All bytes are used equally often, which is the worst that a program has to expect.
 */
static void charge_host_memory(struct hb_gpu_model_work *work, const struct hb_gpu_spec *spec, uint32_t percent)
{
	double share = percent / 100.0, local = work->memory_share * (1 - share);
	double host = work->memory_share * share * spec->memory_bytes_per_s / spec->pcie_h2d_bytes_per_s;
	double longer = host > 1 ? host : 1;
	if (work->kind != HB_GPU_MODEL_KERNEL || !percent)
		return;
	work->duration_ns = (int64_t)((double)work->duration_ns * longer + 0.5);
	work->memory_share = local / longer;
}

static int make_part(const struct hb_simulation *simulation, const struct hb_sim_phase *phase, uint32_t host_percent,
		     struct hb_program_part *part)
{
	const struct hb_workload *workload = phase->workload;
	*part = (struct hb_program_part){
		.workload = workload, .graph = phase->graph, .tokens = phase->tokens ? phase->tokens : 1};
	int result = hb_host_plan_init(&part->plan, workload, &simulation->spec);
	if (result < 0)
		return result;
	part->works = calloc(workload->n_ops, sizeof *part->works);
	if (!part->works)
		return -ENOMEM;
	for (uint32_t op = 0; op < workload->n_ops; op++)
		hb_program_fill_work(&part->works[op], simulation->options->traces, &workload->ops[op]);
	for (uint32_t op = 0; op < workload->n_ops; op++)
		charge_host_memory(&part->works[op], &simulation->spec, host_percent);
	double recorded_power = matrix_share(part);
	for (uint32_t op = 0; op < workload->n_ops; op++)
		part->works[op].recorded_power = recorded_power;
	return 0;
}

static void enter_phase(struct hb_program *program, uint32_t phase)
{
	const struct hb_program_part *part = &program->parts[phase];
	program->phase = phase;
	program->workload = part->workload;
	program->graph = part->graph;
	program->tokens = part->tokens;
	program->plan = &part->plan;
	program->works = part->works;
	program->iteration = 0;
}

static int make_parts(struct hb_program *program, const struct hb_simulation *simulation)
{
	for (uint32_t i = 0; i < hb_service_phases(program->tenant); i++) {
		struct hb_sim_phase phase = hb_service_phase(program->tenant, i);
		program->n_parts = i + 1;
		int result = make_part(simulation, &phase, program->tenant->host_percent, &program->parts[i]);
		if (result < 0)
			return result;
	}
	enter_phase(program, 0);
	return 0;
}

static void next_arrival(struct hb_program *program, struct hb_simulation *simulation)
{
	int64_t next = hb_service_arrivals_next(&program->arrivals, &program->next_phase);
	int64_t shifted = next == INT64_MAX ? next : next + simulation->options->lead_ns;
	program->next_arrival_ns = shifted < simulation->end_ns ? shifted : INT64_MAX;
	hb_simulation_plan_hint(simulation, program);
}

/* The bytes of a request arrive when the request does, unless the mode's signs say otherwise (simulation_hints.c). */
static int open_arrivals(struct hb_program *program, struct hb_simulation *simulation, struct hb_error *error)
{
	uint64_t seed = simulation->options->seed + program->id;
	program->closed = !program->tenant->arrivals;
	int result = program->closed ? 0 : hb_service_arrivals_init(&program->arrivals, program->tenant, seed, error);
	if (result < 0 || program->closed)
		return result;
	program->closed = hb_arrivals_kind(program->arrivals.of[0]) == HB_ARRIVE_CLOSED;
	bool foresees = program->takeover || (program->spatial && program->spatial->foresight);
	if (program->closed || !foresees || simulation->mode.hints == HB_HINTS_LEARNED)
		return 0;
	result = hb_service_arrivals_init(&program->bytes, program->tenant, seed, error);
	program->signs = !result;
	if (!result)
		hb_simulation_plan_bytes(simulation, program);
	return result;
}

int hb_program_init(struct hb_program *program, struct hb_simulation *simulation, const struct hb_sim_tenant *tenant,
		    uint32_t id, bool high, struct hb_error *error)
{
	*program = (struct hb_program){
		.tenant = tenant,
		.id = id,
		.high = high,
		.wake_ns = INT64_MAX,
		.hint_ns = INT64_MAX,
		.false_hint_ns = INT64_MAX,
		.bytes_ns = INT64_MAX,
		.launched_ns = -1,
		.served_ns = -1,
		.gated_since_ns = -1,
		.next_arrival_ns = INT64_MAX,
	};
	hb_gate_init(&program->gate);
	hb_rng_init(&program->hint_rng, simulation->options->seed, 1000 + id);
	hb_host_pace_init(&program->pace, simulation->options->host_noise, simulation->options->seed + id);
	int result = make_parts(program, simulation);
	if (result < 0)
		return result;
	result = open_streams(program, simulation);
	if (!result && simulation->mode.spatial)
		result = hb_simulation_open_spatial(simulation, program);
	if (!result && simulation->mode.foresight && high)
		result = hb_simulation_open_takeover(simulation, program);
	if (!result)
		result = open_arrivals(program, simulation, error);
	if (result < 0)
		return result;
	size_t n_intervals = high ? 0 : hb_intervals_count(simulation->options);
	program->busy_ns = n_intervals ? calloc(n_intervals, sizeof *program->busy_ns) : NULL;
	if (n_intervals && !program->busy_ns)
		return -ENOMEM;
	program->state = PROGRAM_WAITS_ARRIVAL;
	if (!program->closed)
		next_arrival(program, simulation);
	else
		program->next_arrival_ns = high ? simulation->options->lead_ns : 0;
	program->wake_ns = program->next_arrival_ns;
	return 0;
}

void hb_program_fini(struct hb_program *program)
{
	for (uint32_t i = 0; i < program->n_parts; i++) {
		hb_host_plan_fini(&program->parts[i].plan);
		free(program->parts[i].works);
	}
	hb_simulation_close_spatial(program);
	hb_simulation_close_takeover(program);
	free(program->latency_ns);
	free(program->end_ns);
	free(program->busy_ns);
	hb_service_arrivals_fini(&program->bytes);
	hb_service_arrivals_fini(&program->arrivals);
}

static const struct hb_iteration *iteration_of(const struct hb_program *program)
{
	return &program->workload->iterations[program->iteration];
}

static int64_t gap_ns(const struct hb_simulation *simulation, struct hb_program *program)
{
	int64_t gap = program->plan->gap_ns[iteration_of(program)->first_op + program->op];
	if (program->graph)
		gap = GRAPH_FIRST_NS;
	gap = hb_host_pace_stretch(&program->pace, simulation->now_ns, gap);
	if (program->op && simulation->mode.gate_depth && !program->high)
		gap += DEPTH_RECORD_NS;
	if (program->spatial && program->spatial->marks)
		gap += MARK_NS;
	return gap;
}

/* The time of a token counts from the end of the one before. */
static void take_arrival(struct hb_simulation *simulation, struct hb_program *program)
{
	program->arrival_ns = program->token ? program->last_end_ns : program->next_arrival_ns;
	if (program->token)
		return;
	if (!program->closed)
		next_arrival(program, simulation);
	else
		program->next_arrival_ns = INT64_MAX; /* closed loop: the next request arrives when this one ends */
}

static void begin_iteration(struct hb_simulation *simulation, struct hb_program *program)
{
	if (program->high && !program->token && program->phase != program->next_phase)
		enter_phase(program, program->next_phase);
	program->op = 0;
	program->state = PROGRAM_LAUNCHES;
	program->wake_ns = simulation->now_ns + gap_ns(simulation, program);
	if (!program->high) {
		if (program->iterations == 0)
			program->begun_ns = simulation->now_ns;
		return;
	}
	take_arrival(simulation, program);
	program->served_ns = simulation->now_ns;
	/* As in the daemon, HP is at work from its first call until its synchronize call returns. */
	hb_simulation_post_kind(simulation, program, HB_EVENT_BUSY);
	if (simulation->mode.reef)
		hb_simulation_reef_changed(simulation);
	hb_simulation_begin_calls(simulation, program);
}

static enum hb_class class_of_next(const struct hb_program *program)
{
	const char *name = program->works[iteration_of(program)->first_op + program->op].name;
	return name ? hb_kernel_class(name) : HB_CLASS_UNKNOWN;
}

/* Adds what was launched to the program's work of this interval. If the kernel is split, it adds a part only. */
static void note_busy(const struct hb_simulation *simulation, struct hb_program *program, uint32_t op,
		      const struct hb_gpu_model_work *launched)
{
	const struct hb_gpu_model_work *work = &program->works[op];
	double part = work->blocks ? (double)launched->blocks / (double)work->blocks : 1;
	size_t interval = program->busy_ns ? hb_interval_of(simulation->options, simulation->now_ns) : 0;
	if (program->busy_ns && interval < hb_intervals_count(simulation->options))
		program->busy_ns[interval] += part * (double)work->duration_ns;
}

static void submit(struct hb_simulation *simulation, struct hb_program *program)
{
	const struct hb_iteration *iteration = iteration_of(program);
	program->launched_ns = simulation->now_ns;
	program->launched_class = program->graph ? HB_CLASS_UNKNOWN : class_of_next(program);
	if (program->spatial)
		hb_simulation_spatial_launch(simulation, program);
	if (program->takeover)
		hb_simulation_takeover_launch(simulation, program);
	uint32_t op = iteration->first_op + program->op;
	uint64_t cookie = hb_cookie(program->id, op, program->mark);
	int result;
	if (program->graph) {
		result = hb_gpu_model_submit_graph(simulation->model, simulation->now_ns, program->stream,
						   &program->works[op], iteration->n_ops, cookie);
		for (uint32_t i = 0; i < iteration->n_ops; i++)
			note_busy(simulation, program, op + i, &program->works[op + i]);
		program->op = iteration->n_ops;
	} else {
		struct hb_gpu_model_work work = program->works[op];
		work.cookie = cookie;
		if (program->spatial && !program->high)
			hb_simulation_spatial_shape(simulation, program, &work);
		result = hb_gpu_model_submit(simulation->model, simulation->now_ns, program->stream, &work);
		note_busy(simulation, program, op, &work);
		program->op += !(program->spatial && program->spatial->blocks_done);
	}
	if (result < 0)
		simulation->failure = result;
	if (program->in_flight++ == 0 && !program->high)
		hb_simulation_post_kind(simulation, program, HB_EVENT_BUSY);
	if (program->op < iteration->n_ops) {
		program->state = PROGRAM_LAUNCHES;
		program->wake_ns = simulation->now_ns + gap_ns(simulation, program);
	} else {
		program->state = PROGRAM_ENTERS_SYNC;
		int64_t tail = program->graph ? 0 : program->plan->tail_ns[program->iteration];
		program->sync_from_ns = simulation->now_ns +
					hb_host_pace_stretch(&program->pace, simulation->now_ns, tail);
		program->wake_ns = program->sync_from_ns;
	}
}

static void wait_at_gate(struct hb_simulation *simulation, struct hb_program *program)
{
	if (program->state != PROGRAM_GATED)
		program->gated_since_ns = simulation->now_ns;
	program->state = PROGRAM_GATED;
	program->wake_ns = INT64_MAX;
	if (!program->posted_waiting) {
		program->posted_waiting = true;
		hb_simulation_post_kind(simulation, program, HB_EVENT_WAITING);
	}
}

/* Asks the rule of the program's mode whether it may launch now. */
static bool may_launch(struct hb_simulation *simulation, struct hb_program *program)
{
	if (program->spatial && !program->high && !hb_simulation_spatial_go(simulation, program))
		return false;
	if (simulation->mode.reef)
		return hb_simulation_reef_go(simulation, program);
	if (hb_gate_try(&program->gate) == HB_GATE_GO)
		return true;
	wait_at_gate(simulation, program);
	return false;
}

static void try_launch(struct hb_simulation *simulation, struct hb_program *program)
{
	if (!may_launch(simulation, program))
		return;
	if (program->gated_since_ns >= 0 && program->gated_since_ns < simulation->now_ns)
		hb_simulation_span(simulation, HB_SPAN_GATED, program->id, "gated", program->gated_since_ns,
				   simulation->now_ns);
	program->gated_since_ns = -1;
	submit(simulation, program);
}

static bool grow_latencies(struct hb_program *program)
{
	size_t capacity = program->latency_capacity ? 2 * program->latency_capacity : 1024;
	int64_t *latency_ns = realloc(program->latency_ns, capacity * sizeof *latency_ns);
	program->latency_ns = latency_ns ? latency_ns : program->latency_ns;
	int64_t *end_ns = realloc(program->end_ns, capacity * sizeof *end_ns);
	program->end_ns = end_ns ? end_ns : program->end_ns;
	if (latency_ns && end_ns)
		program->latency_capacity = capacity;
	return latency_ns && end_ns;
}

static void record_latency(struct hb_simulation *simulation, struct hb_program *program)
{
	if (program->n_latency == program->latency_capacity && !grow_latencies(program)) {
		simulation->failure = -ENOMEM;
		return;
	}
	program->end_ns[program->n_latency] = simulation->now_ns;
	program->latency_ns[program->n_latency++] = simulation->now_ns - program->arrival_ns;
}

/* A stated objective applies to the mean time of tokens (decide/token_pace.h), and else to each request. */
static void judge_latency(const struct hb_simulation *simulation, struct hb_program *program)
{
	int64_t slo_ns = program->tenant->slo_ns, now_ns = simulation->now_ns;
	struct hb_token_times times = {.took_ns = now_ns - program->served_ns};
	if (slo_ns <= 0)
		return;
	enum hb_pace pace = hb_token_pace_note(&program->token_pace, slo_ns, program->served_ns, now_ns, &times);
	if (pace == HB_PACE_BETWEEN)
		return;
	uint64_t n = pace == HB_PACE_WINDOW ? HB_PACE_TOKENS : 1;
	int64_t took_ns = pace == HB_PACE_WINDOW ? times.took_ns : now_ns - program->arrival_ns;
	program->judged += n;
	program->met += took_ns <= slo_ns ? n : 0;
}

/* Reports the request and the end of work to the core. */
static void post_request(struct hb_simulation *simulation, struct hb_program *program)
{
	struct hb_event event = {.kind = HB_EVENT_REQUEST_PAST};
	event.request_past.begin_ns = program->served_ns;
	event.request_past.end_ns = simulation->now_ns;
	if (program->spatial && hb_spatial_high_harm_ns(&program->spatial->high) >= 0) {
		event.request_past.measured = true;
		event.request_past.harm_ns = hb_spatial_high_harm_ns(&program->spatial->high);
	}
	if (program->spatial)
		event.request_past.kind = hb_spatial_high_kind(&program->spatial->high);
	hb_simulation_post(simulation, program, &event);
	hb_simulation_post_kind(simulation, program, HB_EVENT_IDLE);
}

/* The synchronize call returns: the iteration is over. */
static void end_iteration(struct hb_simulation *simulation, struct hb_program *program)
{
	program->iterations++;
	program->last_end_ns = simulation->now_ns;
	program->iteration = (program->iteration + 1) % program->workload->n_iterations;
	if (program->takeover)
		hb_simulation_takeover_idle(simulation, program);
	if (program->spatial && program->high)
		hb_simulation_spatial_end(simulation, program);
	else if (program->spatial)
		hb_simulation_spatial_idle(simulation, program);
	if (!program->high) {
		begin_iteration(simulation, program);
		return;
	}
	record_latency(simulation, program);
	judge_latency(simulation, program);
	hb_simulation_span(simulation, HB_SPAN_REQUEST, program->id, "request", program->arrival_ns,
			   simulation->now_ns);
	post_request(simulation, program);
	program->served_ns = -1;
	if (simulation->mode.reef)
		hb_simulation_reef_changed(simulation);
	if (++program->token < program->tokens) {
		program->state = PROGRAM_WAITS_TOKEN;
		program->wake_ns = simulation->now_ns + TOKEN_GAP_NS;
		return;
	}
	program->token = 0;
	if (program->closed)
		program->next_arrival_ns = simulation->now_ns < simulation->end_ns ? simulation->now_ns : INT64_MAX;
	program->state = PROGRAM_WAITS_ARRIVAL;
	program->wake_ns = program->next_arrival_ns;
	if (program->next_arrival_ns == INT64_MAX)
		program->state = PROGRAM_DONE;
	else if (program->wake_ns <= simulation->now_ns)
		begin_iteration(simulation, program);
}

static void return_from_sync(const struct hb_simulation *simulation, struct hb_program *program)
{
	program->wake_ns = simulation->now_ns + (int64_t)simulation->spec.sync_latency_ns;
}

static void enter_sync(struct hb_simulation *simulation, struct hb_program *program)
{
	program->state = PROGRAM_SYNCS;
	if (program->takeover)
		hb_simulation_takeover_wait(simulation, program);
	if (!program->in_flight)
		return_from_sync(simulation, program);
}

void hb_program_step(struct hb_simulation *simulation, struct hb_program *program)
{
	program->wake_ns = INT64_MAX;
	switch (program->state) {
	case PROGRAM_WAITS_ARRIVAL:
	case PROGRAM_WAITS_TOKEN:
		begin_iteration(simulation, program);
		break;
	case PROGRAM_LAUNCHES:
	case PROGRAM_GATED:
		try_launch(simulation, program);
		break;
	case PROGRAM_ENTERS_SYNC:
		enter_sync(simulation, program);
		break;
	case PROGRAM_SYNCS:
		end_iteration(simulation, program);
		break;
	case PROGRAM_DONE:
		break;
	}
}

static void note_drained(struct hb_simulation *simulation, struct hb_program *program)
{
	if (!program->draining || program->in_flight)
		return;
	program->draining = false;
	hb_simulation_post_kind(simulation, program, HB_EVENT_DRAINED);
}

void hb_program_completed(struct hb_simulation *simulation, struct hb_program *program,
			  const struct hb_gpu_model_completion *done)
{
	hb_gate_completed(&program->gate, 1);
	if (!program->high)
		hb_simulation_note_progress(simulation, program, hb_cookie_op(done->cookie));
	program->in_flight--;
	if (program->in_flight == 0 && !program->high)
		hb_simulation_post_kind(simulation, program, HB_EVENT_IDLE);
	if (simulation->mode.reef)
		hb_simulation_reef_changed(simulation);
	note_drained(simulation, program);
	if (program->spatial && !program->high)
		hb_simulation_spatial_marked(simulation, program, hb_cookie_mark(done->cookie));
	if (program->state == PROGRAM_SYNCS && program->in_flight == 0) {
		if (program->takeover)
			hb_simulation_takeover_drained(simulation, program);
		return_from_sync(simulation, program);
	} else if (program->state == PROGRAM_GATED && !program->spatial &&
		   hb_gate_state(&program->gate) == HB_GATE_OPEN) {
		program->wake_ns = simulation->now_ns + DEPTH_POLL_NS;
	}
}

void hb_program_gate_changed(struct hb_simulation *simulation, struct hb_program *program)
{
	program->posted_waiting = false;
	program->draining = hb_gate_state(&program->gate) == HB_GATE_CLOSED;
	if (program->state == PROGRAM_GATED && !program->draining &&
	    program->wake_ns > simulation->now_ns + GATE_WAKE_NS)
		program->wake_ns = simulation->now_ns + GATE_WAKE_NS;
	note_drained(simulation, program);
}
