/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and checks the options of `hb sim`; see sim_options.h. Every message names the option and the value. The first
 * pass stores the options as texts. The second pass looks up programs and modes, after the traces have been read.
 */
#include "cli/sim_options.h"

#include "base/clock.h"
#include "base/nearest.h"
#include "base/parse_number.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/sim_phases.h"
#include "sim/sharing_modes.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "sim"
#define DEFAULT_TRACE "traces/h200-pytorch-2.11.csv.gz"
#define SECONDS_MAX 86400.0
#define LEAD_RECORDED_NS (700 * HB_NS_PER_MS)
#define SECONDS_MIN 1e-6
#define JOBS_MAX 256
#define WEIGHT_MAX 1000
/* Most spans that are kept. A request has hundreds of spans, a second of a busy GPU has tens of thousands. */
#define SPANS_MAX 1000000
#define WINDOW_DEFAULT_NS INT64_C(1000000000)
#define EVERY_LEAST_NS INT64_C(1000000)

/* The options: X(identifier, name, whether the option has a value). */
#define OPTIONS(X) \
	X(EVERY, "every", required_argument) \
	X(GPU, "gpu", required_argument) \
	X(HELP, "help", no_argument) \
	X(HIGH, "high", required_argument) \
	X(HOST_NOISE, "host-noise", required_argument) \
	X(JOBS, "jobs", required_argument) \
	X(JSON, "json", no_argument) \
	X(LATENCIES, "latencies", no_argument) \
	X(LEAD, "lead", required_argument) \
	X(LOW, "low", required_argument) \
	X(PLOT, "plot", required_argument) \
	X(PROGRESS, "progress", no_argument) \
	X(REPORT, "report", required_argument) \
	X(SECONDS, "seconds", required_argument) \
	X(SEED, "seed", required_argument) \
	X(SHARING, "sharing", required_argument) \
	X(TIMELINE, "timeline", required_argument) \
	X(TRACE, "trace", required_argument) \
	X(WINDOW, "window", required_argument)

#define IDENTIFIER(id, name, value) OPTION_##id,
#define GETOPT_ROW(id, name, value) {name, value, NULL, OPTION_##id},
enum { OPTION_NONE, OPTIONS(IDENTIFIER) };
static const struct option long_options[] = {OPTIONS(GETOPT_ROW){NULL, 0, NULL, 0}};

static int refuse_value(const char *option, const char *value, const char *why)
{
	return hb_cli_usage_error(COMMAND, "--%s %s: %s", option, value, why);
}

static int parse_seconds(const char *value, double *seconds)
{
	double number;
	if (!hb_number_parse(value, &number))
		return refuse_value("seconds", value, "not a number of seconds");
	if (!(number > 0))
		return refuse_value("seconds", value, "must be more than 0");
	if (number > SECONDS_MAX)
		return refuse_value("seconds", value, "more than a day (86400)");
	if (number < SECONDS_MIN)
		return refuse_value("seconds", value, "less than a microsecond");
	*seconds = number;
	return HB_EXIT_OK;
}

static int parse_noise(const char *value, double *noise)
{
	double percent;
	if (!hb_number_parse(value, &percent))
		return refuse_value("host-noise", value, "not a number of percent");
	if (!(percent >= 0 && percent <= 100))
		return refuse_value("host-noise", value, "must be between 0 and 100");
	*noise = percent / 100;
	return HB_EXIT_OK;
}

static int parse_lead(const char *value, int64_t *lead_ns)
{
	struct hb_error error;
	if (hb_duration_parse(value, lead_ns, &error))
		return refuse_value("lead", value, error.text);
	if (*lead_ns < 0 || *lead_ns > (int64_t)(SECONDS_MAX * 1e9))
		return refuse_value("lead", value, "must be between 0 and a day");
	return HB_EXIT_OK;
}

static int parse_whole_number(const char *option, const char *value, uint64_t max, uint64_t *number)
{
	char *end = NULL;
	errno = 0;
	unsigned long long parsed = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end)
		return refuse_value(option, value, "not a whole number");
	if (errno || parsed > max)
		return hb_cli_usage_error(COMMAND, "--%s %s: more than %llu", option, value, (unsigned long long)max);
	*number = parsed;
	return HB_EXIT_OK;
}

