/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results as JSON, out and in; keys are described in docs/bench.md. Latencies of
 * a round are one text of numbers, so that files stay small and one line long
 * each. "summary" objects are for readers; they are computed anew when a file is read.
 */
#include "base/json.h"
#include "bench/bench_output.h"
#include "bench/bench_overall.h"
#include "trace/text_input.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

/* --- out ------------------------------------------------------------------------------------------ */

/* Cut to six decimals, so that no digit depends on how it was summed. */
static json_t *number(double value)
{
	return isfinite(value) ? json_real(round(value * 1e6) / 1e6) : json_null();
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *estimate(const struct hb_bench_estimate *of)
{
	json_t *list = json_array();
	json_array_append_new(list, number(of->value));
	json_array_append_new(list, number(of->low));
	json_array_append_new(list, number(of->high));
	return list;
}

static json_t *latencies_text(const struct hb_bench_latencies *latencies)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	for (size_t i = 0; i < latencies->n; i++)
		fprintf(out, "%s%lld", i ? " " : "", (long long)latencies->ns[i]);
	json_t *string = fclose(out) == 0 ? json_string(text) : NULL;
	free(text);
	return string;
}

static json_t *high_pack(const struct hb_bench_latencies *rounds, unsigned n,
			 const struct hb_bench_high_summary *summary, struct hb_error *error)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, hb_json_pack(error, "{s:I, s:o}", "seen", (json_int_t)rounds[i].seen,
							 "latency_ns", latencies_text(&rounds[i])));
	return hb_json_pack(error, "{s:{s:I, s:o, s:o, s:o, s:o}, s:o}", "summary", "seen", (json_int_t)summary->seen,
			    "p50_us", estimate(&summary->p50_us), "p99_us", estimate(&summary->p99_us), "max_us",
			    number(summary->max_us), "attainment", estimate(&summary->attainment), "rounds", list);
}

static json_t *low_pack(const double *rounds, unsigned n, const struct hb_bench_low_summary *summary,
			struct hb_error *error)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, number(rounds[i]));
	return hb_json_pack(error, "{s:{s:o, s:o}, s:o}", "summary", "per_s", number(summary->per_s), "of_alone",
			    estimate(&summary->relative), "rounds_per_s", list);
}

static json_t *cell_pack(const struct hb_bench_outcome *outcome, unsigned index, unsigned rounds,
			 const struct hb_bench_cell_summary *summary, struct hb_error *error)
{
	const struct hb_bench_cell *cell = &outcome->cells[index];
	json_t *high = json_array(), *low = json_array();
	for (unsigned i = 0; i < outcome->n_high; i++)
		json_array_append_new(high, high_pack(cell->high[i], rounds, &summary->high[i], error));
	for (unsigned i = 0; i < outcome->n_low; i++)
		json_array_append_new(low, low_pack(cell->low_per_s[i], rounds, &summary->low[i], error));
	return hb_json_pack(error, "{s:s, s:s, s:I, s:o, s:o}", "name", cell->sharing, "class",
			    hb_bench_class_name(cell->class), "clock_error_ns", (json_int_t)cell->clock_error_ns,
			    "high", high, "low", low);
}

static json_t *headline_pack(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			     struct hb_error *error)
{
	struct hb_bench_headline line;
	hb_bench_headline_of(outcome, summary, &line);
	if (line.ours < 0 || !outcome->n_low)
		return json_null();
	const char *spatial = line.spatial < 0 ? "" : outcome->cells[line.spatial].sharing;
	const char *temporal = line.temporal < 0 ? "" : outcome->cells[line.temporal].sharing;
	return hb_json_pack(error, "{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "engine", outcome->cells[line.ours].sharing,
			    "spatial", text_or_null(spatial), "attainment_of_spatial", number(line.against_spatial),
			    "temporal", text_or_null(temporal), "attainment_of_temporal", number(line.against_temporal),
			    "attainment_below_exclusive", number(line.drop), "low_of_temporal",
			    number(line.low_against_temporal));
}

static json_t *programs_pack(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary, bool high,
			     struct hb_error *error)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < (high ? outcome->n_high : outcome->n_low); i++) {
		if (!high) {
			json_array_append_new(list, json_string(outcome->low[i]));
			continue;
		}
		double slo_us = summary->slo_ns[i] ? (double)summary->slo_ns[i] / 1e3 : NAN;
		json_array_append_new(list, hb_json_pack(error, "{s:s, s:s, s:o}", "program", outcome->high[i],
							 "arrivals", outcome->arrivals[i], "slo_us", number(slo_us)));
	}
	return list;
}

