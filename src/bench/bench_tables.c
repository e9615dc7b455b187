/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `hb bench` and how their texts are read; see bench_tables.h. */
#include "bench/bench_tables.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HB_BENCH_SUITE(name, rounds, real_s, simulated_s, sharing, help) \
	{name, rounds, real_s, simulated_s, sharing, help},
const struct hb_bench_suite hb_bench_suites[] = {
#include "bench/suites.def"
	{NULL, 0, 0, 0, NULL, NULL}};
#undef HB_BENCH_SUITE

#define HB_BENCH_PROGRAM(name, trace, simulated, real) {name, trace, simulated, real},
static const struct hb_bench_program programs[] = {
#include "bench/programs.def"
};
#undef HB_BENCH_PROGRAM

#define HB_BENCH_CASE(suite, name, high, low, kill) {suite, name, high, low, kill},
const struct hb_bench_case hb_bench_cases[] = {
#include "bench/cases.def"
	{NULL, NULL, NULL, NULL, false}};
#undef HB_BENCH_CASE

#define HB_BENCH_SHARING(name, class, mode, high, low, limit, engine, settings) \
	{name, HB_BENCH_##class, mode, HB_BENCH_##high, HB_BENCH_##low, limit, engine, settings},
const struct hb_bench_sharing hb_bench_sharings[] = {
#include "bench/sharing.def"
	{NULL, HB_BENCH_REFERENCE, NULL, HB_BENCH_NONE, HB_BENCH_NONE, 0, NULL, NULL}};
#undef HB_BENCH_SHARING

static const char *const class_names[] = {
	[HB_BENCH_REFERENCE] = "reference",
	[HB_BENCH_TEMPORAL] = "temporal",
	[HB_BENCH_SPATIAL] = "spatial",
	[HB_BENCH_ENGINE] = "engine",
};

const struct hb_bench_suite *hb_bench_suite_find(const char *name)
{
	for (const struct hb_bench_suite *suite = hb_bench_suites; suite->name; suite++)
		if (strcmp(suite->name, name) == 0)
			return suite;
	return NULL;
}

const struct hb_bench_sharing *hb_bench_sharing_find(const char *name)
{
	for (const struct hb_bench_sharing *sharing = hb_bench_sharings; sharing->name; sharing++)
		if (strcmp(sharing->name, name) == 0)
			return sharing;
	return NULL;
}

const char *hb_bench_class_name(enum hb_bench_class class)
{
	return class_names[class];
}

int hb_bench_class_parse(const char *name)
{
	for (size_t i = 0; i < sizeof class_names / sizeof *class_names; i++)
		if (strcmp(class_names[i], name) == 0)
			return (int)i;
	return -1;
}

static const struct hb_bench_program *program_find(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
		if (strlen(programs[i].name) == length && strncmp(programs[i].name, name, length) == 0)
			return &programs[i];
	return NULL;
}

static int row_error(const struct hb_bench_case *of, const char *text, struct hb_error *error)
{
	return hb_error_set(error, -EINVAL, "cases.def: %s/%s: '%.60s' is wrong", of->suite, of->name, text);
}

/* ARRIVALS of one service; `text` ends at `length`. */
static bool arrivals_parse(const char *text, size_t length, struct hb_bench_high *high)
{
	if (length >= sizeof high->arrivals)
		return false;
	memcpy(high->arrivals, text, length);
	high->arrivals[length] = '\0';
	if (strcmp(high->arrivals, "closed") == 0)
		return true;
	char *end;
	high->rate_per_s = strtod(high->arrivals, &end);
	static const char periodic[] = "/s:periodic";
	high->periodic = strncmp(end, periodic, sizeof periodic - 1) == 0;
	if (!high->periodic)
		return high->rate_per_s > 0 && strcmp(end, "/s") == 0;
	end += sizeof periodic - 1;
	if (*end == '=')
		high->phase = strtod(end + 1, &end);
	return high->rate_per_s > 0 && *end == '\0' && high->phase >= 0 && high->phase < 1;
}

static int high_parse(struct hb_bench_plan *plan, struct hb_error *error)
{
	for (const char *text = plan->of->high; *text;) {
		size_t length = strcspn(text, ",");
		size_t name = strcspn(text, "@,");
		struct hb_bench_high *high = &plan->high[plan->n_high];
		if (plan->n_high == HB_BENCH_TENANTS_MAX || name == length ||
		    !(high->program = program_find(text, name)) ||
		    !arrivals_parse(text + name + 1, length - name - 1, high))
			return row_error(plan->of, text, error);
		plan->n_high++;
		text += length + (text[length] == ',');
	}
	return 0;
}

static int low_parse(struct hb_bench_plan *plan, struct hb_error *error)
{
	for (const char *text = plan->of->low; *text;) {
		size_t length = strcspn(text, ",");
		const struct hb_bench_program *program = program_find(text, length);
		if (plan->n_low == HB_BENCH_TENANTS_MAX || !program)
			return row_error(plan->of, text, error);
		plan->low[plan->n_low++] = program;
		text += length + (text[length] == ',');
	}
	return 0;
}

/* Of a simulated GPU's two worlds the one that knows all programs; recordings first, they are whole programs. */
static void world_choose(struct hb_bench_plan *plan)
{
	const char *no_trace = NULL, *no_arguments = NULL;
	for (unsigned i = 0; i < plan->n_high + plan->n_low; i++) {
		const struct hb_bench_program *program = i < plan->n_high ? plan->high[i].program
									  : plan->low[i - plan->n_high];
		no_trace = *program->trace ? no_trace : program->name;
		no_arguments = *program->simulated ? no_arguments : program->name;
	}
	if (!plan->simulated || (no_trace && !no_arguments))
		plan->world = HB_BENCH_PROCESSES;
	else if (!no_trace && !plan->of->kill)
		plan->world = HB_BENCH_VIRTUAL;
	else
		snprintf(plan->skipped, sizeof plan->skipped, "there is no recorded trace of %s; it needs a real GPU",
			 no_trace);
}

int hb_bench_plan_make(const struct hb_bench_case *of, bool simulated, struct hb_bench_plan *plan,
		       struct hb_error *error)
{
	*plan = (struct hb_bench_plan){.of = of, .simulated = simulated};
	int result = high_parse(plan, error);
	result = result ? result : low_parse(plan, error);
	if (result == 0)
		world_choose(plan);
	return result;
}

void hb_bench_label(const struct hb_bench_plan *plan, const struct hb_bench_program *program,
		    char label[HB_BENCH_LABEL_MAX])
{
	const char *what = NULL;
	if (plan->world == HB_BENCH_VIRTUAL)
		what = program->trace;
	else if (plan->simulated && strcmp(program->real, program->simulated) != 0 &&
		 strcmp(program->real + strcspn(program->real, " ") + 1, program->simulated) != 0)
		what = program->simulated;
	if (what && strncmp(what, program->name, strcspn(what, ":")) != 0)
		snprintf(label, HB_BENCH_LABEL_MAX, "%s (as %s)", program->name, what);
	else
		snprintf(label, HB_BENCH_LABEL_MAX, "%s", program->name);
}

bool hb_bench_is_listed(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
			return true;
	return !list;
}

bool hb_bench_needs_python(const struct hb_bench_plan *plan, const struct hb_bench_program *program)
{
	return !plan->simulated && strncmp(program->real, "torch ", 6) == 0;
}

bool hb_bench_can(const struct hb_bench_plan *plan, const struct hb_bench_sharing *sharing)
{
	if (plan->world == HB_BENCH_VIRTUAL)
		return *sharing->virtual_mode;
	return plan->world == HB_BENCH_PROCESSES && sharing->high != HB_BENCH_NONE;
}
