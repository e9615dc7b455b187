/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads PyTorch profiler recordings (Kineto's Chrome trace, JSON or JSON in gzip):
 * kernels, copies and memsets with their shapes, the runtime calls that
 * launched them, and the profiler's step marks. Called by trace_import.c.
 */
#include "trace/import_events.h"
#include "trace/json_events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Time that the profiler adds to each launch for which the GPU waits: recorded
 * gaps against unprofiled latency of resnet50_b8 and llama8_decode_b8 (3.2 to 4.0 us
 * an op; data/traces/README.md, H200, PyTorch 2.11).
 */
#define LAUNCH_OVERHEAD_NS 3500

enum event_meaning { MEANS_KERNEL, MEANS_COPY, MEANS_MEMSET, MEANS_LAUNCH, MEANS_RANGE, MEANS_GPU_RANGE };

static const struct event_category {
	const char *name;
	enum event_meaning meaning;
} categories[] = {
	{"kernel", MEANS_KERNEL},
	{"gpu_memcpy", MEANS_COPY},
	{"gpu_memset", MEANS_MEMSET},
	{"cuda_runtime", MEANS_LAUNCH},
	{"cuda_driver", MEANS_LAUNCH},
	{"user_annotation", MEANS_RANGE},
	{"gpu_user_annotation", MEANS_GPU_RANGE},
	/* PyTorch 1.8 to 1.11 */
	{"Kernel", MEANS_KERNEL},
	{"Memcpy", MEANS_COPY},
	{"Memset", MEANS_MEMSET},
	{"Runtime", MEANS_LAUNCH},
};

struct kineto_reader {
	struct hb_json_events *json;
	struct hb_import_events *events;
	const char *range; /* NULL = use the profiler's steps */
};

static const char step_prefix[] = "ProfilerStep#";

static const struct event_category *find_category(const char *name)
{
	for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
		if (strcmp(categories[i].name, name) == 0)
			return &categories[i];
	return NULL;
}

__attribute__((format(printf, 4, 5))) static int bad(const struct kineto_reader *kineto, const char *name,
						     struct hb_error *error, const char *format, ...)
{
	char shown[HB_TRACE_NAME_CUT + 1], what[160];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	hb_op_name_clean(name, shown);
	return hb_json_events_error(kineto->json, error, -EINVAL, "event '%.60s': %s", shown, what);
}

/* Reads a member in microseconds. Integers are kept exactly, because epoch times in us need more digits than a double has. */
static bool read_time_member(const json_t *event, const char *key, int64_t *ns)
{
	const json_t *value = json_object_get(event, key);
	if (json_is_integer(value)) {
		if (__builtin_mul_overflow((int64_t)json_integer_value(value), 1000, ns))
			*ns = INT64_MAX;
		return true;
	}
	if (!json_is_real(value))
		return false;
	*ns = hb_ns_from_us(json_real_value(value));
	return true;
}

static int64_t read_whole_member(const json_t *arguments, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(arguments, key);
	return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

static bool read_extent_member(const json_t *arguments, const char *key, int64_t extent[3])
{
	const json_t *array = json_object_get(arguments, key);
	if (json_array_size(array) != 3)
		return false;
	for (size_t i = 0; i < 3; i++) {
		const json_t *value = json_array_get(array, i);
		if (!json_is_integer(value))
			return false;
		extent[i] = (int64_t)json_integer_value(value);
	}
	return true;
}

static int read_kernel_values(const struct kineto_reader *kineto, const char *name, const json_t *arguments,
			      struct hb_op_values *values, struct hb_error *error)
{
	values->kind = HB_OP_KERNEL;
	values->cluster = 1; /* Kineto does not record it */
	values->registers = read_whole_member(arguments, "registers per thread", 0);
	values->shared_bytes = read_whole_member(arguments, "shared memory", 0);
	if (!read_extent_member(arguments, "grid", values->grid))
		return bad(kineto, name, error, "'grid' is not three whole numbers");
	if (!read_extent_member(arguments, "block", values->block))
		return bad(kineto, name, error, "'block' is not three whole numbers");
	return 0;
}

static int add_op(struct kineto_reader *kineto, const json_t *event, const char *name, enum event_meaning meaning,
		  struct hb_error *error)
{
	struct hb_op_values values = {.kind = HB_OP_MEMSET};
	struct hb_op_fault fault;
	const json_t *arguments = json_object_get(event, "args");
	int code = 0;
	if (!read_time_member(event, "ts", &values.start_ns))
		return bad(kineto, name, error, "'ts' is not a number of microseconds");
	if (!read_time_member(event, "dur", &values.duration_ns))
		return bad(kineto, name, error, "'dur' is not a number of microseconds");
	if (meaning == MEANS_KERNEL)
		code = read_kernel_values(kineto, name, arguments, &values, error);
	else if (meaning == MEANS_COPY && !hb_copy_direction(name, &values.kind))
		return 0; /* host to host: no work of the GPU */
	else
		values.bytes = read_whole_member(arguments, "bytes", 0);
	if (code)
		return code;
	uint64_t correlation = (uint64_t)read_whole_member(arguments, "correlation", 0);
	code = hb_import_add_op(kineto->events, &values, name, correlation,
				HB_GROUP(0, read_whole_member(arguments, "device", 0)), &fault);
	if (code == -EINVAL)
		return bad(kineto, name, error, "its %s %s", hb_trace_column_name(fault.column), fault.why);
	if (code == -E2BIG)
		return hb_json_events_error(kineto->json, error, code,
					    "more ops or kernel names than a trace may hold");
	return code ? hb_json_events_error(kineto->json, error, code, "out of memory") : 0;
}

static int add_range(struct kineto_reader *kineto, const json_t *event, const char *name, bool on_gpu)
{
	int64_t start_ns, length_ns, end_ns;
	bool wanted = kineto->range ? strcmp(name, kineto->range) == 0
				    : strncmp(name, step_prefix, sizeof step_prefix - 1) == 0;
	if (!wanted || !read_time_member(event, "ts", &start_ns) || !read_time_member(event, "dur", &length_ns))
		return 0;
	if (length_ns < 0 || __builtin_add_overflow(start_ns, length_ns, &end_ns))
		return 0;
	return hb_import_add_range(kineto->events, on_gpu, start_ns, end_ns);
}

static int add_launch(struct kineto_reader *kineto, const json_t *event)
{
	int64_t start_ns;
	int64_t correlation = read_whole_member(json_object_get(event, "args"), "correlation", 0);
	if (!correlation || !read_time_member(event, "ts", &start_ns))
		return 0;
	return hb_import_add_launch(kineto->events, (uint64_t)correlation, start_ns);
}

static int add_event(struct kineto_reader *kineto, const json_t *event, struct hb_error *error)
{
	const char *category_name = json_string_value(json_object_get(event, "cat"));
	const char *name = json_string_value(json_object_get(event, "name"));
	const char *phase = json_string_value(json_object_get(event, "ph"));
	const struct event_category *category = category_name ? find_category(category_name) : NULL;
	if (!category || !name || !phase || strcmp(phase, "X") != 0)
		return 0;
	int code;
	switch (category->meaning) {
	case MEANS_LAUNCH:
		code = add_launch(kineto, event);
		break;
	case MEANS_RANGE:
	case MEANS_GPU_RANGE:
		code = add_range(kineto, event, name, category->meaning == MEANS_GPU_RANGE);
		break;
	default:
		return add_op(kineto, event, name, category->meaning, error);
	}
	if (code)
		hb_json_events_error(kineto->json, error, code, code == -E2BIG ? "too many events" : "out of memory");
	return code;
}

int hb_kineto_read(const char *path, const struct hb_import_options *options, struct hb_import_events *events,
		   struct hb_error *error)
{
	struct kineto_reader kineto = {.events = events, .range = options->range};
	int code = hb_json_events_open(path, &kineto.json, error);
	if (code)
		return code;
	events->launch_overhead_ns = LAUNCH_OVERHEAD_NS;
	json_t *event = NULL;
	while ((code = hb_json_events_next(kineto.json, &event, error)) > 0) {
		code = add_event(&kineto, event, error);
		json_decref(event);
		if (code)
			break;
	}
	hb_json_events_close(kineto.json);
	return code;
}
