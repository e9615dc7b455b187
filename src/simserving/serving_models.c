/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded programs as batches of any size; see serving_models.h. */
#include "simserving/serving_models.h"

#include "decide/kernel_class.h"
#include "sim/program.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shortest time of a kernel, however little work it has. */
#define KERNEL_LEAST_NS 2000.0
/* A grid of this many waves fills the GPU; with more work it takes longer. */
#define FULL_WAVES 0.9
/* Relative increase of time of a kernel with a fixed grid (limited by reading weights) for twice the recorded batch. */
#define FIXED_GRID_GROWTH 0.05

struct serving_model_row {
	bool usual;
	const char *name, *program;
	uint32_t first_op, n_ops, items_from;
	double programs_an_item;
	bool grows;
	double in_bytes, out_bytes;
	uint32_t max_items;
};

static const struct serving_model_row rows[] = {
#define HB_SERVING_TRACE(usual, name, program, first, n, from, per_item, grows, in, out, most, what) \
	{usual, name, program, first, n, from, per_item, grows, in, out, most},
#include "simserving/serving_models.def"
#undef HB_SERVING_TRACE
};

#define N_ROWS (sizeof rows / sizeof *rows)

/*
 * Scales a kernel to `ratio` times the recorded work. The time of a grid that
 * fills the GPU grows in proportion (with a lower limit). A smaller grid takes the
 * recorded time until it fills the GPU.
 */
static void scale_kernel(struct hb_gpu_model_work *work, const struct hb_gpu_spec *spec, double ratio, bool grows)
{
	double ns = (double)work->duration_ns;
	if (!grows) {
		work->duration_ns = (int64_t)(ns * (1 + FIXED_GRID_GROWTH * (ratio - 1)));
		return;
	}
	double wave = (double)hb_gpu_model_occupancy(spec, work) * spec->sm_count;
	double waves = (double)work->blocks / wave;
	if (waves < FULL_WAVES) {
		double filled = waves * ratio / FULL_WAVES;
		ns *= filled > 1 ? filled : 1;
	} else {
		double least = ns < KERNEL_LEAST_NS ? ns : KERNEL_LEAST_NS;
		ns = ns * ratio > least ? ns * ratio : least;
	}
	work->duration_ns = (int64_t)ns;
	work->blocks = (uint64_t)ceil((double)work->blocks * ratio);
	if (work->cluster > 1 && work->blocks % work->cluster)
		work->blocks += work->cluster - work->blocks % work->cluster;
}

/* Returns the share of the program's recorded time in matrix kernels. */
static double compute_matrix_share(const struct hb_workload *workload, const struct hb_trace_set *traces)
{
	double matrix = 0, busy = 0;
	for (uint32_t i = 0; i < workload->n_ops; i++) {
		const struct hb_op *op = &workload->ops[i];
		busy += (double)op->duration_ns;
		if (op->kind == HB_OP_KERNEL && hb_kernel_class(traces->names[op->name]) == HB_CLASS_COMPUTE)
			matrix += (double)op->duration_ns;
	}
	double alone = (double)workload->alone_ns * workload->n_iterations;
	return matrix / (alone > busy ? alone : busy);
}

static bool runs_on_sms(const struct hb_op *op)
{
	return op->kind != HB_OP_COPY_H2D && op->kind != HB_OP_COPY_D2H;
}

static int build_program(struct hb_serving_program *program, const struct serving_model_row *row, uint32_t items,
			 const struct hb_workload *workload, const struct hb_trace_set *traces,
			 const struct hb_gpu_spec *spec)
{
	const struct hb_iteration *iteration = &workload->iterations[0];
	uint32_t n = row->n_ops ? row->n_ops : iteration->n_ops - row->first_op;
	program->works = calloc(n, sizeof *program->works);
	if (!program->works)
		return -ENOMEM;
	double recorded_power = compute_matrix_share(workload, traces);
	for (uint32_t i = 0; i < n; i++) {
		const struct hb_op *op = &workload->ops[iteration->first_op + row->first_op + i];
		if (!runs_on_sms(op))
			continue;
		struct hb_gpu_model_work *work = &program->works[program->n++];
		hb_program_fill_work(work, traces, op);
		work->recorded_power = recorded_power;
		scale_kernel(work, spec, row->programs_an_item * items, row->grows);
	}
	return 0;
}

