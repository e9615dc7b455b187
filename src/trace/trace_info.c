/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a workload in numbers; see trace_info.h. */
#include "trace/trace_info.h"

#include "gpumodel/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const hb_wave_texts[HB_WAVE_CLASSES] = {
#define HB_WAVE_CLASS(id, key, waves, text) text,
#include "trace/wave_classes.def"
#undef HB_WAVE_CLASS
};

const char *const hb_wave_keys[HB_WAVE_CLASSES] = {
#define HB_WAVE_CLASS(id, key, waves, text) key,
#include "trace/wave_classes.def"
#undef HB_WAVE_CLASS
};

static const double wave_limits[HB_WAVE_CLASSES] = {
#define HB_WAVE_CLASS(id, key, waves, text) waves,
#include "trace/wave_classes.def"
#undef HB_WAVE_CLASS
};

static double compute_waves(const struct hb_op *op, const struct hb_gpu_spec *gpu)
{
	struct hb_gpu_model_work work = {
		.threads = op->threads,
		.registers = op->registers,
		.shared_bytes = op->shared_bytes,
	};
	return (double)op->blocks / (hb_gpu_model_occupancy(gpu, &work) * gpu->sm_count);
}

static void count_ops(const struct hb_workload *workload, const struct hb_gpu_spec *gpu, struct hb_workload_info *info)
{
	double kernel_ns = 0;
	for (uint32_t i = 0; i < workload->n_ops; i++) {
		const struct hb_op *op = &workload->ops[i];
		info->memsets += op->kind == HB_OP_MEMSET;
		info->copies += op->kind >= HB_OP_COPY_H2D;
		if (op->kind != HB_OP_KERNEL)
			continue;
		double waves = compute_waves(op, gpu);
		int class = 0;
		while (class + 1 < HB_WAVE_CLASSES && waves > wave_limits[class])
			class ++;
		info->wave_share[class] += (double)op->duration_ns;
		info->kernels++;
		kernel_ns += (double)op->duration_ns;
	}
	for (int class = 0; class < HB_WAVE_CLASSES && kernel_ns > 0; class ++)
		info->wave_share[class] /= kernel_ns;
	info->ops = workload->n_ops / (double)workload->n_iterations;
	info->kernels /= workload->n_iterations;
	info->memsets /= workload->n_iterations;
	info->copies /= workload->n_iterations;
}

static void add_iteration(const struct hb_workload *workload, const struct hb_iteration *iteration, int64_t *span_ns,
			  int64_t *busy_ns)
{
	int64_t until = 0;
	for (uint32_t i = 0; i < iteration->n_ops; i++) {
		const struct hb_op *op = &workload->ops[iteration->first_op + i];
		int64_t from = op->start_ns > until ? op->start_ns : until;
		int64_t end = op->start_ns + op->duration_ns;
		if (end <= until)
			continue;
		*busy_ns += end - from;
		until = end;
	}
	*span_ns += until;
}

static int compare_times(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
	return (a > b) - (a < b);
}

/* Returns the smallest duration that at least this share of the ops does not exceed. */
static double find_percentile_us(const int64_t *sorted_ns, uint32_t n, double share)
{
	uint32_t rank = (uint32_t)(share * n + 0.999999);
	return (double)sorted_ns[rank ? rank - 1 : 0] / 1e3;
}

static int measure_durations(const struct hb_workload *workload, struct hb_workload_info *info)
{
	int64_t *durations = malloc(workload->n_ops * sizeof *durations);
	if (!durations)
		return -ENOMEM;
	for (uint32_t i = 0; i < workload->n_ops; i++)
		durations[i] = workload->ops[i].duration_ns;
	qsort(durations, workload->n_ops, sizeof *durations, compare_times);
	info->p50_us = find_percentile_us(durations, workload->n_ops, 0.50);
	info->p90_us = find_percentile_us(durations, workload->n_ops, 0.90);
	info->p99_us = find_percentile_us(durations, workload->n_ops, 0.99);
	info->max_us = find_percentile_us(durations, workload->n_ops, 1);
	free(durations);
	return 0;
}

