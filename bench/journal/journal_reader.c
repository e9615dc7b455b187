/* SPDX-License-Identifier: Apache-2.0 */
/* See journal_reader.h. Every number is checked: a journal may come from another machine. */
#include "journal_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512
#define TIME_MAX_NS (INT64_MAX / 4) /* differences of times stay far from an overflow */

static int refuse_line(const struct journal_reader *reader, const char *what)
{
	return hb_error_set(reader->error, -EINVAL, "%s:%" PRIu64 ": %s", reader->name, reader->line, what);
}

static bool is_time(int64_t now_ns)
{
	return now_ns >= 0 && now_ns <= TIME_MAX_NS;
}

static int read_model(struct journal_reader *reader, const char *text)
{
	struct hb_scheduler_model model = {.max_items = 0};
	uint32_t number;
	if (sscanf(text, "%u %63s %u %lf %lf %lf %lf %lf %lf %lf %lf", &number, model.name, &model.max_items,
		   &model.in_bytes, &model.out_bytes, &model.sm_demand[0], &model.sm_demand[1], &model.memory_demand[0],
		   &model.memory_demand[1], &model.run_guess_ns, &model.stop_share) != 11)
		return refuse_line(reader, "model: eleven values are needed");
	if (number < reader->watch.shadows[0].n_models) {
		int result = hb_serving_watch_replace(&reader->watch, number, &model);
		return result == -EBUSY ? refuse_line(reader, "model: batches of the previous model still run")
		       : result < 0     ? refuse_line(reader, "model: impossible values")
					: 0;
	}
	if (number != reader->watch.shadows[0].n_models)
		return refuse_line(reader, "model: the number is not the next");
	hb_serving_watch_model(&reader->watch, &model);
	return reader->watch.shadows[0].n_models == number + 1 ? 0 : refuse_line(reader, "model: impossible values");
}

static int read_demand(struct journal_reader *reader, const char *text)
{
	struct hb_demand demand;
	uint32_t number;
	if (sscanf(text, "%u %lf %lf %lf %lf %lf %lf", &number, &demand.in_bytes, &demand.out_bytes, &demand.sm[0],
		   &demand.sm[1], &demand.memory[0], &demand.memory[1]) != 7)
		return refuse_line(reader, "demand: a model and six values are needed");
	int result = hb_serving_watch_set_demand(&reader->watch, number, &demand);
	return result == -EBUSY ? refuse_line(reader, "demand: batches of the model still run")
	       : result < 0     ? refuse_line(reader, "demand: impossible values")
				: 0;
}

static int read_profile(struct journal_reader *reader, const char *text)
{
	uint32_t model, items;
	double stage_ns[HB_STAGES];
	if (sscanf(text, "%u %u %lf %lf %lf", &model, &items, &stage_ns[0], &stage_ns[1], &stage_ns[2]) != 5 ||
	    model >= reader->watch.shadows[0].n_models || items < 1 || items > HB_SCHEDULER_BATCH_MAX)
		return refuse_line(reader, "profile: a model, items and three times are needed");
	hb_serving_watch_profiled(&reader->watch, model, items, stage_ns);
	return 0;
}

static int read_start(struct journal_reader *reader, const char *text)
{
	struct hb_scheduler_batch batch = {.used = true};
	int64_t now_ns;
	uint32_t slot, priority;
	if (sscanf(text, "%" SCNd64 " %u %u %u %u", &now_ns, &slot, &batch.model, &batch.items, &priority) != 5 ||
	    !is_time(now_ns) || slot >= HB_SCHEDULER_FLIGHTS_MAX || reader->in_flight[slot] ||
	    batch.model >= reader->watch.shadows[0].n_models || batch.items < 1 ||
	    batch.items > HB_SCHEDULER_BATCH_MAX || priority >= HB_SCHEDULER_PRIORITIES)
		return refuse_line(reader, "start: a time, a free slot, a model, items and a priority are needed");
	batch.priority = (enum hb_scheduler_priority)priority;
	reader->in_flight[slot] = true;
	hb_serving_watch_start(&reader->watch, now_ns, slot, &batch);
	return 0;
}

static int read_stage(struct journal_reader *reader, const char *text)
{
	int64_t now_ns;
	uint32_t slot, stage;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &stage) != 3 || !is_time(now_ns) ||
	    slot >= HB_SCHEDULER_FLIGHTS_MAX || !reader->in_flight[slot] || stage >= HB_STAGES)
		return refuse_line(reader, "stage: a time, the slot of a batch and a stage are needed");
	hb_serving_watch_stage(&reader->watch, now_ns, slot, (enum hb_scheduler_stage)stage);
	return 0;
}