/* Parses FROM,TO: two times from the start of the run. */
static int parse_every(struct hb_sim_command *command, const char *value)
{
	struct hb_error error;
	if (hb_duration_parse(value, &command->run.interval_ns, &error))
		return refuse_value("every", value, error.text);
	if (command->run.interval_ns < EVERY_LEAST_NS)
		return refuse_value("every", value, "must be 1ms or more");
	return HB_EXIT_OK;
}

static int parse_window(struct hb_sim_command *command, const char *value)
{
	char from[64];
	const char *comma = strchr(value, ',');
	size_t length = comma ? (size_t)(comma - value) : 0;
	if (!comma || length >= sizeof from)
		return refuse_value("window", value, "give two times, for example 1s,1500ms");
	memcpy(from, value, length);
	from[length] = '\0';
	struct hb_error error;
	int64_t from_ns;
	int64_t to_ns;
	if (hb_duration_parse(from, &from_ns, &error) || hb_duration_parse(comma + 1, &to_ns, &error))
		return refuse_value("window", value, error.text);
	if (from_ns < 0 || to_ns <= from_ns)
		return refuse_value("window", value, "the second time must be later than the first");
	command->window_from_ns = from_ns;
	command->window_to_ns = to_ns;
	return HB_EXIT_OK;
}

static int add_spec(const char *option, const char **specs, uint32_t *n, const char *value)
{
	if (*n == HB_SIM_TENANTS_MAX)
		return hb_cli_usage_error(COMMAND, "--%s %s: more than %d programs", option, value, HB_SIM_TENANTS_MAX);
	specs[(*n)++] = value;
	return HB_EXIT_OK;
}

static int add_trace(struct hb_sim_command *command, const char *value)
{
	if (command->n_traces == HB_SIM_TRACES_MAX)
		return hb_cli_usage_error(COMMAND, "--trace %s: more than %d files", value, HB_SIM_TRACES_MAX);
	command->trace_paths[command->n_traces++] = value;
	return HB_EXIT_OK;
}

static int parse_jobs(struct hb_sim_command *command, const char *value)
{
	uint64_t jobs;
	if (parse_whole_number("jobs", value, JOBS_MAX, &jobs))
		return HB_EXIT_USAGE;
	if (jobs == 0)
		return refuse_value("jobs", value, "must be at least 1");
	command->jobs = (unsigned)jobs;
	return HB_EXIT_OK;
}

static int take_option(struct hb_sim_command *command, int option, char *value)
{
	uint64_t *seed = &command->run.seed;
	switch (option) {
	case OPTION_GPU:
		command->run.gpu = value;
		return HB_EXIT_OK;
	case OPTION_HELP:
		command->help = true;
		return HB_EXIT_OK;
	case OPTION_HIGH:
		return add_spec("high", command->high_specs, &command->run.n_high, value);
	case OPTION_HOST_NOISE:
		return parse_noise(value, &command->run.host_noise);
	case OPTION_JOBS:
		return parse_jobs(command, value);
	case OPTION_JSON:
		command->json = true;
		return HB_EXIT_OK;
	case OPTION_LATENCIES:
		command->latencies = true;
		return HB_EXIT_OK;
	case OPTION_LEAD:
		return parse_lead(value, &command->run.lead_ns);
	case OPTION_LOW:
		return add_spec("low", command->low_specs, &command->run.n_low, value);
	case OPTION_PLOT:
		return refuse_value(
			"plot", value,
			"was removed: write --report FILE.html, open the page and press 'save as SVG' beside the chart");
	case OPTION_PROGRESS:
		command->progress = true;
		return HB_EXIT_OK;
	case OPTION_REPORT:
		command->report_path = value;
		return HB_EXIT_OK;
	case OPTION_SECONDS:
		return parse_seconds(value, &command->run.seconds);
	/* The seed is also written as JSON, where jansson's integers are signed. */
	case OPTION_SEED:
		return parse_whole_number("seed", value, INT64_MAX, seed);
	case OPTION_SHARING:
		free(command->mode_list);
		command->mode_list = strdup(value);
		return HB_EXIT_OK;
	case OPTION_TIMELINE:
		command->timeline_path = value;
		return HB_EXIT_OK;
	case OPTION_TRACE:
		return add_trace(command, value);
	case OPTION_EVERY:
		return parse_every(command, value);
	case OPTION_WINDOW:
		return parse_window(command, value);
	default:
		return HB_EXIT_USAGE;
	}
}

