/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a workload of a profiler's events: chooses the device, finds the
 * iterations, and estimates the time alone. The readers have checked single
 * values; this file orders the events and cuts them. See import_events.h.
 */
#include "trace/import_events.h"

#include "trace/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OUTSIDE UINT32_MAX
/* Limit for runtime calls and ranges; the builder limits the ops. */
#define EVENTS_MAX ((size_t)HB_TRACE_OPS_MAX * 4)
/* Largest time of a recording (127 years), so that no difference of two times overflows. */
#define CLOCK_MAX_NS INT64_C(4000000000000000000)

int hb_import_events_init(struct hb_import_events *events, struct hb_trace_set *set)
{
	*events = (struct hb_import_events){0};
	return hb_trace_builder_init(&events->builder, set);
}

void hb_import_events_fini(struct hb_import_events *events)
{
	hb_trace_builder_fini(&events->builder);
	free(events->ops);
	free(events->launches);
	free(events->ranges.at);
	free(events->gpu_ranges.at);
}

const char *hb_trace_column_name(enum hb_trace_column column)
{
	static const char *const names[] = {
#define HB_TRACE_COLUMN(id, name, required) name,
#include "trace/trace_columns.def"
#undef HB_TRACE_COLUMN
	};
	return names[column];
}

static bool is_on_clock(int64_t ns)
{
	return ns >= -CLOCK_MAX_NS && ns <= CLOCK_MAX_NS;
}

int hb_import_add_op(struct hb_import_events *events, const struct hb_op_values *values, const char *name,
		     uint64_t correlation, uint64_t group, struct hb_op_fault *fault)
{
	struct hb_op_values checked = *values;
	struct hb_event_op event = {.start_ns = values->start_ns, .correlation = correlation, .group = group};
	char clean[HB_TRACE_NAME_CUT + 1];
	if (is_on_clock(values->start_ns))
		checked.start_ns = 0; /* the recording's clock can start anywhere */
	/* Profilers that count in microseconds write 0 for the shortest ops. */
	if (checked.duration_ns == 0)
		checked.duration_ns = 1;
	int code = hb_op_from_values(&checked, &event.op, fault);
	if (code)
		return code;
	if (events->n_ops == HB_TRACE_OPS_MAX)
		return -E2BIG;
	hb_op_name_clean(name, clean);
	code = hb_trace_builder_name(&events->builder, clean, &event.op.name);
	struct hb_event_op *grown = code ? NULL : hb_grow(events->ops, events->n_ops, &events->ops_room, sizeof *grown);
	if (!grown)
		return code ? code : -ENOMEM;
	events->ops = grown;
	event.order = (uint32_t)events->n_ops;
	events->ops[events->n_ops++] = event;
	return 0;
}

int hb_import_add_launch(struct hb_import_events *events, uint64_t correlation, int64_t start_ns)
{
	if (events->n_launches == EVENTS_MAX)
		return -E2BIG;
	if (!is_on_clock(start_ns))
		return 0;
	struct hb_event_launch *grown = hb_grow(events->launches, events->n_launches, &events->launches_room,
						sizeof *grown);
	if (!grown)
		return -ENOMEM;
	events->launches = grown;
	events->launches[events->n_launches++] = (struct hb_event_launch){correlation, start_ns};
	return 0;
}