static int compare_shapes(const void *left, const void *right)
{
	const struct hb_op *a = *(const struct hb_op *const *)left, *b = *(const struct hb_op *const *)right;
	int by = memcmp(a->grid, b->grid, sizeof a->grid);
	return by ? by : memcmp(a->block, b->block, sizeof a->block);
}

/*
 * Compares kernels by shape. Kernels of one shape keep the order of the trace: their order in the array that they are
 * in.
 */
static int compare_kernels(const void *left, const void *right)
{
	int by = compare_shapes(left, right);
	const struct hb_op *a = *(const struct hb_op *const *)left, *b = *(const struct hb_op *const *)right;
	return by ? by : (a > b) - (a < b);
}

/* Puts a shape among the shown ones if it takes more time than one of them. */
static void show_shape(struct hb_workload_info *info, const struct hb_shape *shape)
{
	uint32_t at = info->n_shown;
	while (at && info->shapes[at - 1].share < shape->share)
		at--;
	if (at == HB_SHAPES_SHOWN)
		return;
	if (info->n_shown < HB_SHAPES_SHOWN)
		info->n_shown++;
	memmove(&info->shapes[at + 1], &info->shapes[at], (info->n_shown - at - 1) * sizeof *info->shapes);
	info->shapes[at] = *shape;
}

/* Groups kernels, which are sorted by shape; `share` holds a time until the sum is known. */
static void group_shapes(const struct hb_op *const *kernels, uint32_t n, const struct hb_gpu_spec *gpu,
			 struct hb_workload_info *info)
{
	double all = 0;
	for (uint32_t from = 0, to = 0; from < n; from = to) {
		struct hb_shape shape = {.waves = compute_waves(kernels[from], gpu)};
		memcpy(shape.grid, kernels[from]->grid, sizeof shape.grid);
		memcpy(shape.block, kernels[from]->block, sizeof shape.block);
		for (; to < n && compare_shapes(&kernels[from], &kernels[to]) == 0; to++) {
			shape.count++;
			shape.share += (double)kernels[to]->duration_ns;
		}
		all += shape.share;
		info->n_shapes++;
		show_shape(info, &shape);
	}
	for (uint32_t i = 0; i < info->n_shown; i++)
		info->shapes[i].share /= all;
}

static int find_shapes(const struct hb_workload *workload, const struct hb_gpu_spec *gpu, struct hb_workload_info *info)
{
	const struct hb_op **kernels = malloc(workload->n_ops * sizeof *kernels);
	uint32_t n = 0;
	if (!kernels)
		return -ENOMEM;
	for (uint32_t i = 0; i < workload->n_ops; i++)
		if (workload->ops[i].kind == HB_OP_KERNEL)
			kernels[n++] = &workload->ops[i];
	qsort(kernels, n, sizeof *kernels, compare_kernels);
	group_shapes(kernels, n, gpu, info);
	free(kernels);
	return 0;
}

static int measure_workload(const struct hb_workload *workload, const struct hb_gpu_spec *gpu,
			    struct hb_workload_info *info)
{
	int64_t span_ns = 0, busy_ns = 0;
	count_ops(workload, gpu, info);
	for (uint32_t i = 0; i < workload->n_iterations; i++)
		add_iteration(workload, &workload->iterations[i], &span_ns, &busy_ns);
	info->span_us = (double)span_ns / 1e3 / workload->n_iterations;
	info->busy_us = (double)busy_ns / 1e3 / workload->n_iterations;
	int code = measure_durations(workload, info);
	return code ? code : find_shapes(workload, gpu, info);
}

struct hb_workload_info *hb_trace_info_new(const struct hb_trace_set *set, const struct hb_gpu_spec *gpu)
{
	struct hb_workload_info *info = calloc(set->n_workloads, sizeof *info);
	int code = info ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < set->n_workloads && !code; i++)
		code = measure_workload(&set->workloads[i], gpu, &info[i]);
	if (!code)
		return info;
	free(info);
	return NULL;
}
