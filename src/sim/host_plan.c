/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times between launches of a program, from the best source available:
 *
 *  1. host_us of the trace: launch times recorded without a profiler.
 *  2. The recorded GPU timeline. If the GPU was idle before a kernel, the distance of
 *     the two starts is the host's time, made longer by the profiler: the part
 *     PROFILER_SHARE of it is real (ResNet-50, Llama decode on an H200: 0.58 to
 *     0.66). If the GPU was busy, the host was ahead by an unknown time, and the gap
 *     is at most GAP_TYPICAL_NS, the time between launches of eager PyTorch.
 *
 * Then all gaps are multiplied by one factor so that an iteration alone takes the
 * measured time (alone_ns), if that is known and the host matters.
 */
#include "sim/host_plan.h"

#include <errno.h>
#include <stdlib.h>

#define PROFILER_SHARE 0.63
#define GAP_MIN_NS 3500
#define GAP_MAX_NS 40000
#define GAP_TYPICAL_NS 8000
#define FIRST_GAP_NS 35000 /* framework entry to the first launch: 22 to 70 us */
#define TAIL_NS 32000      /* last launch to the synchronize call: 28 to 36 us */
#define PACE_LASTS_NS 150e6
#define PACE_MOST 5.0 /* times the mean */
#define PACE_RNG_STREAM UINT64_C(0x70616365)
#define HOST_PACED_NS 1800 /* after a longer idle time the GPU was waiting for the host */

static int64_t clamp_ns(double value, int64_t low, int64_t high)
{
	return value < (double)low ? low : value > (double)high ? high : (int64_t)value;
}

static int64_t estimate_gap(const struct hb_op *before, const struct hb_op *op)
{
	int64_t distance = op->start_ns - before->start_ns;
	int64_t idle = distance - before->duration_ns;
	int64_t most = idle > HOST_PACED_NS ? GAP_MAX_NS : GAP_TYPICAL_NS;
	return clamp_ns(PROFILER_SHARE * (double)distance, GAP_MIN_NS, most);
}

static void fill_iteration(const struct hb_op *ops, uint32_t n_ops, int64_t *gap_ns)
{
	for (uint32_t i = 0; i < n_ops; i++) {
		int64_t before = i ? ops[i - 1].host_ns : 0;
		if (ops[i].host_ns > 0 && (i == 0 || before > 0) && ops[i].host_ns >= before)
			gap_ns[i] = ops[i].host_ns - before;
		else
			gap_ns[i] = i ? estimate_gap(&ops[i - 1], &ops[i]) : FIRST_GAP_NS;
	}
}

/* Duration of an iteration alone, with all host times multiplied by `scale`. */
static int64_t time_alone(const struct hb_workload *workload, uint32_t index, const struct hb_host_plan *plan,
			  const struct hb_gpu_spec *spec, double scale)
{
	const struct hb_iteration *iteration = &workload->iterations[index];
	double host = 0, end = 0;
	for (uint32_t i = 0; i < iteration->n_ops; i++) {
		uint32_t op = iteration->first_op + i;
		host += scale * (double)plan->gap_ns[op];
		double start = host + spec->launch_latency_ns;
		double queued = end + spec->boundary_ns;
		if (i && queued > start)
			start = queued;
		end = start + (double)workload->ops[op].duration_ns;
	}
	host += scale * (double)plan->tail_ns[index];
	return (int64_t)((host > end ? host : end) + spec->sync_latency_ns);
}

static int64_t mean_alone(const struct hb_workload *workload, const struct hb_host_plan *plan,
			  const struct hb_gpu_spec *spec, double scale)
{
	int64_t sum = 0;
	for (uint32_t i = 0; i < workload->n_iterations; i++)
		sum += time_alone(workload, i, plan, spec, scale);
	return sum / workload->n_iterations;
}

/* The factor that leads to alone_ns; 1 if the GPU and not the host sets the pace. */
static double find_scale(const struct hb_workload *workload, const struct hb_host_plan *plan,
			 const struct hb_gpu_spec *spec)
{
	double low = 0.25, high = 4;
	if (workload->alone_ns <= 0 || mean_alone(workload, plan, spec, low) > workload->alone_ns * 0.95 ||
	    mean_alone(workload, plan, spec, high) < workload->alone_ns)
		return 1;
	for (int step = 0; step < 40; step++) {
		double middle = (low + high) / 2;
		if (mean_alone(workload, plan, spec, middle) < workload->alone_ns)
			low = middle;
		else
			high = middle;
	}
	return (low + high) / 2;
}

int hb_host_plan_init(struct hb_host_plan *plan, const struct hb_workload *workload, const struct hb_gpu_spec *spec)
{
	plan->gap_ns = calloc(workload->n_ops, sizeof *plan->gap_ns);
	plan->tail_ns = calloc(workload->n_iterations, sizeof *plan->tail_ns);
	if (!plan->gap_ns || !plan->tail_ns) {
		hb_host_plan_fini(plan);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < workload->n_iterations; i++) {
		const struct hb_iteration *iteration = &workload->iterations[i];
		fill_iteration(&workload->ops[iteration->first_op], iteration->n_ops,
			       &plan->gap_ns[iteration->first_op]);
		plan->tail_ns[i] = TAIL_NS;
	}
	plan->scale = find_scale(workload, plan, spec);
	for (uint32_t op = 0; op < workload->n_ops; op++)
		plan->gap_ns[op] = (int64_t)((double)plan->gap_ns[op] * plan->scale);
	for (uint32_t i = 0; i < workload->n_iterations; i++)
		plan->tail_ns[i] = (int64_t)((double)plan->tail_ns[i] * plan->scale);
	return 0;
}

void hb_host_plan_fini(struct hb_host_plan *plan)
{
	free(plan->gap_ns);
	free(plan->tail_ns);
	plan->gap_ns = plan->tail_ns = NULL;
}

void hb_host_pace_init(struct hb_host_pace *pace, double noise, uint64_t seed)
{
	*pace = (struct hb_host_pace){.noise = noise, .factor = 1, .until_ns = noise > 0 ? 0 : INT64_MAX};
	hb_rng_init(&pace->rng, seed, PACE_RNG_STREAM);
}

int64_t hb_host_pace_stretch(struct hb_host_pace *pace, int64_t now_ns, int64_t gap_ns)
{
	while (pace->until_ns <= now_ns) {
		double more = hb_rng_exponential(&pace->rng, 1);
		pace->factor = 1 + pace->noise * (more < PACE_MOST ? more : PACE_MOST);
		pace->until_ns += 1 + (int64_t)hb_rng_exponential(&pace->rng, PACE_LASTS_NS);
	}
	return pace->factor > 1 ? (int64_t)((double)gap_ns * pace->factor) : gap_ns;
}