static json_t *dropped_pack(const struct hb_bench_outcome *outcome, struct hb_error *error)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < outcome->n_dropped; i++)
		json_array_append_new(list, hb_json_pack(error, "{s:s, s:s}", "name", outcome->dropped[i].sharing,
							 "why", outcome->dropped[i].why));
	return list;
}

static json_t *case_pack(const struct hb_bench_outcome *outcome, unsigned rounds, struct hb_error *error)
{
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	if (!summary || hb_bench_summary_init(summary, outcome, rounds)) {
		free(summary);
		hb_error_format(error, "out of memory");
		return NULL;
	}
	json_t *cells = json_array();
	for (unsigned i = 0; i < outcome->n_cells; i++)
		json_array_append_new(cells, cell_pack(outcome, i, rounds, &summary->cells[i], error));
	bool shown = cells && json_array_size(cells) == outcome->n_cells;
	json_t *packed = hb_json_pack(
		error, "{s:s, s:s, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o}", "name", outcome->name, "world",
		outcome->world, "skipped", text_or_null(outcome->skipped), "failed", text_or_null(outcome->failed),
		"unfinished", text_or_null(outcome->unfinished), "rounds", (int)outcome->rounds, "high",
		programs_pack(outcome, summary, true, error), "low", programs_pack(outcome, summary, false, error),
		"headline", headline_pack(outcome, summary, error), "dropped", dropped_pack(outcome, error), "sharing",
		cells);
	hb_bench_summary_fini(summary);
	free(summary);
	if (shown)
		return packed;
	json_decref(packed);
	return NULL;
}

static json_t *overall_row_pack(const struct hb_bench_overall_row *row, struct hb_error *error)
{
	return hb_json_pack(error, "{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", row->sharing, "cases",
			    (int)row->cases, "attainment", number(row->attainment), "least", number(row->least),
			    "attainment_below_exclusive", number(row->drop), "attainment_of_spatial",
			    number(row->against_spatial), "attainment_of_temporal", number(row->against_temporal),
			    "low_of_alone", number(row->low), "low_of_temporal", number(row->low_against_temporal));
}

static json_t *overall_pack(const struct hb_bench_result *result, struct hb_error *error)
{
	struct hb_bench_overall overall;
	if (hb_bench_overall_init(&overall, result))
		return NULL;
	json_t *rows = json_array();
	for (unsigned i = 0; i < overall.n; i++)
		json_array_append_new(rows, overall_row_pack(&overall.rows[i], error));
	const char *spatial = overall.spatial < 0 ? "" : overall.rows[overall.spatial].sharing;
	const char *temporal = overall.temporal < 0 ? "" : overall.rows[overall.temporal].sharing;
	return hb_json_pack(error, "{s:i, s:o, s:o, s:o}", "cases", (int)overall.cases, "spatial",
			    text_or_null(spatial), "temporal", text_or_null(temporal), "sharing", rows);
}

int hb_bench_json_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error)
{
	json_t *cases = json_array();
	for (unsigned i = 0; i < result->n_cases; i++) {
		json_t *packed = case_pack(&result->cases[i], result->rounds, error);
		if (!packed || json_array_append_new(cases, packed)) {
			json_decref(cases);
			return -EINVAL;
		}
	}
	json_t *root = hb_json_pack(error, "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:o, s:o, s:o}",
				    "version", VERSION, "suite", result->suite, "command", result->command, "time",
				    result->time, "commit", result->version, "machine", result->machine, "driver",
				    result->driver, "gpu", result->gpu, "simulated", result->simulated, "rounds",
				    (int)result->rounds, "window_s", number(result->seconds), "cases", cases, "overall",
				    overall_pack(result, error));
	int code = hb_json_write(root, out, error);
	json_decref(root);
	return code;
}

/* --- in -------------------------------------------------------------------------------------------- */

/* Of one file: whose name errors tell. */
struct reader {
	const char *path;
	struct hb_error *error;
	struct hb_bench_result *result;
};

static int wrong(const struct reader *reader, const char *what)
{
	return hb_error_set(reader->error, -EINVAL, "%s: %s", reader->path, what);
}

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

static int latencies_read(const struct reader *reader, json_t *round, struct hb_bench_latencies *latencies)
{
	json_int_t seen;
	const char *text;
	int code = hb_json_unpack(round, reader->path, reader->error, "{s:I, s:s}", "seen", &seen, "latency_ns", &text);
	if (code)
		return code;
	size_t room = strlen(text) / 2 + 1, n = 0;
	int64_t *values = malloc(room * sizeof *values);
	if (!values)
		return hb_error_set(reader->error, -ENOMEM, "out of memory");
	for (char *end; *text; text = end) {
		values[n] = strtoll(text, &end, 10);
		if (end == text || (*end && *end != ' ') || n + 1 > room) {
			free(values);
			return wrong(reader, "latency_ns: not a list of numbers");
		}
		n++;
		end += *end == ' ';
	}
	hb_bench_latencies_take(latencies, values, n, (uint64_t)seen);
	return 0;
}