static int read_pause(struct journal_reader *reader, const char *text)
{
	int64_t now_ns;
	uint32_t slot, paused;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &paused) != 3 || !is_time(now_ns) ||
	    slot >= HB_SCHEDULER_FLIGHTS_MAX || !reader->in_flight[slot] || paused > 1)
		return refuse_line(reader, "pause: a time, the slot of a batch and 0 or 1 are needed");
	hb_serving_watch_pause(&reader->watch, now_ns, slot, paused);
	return 0;
}

static int read_end(struct journal_reader *reader, const char *text)
{
	const struct hb_scheduler_batch no_requests = {.used = true};
	int64_t now_ns;
	uint32_t slot, complete;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &complete) != 3 || !is_time(now_ns) ||
	    slot >= HB_SCHEDULER_FLIGHTS_MAX || !reader->in_flight[slot])
		return refuse_line(reader, "end: a time, the slot of a batch and 0 or 1 are needed");
	reader->in_flight[slot] = false;
	if (complete)
		hb_serving_watch_end(&reader->watch, now_ns, slot, &no_requests);
	else
		for (uint32_t i = 0; i < reader->watch.n_shadows; i++)
			hb_predictor_end(&reader->watch.shadows[i], now_ns, slot, false);
	return 0;
}

static void end_interval(struct journal_reader *reader)
{
	struct hb_serving_run_result result = {.n_models = 0};
	hb_serving_watch_result(&reader->watch, &result);
	memcpy(reader->intervals[reader->n - 1].error, result.error, sizeof result.error);
	memset(reader->watch.error, 0, HB_ERROR_ROWS * sizeof *reader->watch.error);
	memset(reader->watch.run_error, 0, HB_ERROR_ROWS * sizeof *reader->watch.run_error);
	memset(reader->watch.copy_error, 0, HB_ERROR_ROWS * sizeof *reader->watch.copy_error);
}

static int begin_interval(struct journal_reader *reader, int64_t now_ns, const char *policy)
{
	struct journal_interval *intervals = realloc(reader->intervals, (reader->n + 1) * sizeof *intervals);
	if (!intervals)
		return hb_error_set(reader->error, -ENOMEM, "out of memory");
	reader->intervals = intervals;
	intervals[reader->n] = (struct journal_interval){.begin_ns = now_ns};
	snprintf(intervals[reader->n++].policy, sizeof intervals->policy, "%s", policy);
	return 0;
}

static int read_policy(struct journal_reader *reader, const char *text)
{
	int64_t now_ns;
	int begin = 0;
	if (sscanf(text, "%" SCNd64 " %n", &now_ns, &begin) != 1 || !begin || !is_time(now_ns))
		return refuse_line(reader, "policy: a time and a name are needed");
	end_interval(reader);
	reader->watch.count_from_ns = now_ns;
	return begin_interval(reader, now_ns, text + begin);
}

static int read_line(struct journal_reader *reader, char *line)
{
	static const struct {
		const char *word;
		int (*take)(struct journal_reader *reader, const char *text);
	} words[] = {{"model", read_model}, {"demand", read_demand}, {"profile", read_profile},
		     {"start", read_start}, {"stage", read_stage},   {"pause", read_pause},
		     {"end", read_end},     {"policy", read_policy}};
	size_t length = strcspn(line, " ");
	line[strcspn(line, "\n")] = '\0';
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i].word) == length && memcmp(line, words[i].word, length) == 0)
			return words[i].take(reader, line + length);
	return refuse_line(reader, "the first word is none of a journal");
}

int journal_reader_read(struct journal_reader *reader, FILE *in)
{
	char line[LINE_MAX_BYTES];
	int rc = hb_serving_watch_init(&reader->watch, true);
	rc = rc ? hb_error_set(reader->error, rc, "out of memory") : begin_interval(reader, 0, "");
	while (!rc && fgets(line, sizeof line, in)) {
		reader->line++;
		rc = read_line(reader, line);
	}
	if (!rc && ferror(in))
		rc = hb_error_set(reader->error, -EIO, "%s: %s", reader->name, strerror(errno));
	if (!rc)
		end_interval(reader);
	hb_serving_watch_fini(&reader->watch);
	return rc;
}