static int take_options(struct hb_sim_command *command, int argc, char **argv)
{
	int option;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
		if (option == '?' || option == ':')
			return hb_cli_option_refused(COMMAND, long_options, argc, argv, option);
		int code = take_option(command, option == 'h' ? OPTION_HELP : option, optarg);
		if (code || command->help)
			return code;
	}
	if (optind < argc)
		return hb_cli_usage_error(COMMAND, "'%s': every argument belongs to an option", argv[optind]);
	return HB_EXIT_OK;
}

static int read_traces(struct hb_sim_command *command)
{
	char path[4096];
	struct hb_error error;
	int rc;
	if (command->n_traces == 0) {
		rc = hb_path_data(DEFAULT_TRACE, path, sizeof path, &error);
		rc = rc ? rc : hb_trace_read_csv(path, &command->traces, &error);
		return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
	}
	for (size_t i = 0; i < command->n_traces; i++) {
		rc = hb_trace_read_csv(command->trace_paths[i], &command->traces, &error);
		if (rc)
			return hb_cli_error(COMMAND, rc, error.text);
	}
	return HB_EXIT_OK;
}

static int refuse_workload(const struct hb_trace_set *set, const char *option, const char *spec, const char *name)
{
	char known[1024] = "";
	const char *names[256];
	size_t n = 0;
	size_t used = 0;
	for (uint32_t i = 0; i < set->n_workloads && n < 256; i++) {
		names[n++] = set->workloads[i].name;
		int written = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
				       set->workloads[i].name);
		used += (size_t)written < sizeof known - used ? (size_t)written : sizeof known - used - 1;
	}
	const char *nearest = hb_nearest(name, names, n);
	if (nearest)
		return hb_cli_usage_error(COMMAND,
					  "--%s %s: no workload '%s' in the traces; did you mean '%s'? known: %s",
					  option, spec, name, nearest, known);
	return hb_cli_usage_error(COMMAND, "--%s %s: no workload '%s' in the traces; known: %s", option, spec, name,
				  known);
}

static int find_workload(const struct hb_sim_command *command, const char *option, const char *spec, const char *name,
			 const struct hb_workload **workload)
{
	*workload = hb_trace_find(&command->traces, name);
	return *workload ? HB_EXIT_OK : refuse_workload(&command->traces, option, spec, name);
}

/* A number of LP's options; `unit` follows it. */
struct low_option {
	const char *begin, *unit;
	unsigned long most;
	uint32_t *number;
};

static bool parse_low_option(const char **text, const struct low_option *option)
{
	char *end;
	const char *digits = *text + strlen(option->begin);
	unsigned long number = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : 0;
	if (!number || number > option->most || strncmp(end, option->unit, strlen(option->unit)) != 0)
		return false;
	*option->number = (uint32_t)number;
	*text = end + strlen(option->unit);
	return true;
}

/* Reads ",weight=N", ",pcie-weight=N" and ",host=N%". */
static bool parse_low_options(const char *text, struct hb_sim_tenant *tenant)
{
	const struct low_option options[] = {{",weight=", "", WEIGHT_MAX, &tenant->weight},
					     {",pcie-weight=", "", WEIGHT_MAX, &tenant->copy_weight},
					     {",host=", "%", 100, &tenant->host_percent}};
	while (*text == ',') {
		size_t i = 0;
		while (i < 3 && strncmp(text, options[i].begin, strlen(options[i].begin)) != 0)
			i++;
		if (i == 3 || !parse_low_option(&text, &options[i]))
			return false;
	}
	return !*text;
}

/* Parses NAME[:graph][,weight=N][,host=N%] of an LP program. */
static int resolve_low(const struct hb_sim_command *command, const char *spec, struct hb_sim_tenant *tenant)
{
	char text[sizeof tenant->label];
	struct hb_sim_phase_text phase = {0};
	struct hb_error error;
	const char *comma = strchr(spec, ',');
	size_t length = comma ? (size_t)(comma - spec) : strlen(spec);
	if (strchr(spec, '@'))
		return refuse_value("low", spec, "a low-priority program runs without pause; '@' belongs to --high");
	if (comma && !parse_low_options(comma, tenant))
		return refuse_value(
			"low", spec,
			"after the name only ',weight=N' and ',pcie-weight=N' are known, with N from 1 to 1000, and ',host=N%', with N from 1 to 100");
	if (length >= sizeof text)
		return refuse_value("low", spec, "the name is too long");
	memcpy(text, spec, length);
	text[length] = '\0';
	memcpy(tenant->label, text, length + 1);
	if (hb_sim_name_parse(text, &phase, &error))
		return refuse_value("low", spec, error.text);
	if (phase.tokens)
		return refuse_value("low", spec, "':tokens=' belongs to --high");
	tenant->graph = phase.graph;
	return find_workload(command, "low", spec, phase.name, &tenant->workload);
}