static int high_read(const struct reader *reader, json_t *high, struct hb_bench_latencies *latencies)
{
	json_t *rounds;
	int code = hb_json_unpack(high, reader->path, reader->error, "{s:o}", "rounds", &rounds);
	if (!code && json_array_size(rounds) != reader->result->rounds)
		code = wrong(reader, "rounds: not as many as the file says");
	for (unsigned i = 0; i < reader->result->rounds && !code; i++)
		code = latencies_read(reader, json_array_get(rounds, i), &latencies[i]);
	return code;
}

static int low_read(const struct reader *reader, json_t *low, double *per_s)
{
	json_t *rounds;
	int code = hb_json_unpack(low, reader->path, reader->error, "{s:o}", "rounds_per_s", &rounds);
	if (!code && json_array_size(rounds) != reader->result->rounds)
		return wrong(reader, "rounds_per_s: not as many as the file says");
	for (unsigned i = 0; i < reader->result->rounds && !code; i++) {
		json_t *value = json_array_get(rounds, i);
		per_s[i] = json_is_number(value) ? json_number_value(value) : NAN;
	}
	return code;
}

static int cell_read(const struct reader *reader, json_t *object, struct hb_bench_outcome *outcome)
{
	const char *name, *class;
	json_int_t clock_error_ns;
	json_t *high, *low;
	int code = hb_json_unpack(object, reader->path, reader->error, "{s:s, s:s, s:I, s:o, s:o}", "name", &name,
				  "class", &class, "clock_error_ns", &clock_error_ns, "high", &high, "low", &low);
	if (code)
		return code;
	int parsed = hb_bench_class_parse(class);
	if (parsed < 0)
		return wrong(reader, "class: none of reference, temporal, spatial, engine");
	struct hb_bench_cell *cell = hb_bench_outcome_cell(outcome, name, (enum hb_bench_class)parsed);
	if (!cell || json_array_size(high) != outcome->n_high || json_array_size(low) != outcome->n_low)
		return wrong(reader, "sharing: too many, or not the case's programs");
	cell->clock_error_ns = clock_error_ns;
	for (unsigned i = 0; i < outcome->n_high && !code; i++)
		code = high_read(reader, json_array_get(high, i), cell->high[i]);
	for (unsigned i = 0; i < outcome->n_low && !code; i++)
		code = low_read(reader, json_array_get(low, i), cell->low_per_s[i]);
	return code;
}

static int programs_read(const struct reader *reader, json_t *high, json_t *low, struct hb_bench_outcome *outcome)
{
	int code = 0;
	outcome->n_high = (unsigned)json_array_size(high);
	outcome->n_low = (unsigned)json_array_size(low);
	if (json_array_size(high) > HB_BENCH_TENANTS_MAX || json_array_size(low) > HB_BENCH_TENANTS_MAX) {
		outcome->n_high = outcome->n_low = 0;
		return wrong(reader, "more programs than a case can have");
	}
	for (unsigned i = 0; i < outcome->n_high && !code; i++) {
		const char *program, *arrivals;
		code = hb_json_unpack(json_array_get(high, i), reader->path, reader->error, "{s:s, s:s}", "program",
				      &program, "arrivals", &arrivals);
		if (code)
			break;
		copy(outcome->high[i], sizeof outcome->high[i], program);
		copy(outcome->arrivals[i], sizeof outcome->arrivals[i], arrivals);
	}
	for (unsigned i = 0; i < outcome->n_low; i++)
		copy(outcome->low[i], sizeof outcome->low[i], json_string_value(json_array_get(low, i)));
	return code;
}

static int dropped_read(const struct reader *reader, json_t *list, struct hb_bench_outcome *outcome)
{
	json_t *object;
	size_t i;
	int code = 0;
	json_array_foreach(list, i, object)
	{
		const char *name, *why;
		code = hb_json_unpack(object, reader->path, reader->error, "{s:s, s:s}", "name", &name, "why", &why);
		if (code)
			return code;
		hb_bench_outcome_drop(outcome, name, why);
	}
	return 0;
}