/* Computes the mean shares of SMs and memory bandwidth, weighted by time. */
static void compute_demands(const struct hb_serving_program *program, const struct hb_gpu_spec *spec, double *sm,
			    double *memory)
{
	double total = 0, sm_sum = 0, memory_sum = 0;
	for (size_t i = 0; i < program->n; i++) {
		const struct hb_gpu_model_work *work = &program->works[i];
		double ns = (double)work->duration_ns;
		double waves = (double)work->blocks / (hb_gpu_model_occupancy(spec, work) * spec->sm_count);
		total += ns;
		sm_sum += ns * (waves < 1 ? waves : 1);
		memory_sum += ns * work->memory_share;
	}
	*sm = total > 0 ? sm_sum / total : 0;
	*memory = total > 0 ? memory_sum / total : 0;
}

/* Returns the row of a model for a batch of `items`; NULL = none. */
static const struct serving_model_row *find_row(const char *name, uint32_t items)
{
	const struct serving_model_row *best = NULL;
	for (size_t i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].name, name) == 0 && rows[i].items_from <= items)
			best = &rows[i];
	return best;
}

static int check_row(const struct serving_model_row *row, const struct hb_trace_set *traces, struct hb_error *error)
{
	const struct hb_workload *workload = hb_trace_find(traces, row->program);
	if (!workload)
		return hb_error_set(error, -EINVAL, "model %s needs the program %s, which is not in the traces",
				    row->name, row->program);
	if (workload->iterations[0].n_ops < row->first_op + row->n_ops)
		return hb_error_set(error, -EINVAL, "model %s needs %u ops of the program %s, which has %u", row->name,
				    row->first_op + row->n_ops, row->program, workload->iterations[0].n_ops);
	return 0;
}

/*
 * Returns the row of a program, or *own if there is none: an item is then one iteration, and grids grow with the batch.
 */
static const struct serving_model_row *choose_row(const struct hb_serving_model_options *wanted, uint32_t items,
						  struct serving_model_row *own)
{
	const struct serving_model_row *found = find_row(wanted->program, items);
	*own = (struct serving_model_row){.name = wanted->name,
					  .program = wanted->program,
					  .programs_an_item = 1,
					  .grows = true,
					  .max_items = wanted->max_items ? wanted->max_items : 1};
	return found ? found : own;
}

static int build_programs(struct hb_serving_program *programs, const struct hb_serving_model_options *wanted,
			  uint32_t most, const struct hb_trace_set *traces, const struct hb_gpu_spec *spec,
			  struct hb_error *error)
{
	struct serving_model_row own;
	for (uint32_t items = 1; items <= most; items++) {
		const struct serving_model_row *from = choose_row(wanted, items, &own);
		int rc = check_row(from, traces, error);
		if (rc)
			return rc;
		rc = build_program(&programs[items], from, items, hb_trace_find(traces, from->program), traces, spec);
		if (rc)
			return hb_error_set(error, rc, "out of memory for model %s", wanted->name);
	}
	return 0;
}

static void free_programs(struct hb_serving_program *programs)
{
	for (uint32_t items = 0; items <= HB_SCHEDULER_BATCH_MAX; items++)
		free(programs[items].works);
}