static int parse_slo(const char *spec, const char *text, int64_t *slo_ns)
{
	struct hb_error error;
	if (strcmp(text, "auto") == 0) {
		*slo_ns = -1;
		return HB_EXIT_OK;
	}
	if (strcmp(text, "none") == 0) {
		*slo_ns = 0;
		return HB_EXIT_OK;
	}
	if (hb_duration_parse(text, slo_ns, &error))
		return hb_cli_usage_error(COMMAND, "--high %s: slo is auto, none or a time: %s", spec, error.text);
	if (*slo_ns <= 0)
		return refuse_value("high", spec, "the slo must be more than 0");
	return HB_EXIT_OK;
}

static int check_arrivals(const struct hb_sim_command *command, const char *spec, const char *text)
{
	struct hb_error error;
	struct hb_arrivals *arrivals = NULL;
	int rc = hb_arrivals_new(text, command->run.seed, &arrivals, &error);
	hb_arrivals_free(arrivals);
	if (rc == -EINVAL)
		return hb_cli_usage_error(COMMAND, "--high %s: %s", spec, error.text);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}

static int resolve_phases(const struct hb_sim_command *command, const char *spec, const struct hb_sim_phase_text *texts,
			  uint32_t n, struct hb_sim_tenant *tenant)
{
	for (uint32_t i = 0; i < n; i++) {
		struct hb_sim_phase phase = {.graph = texts[i].graph,
					     .arrivals = texts[i].arrivals,
					     .tokens = texts[i].tokens,
					     .from_ns = texts[i].from_ns};
		int code = find_workload(command, "high", spec, texts[i].name, &phase.workload);
		if (!code)
			code = check_arrivals(command, spec, phase.arrivals);
		if (code)
			return code;
		if (i) {
			tenant->later[i - 1] = phase;
			continue;
		}
		tenant->workload = phase.workload;
		tenant->graph = phase.graph;
		tenant->arrivals = phase.arrivals;
		tenant->tokens = phase.tokens;
	}
	tenant->n_later = n - 1;
	return HB_EXIT_OK;
}

/* Parses PHASE[;PHASE...][,slo=SLO] with the phases of sim_phases.h; ARRIVALS may contain commas. */
static int resolve_high(struct hb_sim_command *command, uint32_t index)
{
	const char *spec = command->high_specs[index];
	struct hb_sim_tenant *tenant = &command->run.high[index];
	struct hb_sim_phase_text texts[HB_SIM_PHASES_MAX];
	struct hb_error error;
	const char *slo = strstr(spec, ",slo=");
	size_t length = slo ? (size_t)(slo - spec) : strlen(spec);
	const char *at = strchr(spec, '@');
	size_t name = at ? (size_t)(at - spec) : length;
	if (name >= sizeof tenant->label)
		return refuse_value("high", spec, "the name is too long");
	command->phases[index] = strndup(spec, length);
	if (!command->phases[index])
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	int n = hb_sim_phases_parse(command->phases[index], texts, &error);
	if (n < 0)
		return refuse_value("high", spec, error.text);
	snprintf(tenant->label, sizeof tenant->label, "%.*s%s", (int)name, spec, n > 1 ? "..." : "");
	tenant->slo_ns = -1;
	int code = slo ? parse_slo(spec, slo + strlen(",slo="), &tenant->slo_ns) : HB_EXIT_OK;
	return code ? code : resolve_phases(command, spec, texts, (uint32_t)n, tenant);
}

static int resolve_programs(struct hb_sim_command *command)
{
	int code = HB_EXIT_OK;
	if (command->run.n_high + command->run.n_low == 0)
		return hb_cli_usage_error(COMMAND,
					  "no program is given; give --high NAME@ARRIVALS, --low NAME or both");
	for (uint32_t i = 0; i < command->run.n_high && !code; i++)
		code = resolve_high(command, i);
	for (uint32_t i = 0; i < command->run.n_low && !code; i++)
		code = resolve_low(command, command->low_specs[i], &command->run.low[i]);
	return code;
}