static int case_read(const struct reader *reader, json_t *object)
{
	const char *name, *world;
	json_t *skipped, *failed, *high, *low, *sharing, *dropped = NULL, *unfinished = NULL;
	struct hb_bench_result *result = reader->result;
	int rounds = (int)result->rounds;
	int code = hb_json_unpack(object, reader->path, reader->error,
				  "{s:s, s:s, s:o, s:o, s?o, s?i, s:o, s:o, s:o, s?o}", "name", &name, "world", &world,
				  "skipped", &skipped, "failed", &failed, "unfinished", &unfinished, "rounds", &rounds,
				  "high", &high, "low", &low, "sharing", &sharing, "dropped", &dropped);
	if (code)
		return code;
	if (rounds < 0 || rounds > (int)result->rounds)
		return wrong(reader, "rounds: more than the file has");
	struct hb_bench_outcome *outcome = &result->cases[result->n_cases];
	outcome->cells = calloc(HB_BENCH_SHARINGS_MAX, sizeof *outcome->cells);
	if (!outcome->cells)
		return hb_error_set(reader->error, -ENOMEM, "out of memory");
	result->n_cases++;
	copy(outcome->name, sizeof outcome->name, name);
	copy(outcome->world, sizeof outcome->world, world);
	copy(outcome->skipped, sizeof outcome->skipped, json_string_value(skipped));
	copy(outcome->failed, sizeof outcome->failed, json_string_value(failed));
	copy(outcome->unfinished, sizeof outcome->unfinished, json_string_value(unfinished));
	outcome->rounds = (unsigned)rounds;
	code = programs_read(reader, high, low, outcome);
	code = code ? code : dropped_read(reader, dropped, outcome);
	for (size_t i = 0; i < json_array_size(sharing) && !code; i++)
		code = cell_read(reader, json_array_get(sharing, i), outcome);
	return code;
}

static int header_read(const struct reader *reader, json_t *root, json_t **cases)
{
	const char *suite, *command, *time, *commit, *machine, *driver, *gpu;
	int version, simulated, rounds;
	struct hb_bench_result *result = reader->result;
	int code = hb_json_unpack(root, reader->path, reader->error,
				  "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:F, s:o}", "version", &version,
				  "suite", &suite, "command", &command, "time", &time, "commit", &commit, "machine",
				  &machine, "driver", &driver, "gpu", &gpu, "simulated", &simulated, "rounds", &rounds,
				  "window_s", &result->seconds, "cases", cases);
	if (code)
		return code;
	if (version != VERSION || rounds < 1 || rounds > HB_BENCH_ROUNDS_MAX ||
	    json_array_size(*cases) > HB_BENCH_CASES_MAX)
		return wrong(reader, "version, rounds or cases are out of range");
	copy(result->suite, sizeof result->suite, suite);
	copy(result->command, sizeof result->command, command);
	copy(result->time, sizeof result->time, time);
	copy(result->version, sizeof result->version, commit);
	copy(result->machine, sizeof result->machine, machine);
	copy(result->driver, sizeof result->driver, driver);
	copy(result->gpu, sizeof result->gpu, gpu);
	result->simulated = simulated;
	result->rounds = (unsigned)rounds;
	return 0;
}

/* The whole file, plain or gzip, as text. */
static int file_read(const char *path, char **text, size_t *length, struct hb_error *error)
{
	struct hb_input *input = malloc(sizeof *input);
	FILE *out = input ? open_memstream(text, length) : NULL;
	int got = out ? hb_input_open(input, path, error) : hb_error_set(error, -ENOMEM, "out of memory");
	bool opened = got == 0;
	while (opened && (got = hb_input_read(input, error)) > 0)
		fwrite(input->chunk, 1, (size_t)got, out);
	if (opened)
		hb_input_close(input);
	if (out && fclose(out) != 0 && got == 0)
		got = hb_error_set(error, -ENOMEM, "out of memory");
	free(input);
	return got;
}

int hb_bench_json_load(const char *path, struct hb_bench_result *result, struct hb_error *error)
{
	char *text = NULL;
	size_t length = 0;
	json_t *root = NULL, *cases = NULL;
	struct reader reader = {.path = path, .error = error, .result = calloc(1, sizeof *result)};
	int code = reader.result ? file_read(path, &text, &length, error)
				 : hb_error_set(error, -ENOMEM, "out of memory");
	code = code ? code : hb_json_parse(text, length, path, &root, error);
	free(text);
	code = code ? code : header_read(&reader, root, &cases);
	for (size_t i = 0; i < json_array_size(cases) && !code; i++)
		code = case_read(&reader, json_array_get(cases, i));
	json_decref(root);
	if (code == 0)
		*result = *reader.result;
	else if (reader.result)
		hb_bench_result_fini(reader.result);
	free(reader.result);
	return code;
}