/* Makes the model at `index`. A model that is stored there is overwritten, not freed. */
static int make_model(struct hb_serving_models *models, uint32_t index, const struct hb_serving_model_options *wanted,
		      const struct hb_trace_set *traces, const struct hb_gpu_spec *spec, struct hb_error *error)
{
	struct serving_model_row own;
	const struct serving_model_row *row = choose_row(wanted, 1, &own);
	uint32_t most = wanted->max_items ? wanted->max_items : row->max_items;
	if (index == HB_SCHEDULER_MODELS_MAX || most > HB_SCHEDULER_BATCH_MAX)
		return hb_error_set(error, -ENOSPC, "model %s: more than %d models, or batches of more than %d",
				    wanted->name, HB_SCHEDULER_MODELS_MAX, HB_SCHEDULER_BATCH_MAX);
	struct hb_scheduler_model *known = &models->known[index];
	struct hb_serving_program *programs = models->program[index];
	*known = (struct hb_scheduler_model){.max_items = most,
					     .in_bytes = wanted->in_bytes > 0 ? wanted->in_bytes : row->in_bytes,
					     .out_bytes = wanted->out_bytes > 0 ? wanted->out_bytes : row->out_bytes,
					     .run_guess_ns = 10e6};
	snprintf(known->name, sizeof known->name, "%s", wanted->name);
	memset(programs, 0, sizeof models->program[index]);
	int rc = build_programs(programs, wanted, most, traces, spec, error);
	if (rc) {
		free_programs(programs);
		return rc;
	}
	compute_demands(&programs[1], spec, &known->sm_demand[0], &known->memory_demand[0]);
	compute_demands(&programs[most], spec, &known->sm_demand[1], &known->memory_demand[1]);
	return 0;
}

int hb_serving_models_add(struct hb_serving_models *models, const struct hb_serving_model_options *wanted,
			  const struct hb_trace_set *traces, const struct hb_gpu_spec *spec, struct hb_error *error)
{
	int rc = make_model(models, models->n, wanted, traces, spec, error);
	return rc ? rc : (int)models->n++;
}

int hb_serving_models_replace(struct hb_serving_models *models, uint32_t number,
			      const struct hb_serving_model_options *wanted, const struct hb_trace_set *traces,
			      const struct hb_gpu_spec *spec, struct hb_error *error)
{
	struct hb_scheduler_model known = models->known[number];
	struct hb_serving_program programs[HB_SCHEDULER_BATCH_MAX + 1];
	memcpy(programs, models->program[number], sizeof programs);
	int rc = make_model(models, number, wanted, traces, spec, error);
	if (rc == 0) {
		free_programs(programs);
		return 0;
	}
	models->known[number] = known;
	memcpy(models->program[number], programs, sizeof programs);
	return rc;
}

bool hb_serving_model_known(const char *name)
{
	return find_row(name, 1) != NULL;
}

/* Returns whether the row's name is in the list `only`; without a list, whether it is one of the usual models. */
static bool is_wanted(const struct serving_model_row *row, const char *only)
{
	size_t length = strlen(row->name);
	if (!only)
		return row->usual;
	for (const char *at = only; *at; at += at[strcspn(at, ",")] ? strcspn(at, ",") + 1 : strlen(at))
		if (strcspn(at, ",") == length && memcmp(at, row->name, length) == 0)
			return true;
	return false;
}

int hb_serving_models_init(struct hb_serving_models *models, const char *only, const struct hb_trace_set *traces,
			   const struct hb_gpu_spec *spec, struct hb_error *error)
{
	memset(models, 0, sizeof *models);
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct hb_serving_model_options wanted = {.name = rows[i].name, .program = rows[i].name};
		bool another = i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0;
		int rc = another && is_wanted(&rows[i], only)
				 ? hb_serving_models_add(models, &wanted, traces, spec, error)
				 : 0;
		if (rc < 0) {
			hb_serving_models_fini(models);
			return rc;
		}
	}
	return 0;
}

void hb_serving_models_fini(struct hb_serving_models *models)
{
	for (uint32_t model = 0; model < models->n; model++)
		free_programs(models->program[model]);
	models->n = 0;
}
