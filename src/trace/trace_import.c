/* SPDX-License-Identifier: Apache-2.0 */
/* Imports a recording: chooses the reader and joins what it has read; see trace_import.h. */
#include "trace/trace_import.h"

#include "trace/import_events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* SQLite files begin with their name; all other files go to the JSON reader. */
static enum hb_import_format guess_format(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	char head[sizeof magic] = "";
	FILE *file = fopen(path, "rbe");
	size_t got = file ? fread(head, 1, sizeof head, file) : 0;
	if (file)
		fclose(file);
	return got == sizeof magic && memcmp(head, magic, sizeof magic) == 0 ? HB_IMPORT_NSYS : HB_IMPORT_KINETO;
}

static int check_options(const struct hb_import_options *options, struct hb_error *error)
{
	const char *why = hb_workload_name_fault(options->name);
	if (why)
		return hb_error_set(error, -EINVAL, "workload name '%.80s' %s", options->name, why);
	if (!!options->range + !!options->split_gap_ns + !!options->iterations > 1)
		return hb_error_set(error, -EINVAL,
				    "iterations are found by a range, a gap or a count: give one of them");
	return 0;
}

int hb_trace_import(const char *path, const struct hb_import_options *options, struct hb_trace_set *set,
		    struct hb_import_report *report, struct hb_error *error)
{
	struct hb_import_events events;
	struct hb_import_report done = {.format = options->format};
	int code = check_options(options, error);
	if (code)
		return code;
	if (hb_import_events_init(&events, set))
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	if (done.format == HB_IMPORT_AUTO)
		done.format = guess_format(path);
	code = done.format == HB_IMPORT_NSYS ? hb_nsys_read(path, options, &events, error)
					     : hb_kineto_read(path, options, &events, error);
	if (!code)
		code = hb_import_finish(&events, path, options, &done, error);
	if (!code)
		*report = done;
	hb_import_events_fini(&events);
	return code;
}