int hb_import_add_range(struct hb_import_events *events, bool on_gpu, int64_t start_ns, int64_t end_ns)
{
	struct hb_event_ranges *ranges = on_gpu ? &events->gpu_ranges : &events->ranges;
	if (ranges->n == EVENTS_MAX)
		return -E2BIG;
	if (!is_on_clock(start_ns) || !is_on_clock(end_ns))
		return 0;
	struct hb_event_range *grown = hb_grow(ranges->at, ranges->n, &ranges->room, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	ranges->at = grown;
	ranges->at[ranges->n++] = (struct hb_event_range){start_ns, end_ns};
	return 0;
}

static int compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int compare_launches(const void *left, const void *right)
{
	const struct hb_event_launch *a = left, *b = right;
	int by_id = (a->correlation > b->correlation) - (a->correlation < b->correlation);
	return by_id ? by_id : compare_numbers(a->start_ns, b->start_ns);
}

static int compare_ranges(const void *left, const void *right)
{
	const struct hb_event_range *a = left, *b = right;
	int by_start = compare_numbers(a->start_ns, b->start_ns);
	return by_start ? by_start : compare_numbers(a->end_ns, b->end_ns);
}

static int compare_ops(const void *left, const void *right)
{
	const struct hb_event_op *a = left, *b = right;
	int by = (a->iteration > b->iteration) - (a->iteration < b->iteration);
	if (!by)
		by = compare_numbers(a->start_ns, b->start_ns);
	return by ? by : compare_numbers(a->order, b->order);
}

static int compare_groups(const void *left, const void *right)
{
	const struct hb_event_op *a = left, *b = right;
	int by = (a->group > b->group) - (a->group < b->group);
	return by ? by : compare_numbers(a->order, b->order);
}

/* Keeps the ops of one device and process: the requested one, or the one with the most ops. */
static void keep_group(struct hb_import_events *events, int device, struct hb_import_report *report)
{
	size_t best = 0, best_count = 0, n = events->n_ops;
	qsort(events->ops, n, sizeof *events->ops, compare_groups);
	for (size_t from = 0, to = 0; from < n; from = to) {
		uint64_t group = events->ops[from].group;
		while (to < n && events->ops[to].group == group)
			to++;
		if (to - from <= best_count || (device >= 0 && HB_GROUP_DEVICE(group) != (uint32_t)device))
			continue;
		best = from;
		best_count = to - from;
	}
	if (best_count)
		memmove(events->ops, events->ops + best, best_count * sizeof *events->ops);
	events->n_ops = best_count;
	report->elsewhere = (uint32_t)(n - best_count);
}

static void find_launches(struct hb_import_events *events)
{
	if (events->n_launches)
		qsort(events->launches, events->n_launches, sizeof *events->launches, compare_launches);
	for (size_t i = 0; i < events->n_ops; i++) {
		struct hb_event_op *op = &events->ops[i];
		size_t low = 0, high = events->n_launches;
		while (low < high) {
			size_t middle = low + (high - low) / 2;
			if (events->launches[middle].correlation < op->correlation)
				low = middle + 1;
			else
				high = middle;
		}
		bool found = op->correlation && low < events->n_launches &&
			     events->launches[low].correlation == op->correlation;
		op->launch_ns = found ? events->launches[low].start_ns : HB_LAUNCH_UNKNOWN;
	}
}

/*
 * Assigns ops to ranges. An op belongs to the range in which it was launched, if the ranges are the host's and its
 * launch is known; else to the range in which it ran.
 */
static void split_by_ranges(struct hb_import_events *events, struct hb_event_ranges *ranges, bool on_gpu)
{
	qsort(ranges->at, ranges->n, sizeof *ranges->at, compare_ranges);
	for (size_t i = 0; i < events->n_ops; i++) {
		struct hb_event_op *op = &events->ops[i];
		int64_t when = on_gpu || op->launch_ns == HB_LAUNCH_UNKNOWN ? op->start_ns : op->launch_ns;
		size_t low = 0,
		       high = ranges->n; /* at the end of the search: behind the last range that had begun by that time */
		while (low < high) {
			size_t middle = low + (high - low) / 2;
			if (ranges->at[middle].start_ns <= when)
				low = middle + 1;
			else
				high = middle;
		}
		op->iteration = low && when < ranges->at[low - 1].end_ns ? (uint32_t)(low - 1) : OUTSIDE;
	}
}

static int64_t compute_end_ns(const struct hb_event_op *op)
{
	return op->start_ns + op->op.duration_ns;
}

static void split_by_gap(struct hb_import_events *events, int64_t gap_ns)
{
	uint32_t iteration = 0;
	int64_t busy_until = INT64_MAX;
	for (size_t i = 0; i < events->n_ops; i++) {
		struct hb_event_op *op = &events->ops[i];
		if (i && op->start_ns - busy_until >= gap_ns)
			iteration++;
		op->iteration = iteration;
		if (!i || compute_end_ns(op) > busy_until)
			busy_until = compute_end_ns(op);
	}
}

/* Returns whether the ops repeat the same `period` ops. */
static bool is_repeated(const struct hb_import_events *events, size_t period)
{
	for (size_t i = period; i < events->n_ops; i++) {
		const struct hb_op *op = &events->ops[i].op, *before = &events->ops[i - period].op;
		if (op->kind != before->kind || op->name != before->name || op->blocks != before->blocks)
			return false;
	}
	return true;
}

static int compare_gaps(const void *left, const void *right)
{
	const struct hb_event_range *a = left,
				    *b = right; /* here start_ns is the length of a gap and end_ns its place */
	int longest_first = compare_numbers(b->start_ns, a->start_ns);
	return longest_first ? longest_first : compare_numbers(a->end_ns, b->end_ns);
}

/* Cuts the ops into `count` iterations, at the count - 1 longest gaps. */
static int split_by_longest_gaps(struct hb_import_events *events, uint32_t count)
{
	struct hb_event_range *gaps = calloc(events->n_ops, sizeof *gaps);
	if (!gaps)
		return -ENOMEM;
	int64_t busy_until = compute_end_ns(&events->ops[0]);
	for (size_t i = 1; i < events->n_ops; i++) {
		gaps[i - 1] = (struct hb_event_range){events->ops[i].start_ns - busy_until, (int64_t)i};
		if (compute_end_ns(&events->ops[i]) > busy_until)
			busy_until = compute_end_ns(&events->ops[i]);
	}
	qsort(gaps, events->n_ops - 1, sizeof *gaps, compare_gaps);
	for (size_t i = 0; i < events->n_ops; i++)
		events->ops[i].iteration = 0;
	for (uint32_t i = 0; i + 1 < count; i++)
		events->ops[gaps[i].end_ns].iteration = 1;
	for (size_t i = 1; i < events->n_ops; i++)
		events->ops[i].iteration += events->ops[i - 1].iteration;
	free(gaps);
	return 0;
}

static int split_by_count(struct hb_import_events *events, uint32_t count, struct hb_import_report *report)
{
	size_t period = events->n_ops / count;
	if (events->n_ops % count || !is_repeated(events, period)) {
		report->split = "the longest gaps";
		return split_by_longest_gaps(events, count);
	}
	report->split = "repeating work";
	for (size_t i = 0; i < events->n_ops; i++)
		events->ops[i].iteration = (uint32_t)(i / period);
	return 0;
}

/* Gives every op its iteration and sorts by it. */
static int split_iterations(struct hb_import_events *events, const char *path, const struct hb_import_options *options,
			    struct hb_import_report *report, struct hb_error *error)
{
	int code = 0;
	bool on_gpu = !events->ranges.n;
	struct hb_event_ranges *ranges = on_gpu ? &events->gpu_ranges : &events->ranges;
	qsort(events->ops, events->n_ops, sizeof *events->ops, compare_ops);
	if (options->iterations > events->n_ops)
		return hb_error_set(error, -EINVAL, "%s: %zu ops cannot be %u iterations", path, events->n_ops,
				    options->iterations);
	if (options->split_gap_ns) {
		split_by_gap(events, options->split_gap_ns);
		report->split = "gaps";
	} else if (options->iterations) {
		code = split_by_count(events, options->iterations, report);
	} else if (ranges->n) {
		split_by_ranges(events, ranges, on_gpu);
		events->by_host_ranges = !on_gpu;
		report->split = options->range ? "ranges" : "the profiler's steps";
	} else if (options->range) {
		return hb_error_set(error, -EINVAL, "%s: no range is named '%.80s'", path, options->range);
	} else {
		report->split = "none found";
	}
	if (code)
		return hb_error_set(error, code, "%s: out of memory", path);
	qsort(events->ops, events->n_ops, sizeof *events->ops, compare_ops);
	size_t inside = events->n_ops;
	while (inside && events->ops[inside - 1].iteration == OUTSIDE)
		inside--;
	report->outside = (uint32_t)(events->n_ops - inside);
	events->n_ops = inside;
	return 0;
}

/*
 * Returns the time of one iteration from its first launch to the end of its work, less what the profiler added; 0 = not
 * known.
 */
static int64_t estimate_alone(const struct hb_import_events *events, const struct hb_event_op *ops, size_t n)
{
	int64_t launched = INT64_MAX, busy_until = ops[0].start_ns, busy_ns = 0, waits = 0;
	for (size_t i = 0; i < n; i++) {
		if (ops[i].launch_ns != HB_LAUNCH_UNKNOWN && ops[i].launch_ns < launched)
			launched = ops[i].launch_ns;
		int64_t from = ops[i].start_ns > busy_until ? ops[i].start_ns : busy_until;
		waits += i == 0 || ops[i].start_ns > busy_until;
		if (compute_end_ns(&ops[i]) <= busy_until)
			continue;
		busy_ns += compute_end_ns(&ops[i]) - from;
		busy_until = compute_end_ns(&ops[i]);
	}
	if (launched > ops[0].start_ns) /* the launch is not known, or it launched other work */
		return 0;
	int64_t alone_ns = busy_until - launched - waits * events->launch_overhead_ns;
	return alone_ns > busy_ns ? alone_ns : busy_ns;
}

static int compare_times(const void *left, const void *right)
{
	return compare_numbers(*(const int64_t *)left, *(const int64_t *)right);
}

/* Returns the median of the iterations' times; 0 when one of them is not known. */
static int64_t compute_median_alone(const struct hb_import_events *events, const struct hb_workload *workload)
{
	int64_t *times = calloc(workload->n_iterations, sizeof *times);
	if (!times)
		return 0;
	for (uint32_t i = 0; i < workload->n_iterations; i++)
		times[i] = estimate_alone(events, events->ops + workload->iterations[i].first_op,
					  workload->iterations[i].n_ops);
	qsort(times, workload->n_iterations, sizeof *times, compare_times);
	int64_t median = times[0] ? times[workload->n_iterations / 2] : 0;
	free(times);
	return median;
}

/*
 * Time from the iteration's start to the launch call of an op, less what the
 * profiler added to the launches before it; 0 = not known. `launches` counts the
 * launches; the kernels of a graph have one launch together.
 */
static int64_t compute_host_time(const struct hb_import_events *events, const struct hb_event_op *event,
				 int64_t launches)
{
	if (!events->by_host_ranges || event->launch_ns == HB_LAUNCH_UNKNOWN)
		return 0;
	int64_t since_ns = event->launch_ns - events->ranges.at[event->iteration].start_ns;
	int64_t host_ns = since_ns - launches * events->launch_overhead_ns;
	return host_ns > 0 && host_ns <= HB_TRACE_TIME_MAX_NS ? host_ns : 0;
}

/* Begins an iteration if the i-th op is its first one. */
static int enter_iteration(struct hb_import_events *events, size_t i, int64_t *base_ns, int64_t *launches)
{
	const struct hb_event_op *event = &events->ops[i];
	if (i && event->iteration == events->ops[i - 1].iteration) {
		*launches += event->launch_ns != events->ops[i - 1].launch_ns;
		return 0;
	}
	*base_ns = event->start_ns;
	*launches = 0;
	return hb_trace_builder_iteration(&events->builder);
}

static int build_workload(struct hb_import_events *events, const char *path, const char *name, struct hb_error *error)
{
	int code = hb_trace_builder_workload(&events->builder, name);
	if (code == -EEXIST)
		return hb_error_set(error, -EINVAL, "%s: there is a workload '%s' already", path, name);
	int64_t base_ns = 0, launches = 0;
	for (size_t i = 0; i < events->n_ops && !code; i++) {
		struct hb_event_op *event = &events->ops[i];
		code = enter_iteration(events, i, &base_ns, &launches);
		event->op.start_ns = event->start_ns - base_ns;
		event->op.host_ns = compute_host_time(events, event, launches);
		if (event->op.start_ns > HB_TRACE_TIME_MAX_NS)
			return hb_error_set(error, -EINVAL, "%s: an iteration is longer than a day", path);
		if (!code)
			code = hb_trace_builder_op(&events->builder, &event->op);
	}
	return code ? hb_error_set(error, code, "%s: out of memory", path) : 0;
}

static void set_alone(const struct hb_import_events *events, int64_t measured_ns, struct hb_import_report *report)
{
	struct hb_workload *workload = &events->builder.workloads[0];
	workload->alone_ns = measured_ns ? measured_ns : compute_median_alone(events, workload);
	if (workload->alone_ns > HB_TRACE_TIME_MAX_NS)
		workload->alone_ns = 0;
	report->alone_estimated = !measured_ns && workload->alone_ns;
	report->ops = workload->n_ops;
	report->iterations = workload->n_iterations;
}

static int report_nothing(const struct hb_import_events *events, const char *path,
			  const struct hb_import_options *options, const struct hb_import_report *report,
			  struct hb_error *error)
{
	if (report->outside)
		return hb_error_set(error, -EINVAL,
				    "%s: none of the %u ops is in a range; take --split-gap or --iterations", path,
				    report->outside);
	if (options->device >= 0 && report->elsewhere)
		return hb_error_set(error, -EINVAL, "%s: no kernels or copies on device %d", path, options->device);
	if (events->closed_graphs)
		return hb_error_set(error, -EINVAL,
				    "%s: CUDA graphs were recorded as a whole; record with --cuda-graph-trace=node",
				    path);
	return hb_error_set(error, -EINVAL, "%s: no kernels or copies in the recording: was CUDA activity recorded?",
			    path);
}

int hb_import_finish(struct hb_import_events *events, const char *path, const struct hb_import_options *options,
		     struct hb_import_report *report, struct hb_error *error)
{
	struct hb_import_report done = {.closed_graphs = events->closed_graphs};
	if (events->n_ops)
		keep_group(events, options->device, &done);
	find_launches(events);
	int code = events->n_ops ? split_iterations(events, path, options, &done, error) : 0;
	if (!code && !events->n_ops)
		code = report_nothing(events, path, options, &done, error);
	if (!code)
		code = build_workload(events, path, options->name, error);
	if (code)
		return code;
	set_alone(events, options->alone_ns, &done);
	if (hb_trace_builder_finish(&events->builder))
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	done.format = report->format;
	*report = done;
	return 0;
}