/*
 * Chooses the default of --lead. Recorded arrivals come from co-location experiments, in which the low-priority program
 * runs, and is measured, before the first request arrives: by LEAD_RECORDED_NS in the recorded runs of data/traces.
 * Generated arrivals need no lead.
 */
static void resolve_lead(struct hb_sim_command *command)
{
	if (command->run.lead_ns >= 0)
		return;
	command->run.lead_ns = 0;
	for (uint32_t i = 0; i < command->run.n_high && command->run.n_low; i++)
		if (strncmp(command->run.high[i].arrivals, "file:", 5) == 0)
			command->run.lead_ns = LEAD_RECORDED_NS;
}

static int add_mode(struct hb_sim_command *command, const char *name)
{
	struct hb_mode mode;
	struct hb_error error;
	if (!*name)
		return hb_cli_usage_error(COMMAND, "--sharing: the name of a mode is missing");
	if (hb_mode_parse(name, &mode, &error))
		return hb_cli_usage_error(COMMAND, "--sharing %s: %s", name, error.text);
	for (size_t i = 0; i < command->n_modes; i++)
		if (strcmp(command->modes[i], name) == 0)
			return refuse_value("sharing", name, "given twice");
	if (command->n_modes == HB_SIM_RESULTS_MAX)
		return refuse_value("sharing", name, "too many modes");
	command->modes[command->n_modes++] = name;
	return HB_EXIT_OK;
}

static int resolve_modes(struct hb_sim_command *command)
{
	int code = HB_EXIT_OK;
	if (!command->mode_list || strcmp(command->mode_list, "all") == 0) {
		for (const char *const *name = hb_modes_all; *name && !code; name++)
			code = add_mode(command, *name);
		return code;
	}
	/* strsep() returns an empty name between two commas, which is an error; strtok() would skip the name. */
	char *rest = command->mode_list;
	for (char *name; (name = strsep(&rest, ",")) && !code;)
		code = add_mode(command, name);
	return code;
}

/* Chooses the part of the run whose spans are kept. Spans cost memory, so none are kept when no output shows them. */
static int resolve_window(struct hb_sim_command *command)
{
	int64_t run_ns = command->run.lead_ns + (int64_t)(command->run.seconds * 1e9);
	if (command->timeline_path && command->n_modes > 1)
		return hb_cli_usage_error(COMMAND,
					  "--timeline %s: a timeline shows one sharing mode; choose it with --sharing",
					  command->timeline_path);
	if (!command->timeline_path && !command->report_path)
		return HB_EXIT_OK;
	int64_t from_ns = command->window_from_ns;
	int64_t to_ns = command->window_to_ns;
	if (from_ns < 0) {
		from_ns = run_ns / 4;
		to_ns = from_ns + WINDOW_DEFAULT_NS < run_ns ? from_ns + WINDOW_DEFAULT_NS : run_ns;
	}
	if (from_ns >= run_ns)
		return hb_cli_usage_error(COMMAND, "--window: begins after the run of %g s has ended",
					  (double)run_ns / 1e9);
	command->run.spans_from_ns = from_ns;
	command->run.spans_to_ns = to_ns;
	command->run.spans_max = SPANS_MAX;
	return HB_EXIT_OK;
}

static void set_defaults(struct hb_sim_command *command)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	*command = (struct hb_sim_command){
		.run = {.gpu = "h200", .seconds = 20, .seed = 1, .lead_ns = -1},
		.window_from_ns = -1,
		.window_to_ns = -1,
		.jobs = cpus < 1          ? 1
			: cpus > JOBS_MAX ? JOBS_MAX
					  : (unsigned)cpus,
	};
}

int hb_sim_command_parse(struct hb_sim_command *command, int argc, char **argv)
{
	set_defaults(command);
	int code = take_options(command, argc, argv);
	if (code || command->help)
		return code;
	if ((code = resolve_modes(command)) || (code = read_traces(command)) || (code = resolve_programs(command)))
		return code;
	command->run.traces = &command->traces;
	resolve_lead(command);
	return resolve_window(command);
}

void hb_sim_command_fini(struct hb_sim_command *command)
{
	for (size_t i = 0; i < HB_SIM_TENANTS_MAX; i++)
		free(command->phases[i]);
	free(command->mode_list);
	hb_trace_set_fini(&command->traces);
}
