/* SPDX-License-Identifier: Apache-2.0 */
/* A journal of what ran when, judged by predictors; see serving_journal.h. */
#include "simserving/serving_journal.h"

#include "simserving/serving_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512

struct journal {
	const char *name;
	struct hb_error *error;
	uint64_t line;
	struct hb_serving_watch watch;
	struct hb_serving_stretch *stretches;
	size_t n;
	bool flies[HB_SCHEDULER_FLIGHTS_MAX];
};

static int bad(const struct journal *journal, const char *what)
{
	return hb_error_set(journal->error, -EINVAL, "%s:%" PRIu64 ": %s", journal->name, journal->line, what);
}

static int model_take(struct journal *journal, const char *text)
{
	struct hb_scheduler_model model = {.max_items = 0};
	uint32_t number;
	if (sscanf(text, "%u %63s %u %lf %lf %lf %lf %lf %lf %lf %lf", &number, model.name, &model.max_items,
		   &model.in_bytes, &model.out_bytes, &model.sm_demand[0], &model.sm_demand[1], &model.memory_demand[0],
		   &model.memory_demand[1], &model.run_guess_ns, &model.stop_share) != 11)
		return bad(journal, "model: eleven values are needed");
	if (number < journal->watch.shadows[0].n_models) {
		int result = hb_serving_watch_replace(&journal->watch, number, &model);
		return result == -EBUSY ? bad(journal, "model: batches of the one before run")
		       : result < 0     ? bad(journal, "model: values that cannot be")
					: 0;
	}
	if (number != journal->watch.shadows[0].n_models)
		return bad(journal, "model: its number is not the next");
	hb_serving_watch_model(&journal->watch, &model);
	return journal->watch.shadows[0].n_models == number + 1 ? 0 : bad(journal, "model: values that cannot be");
}

static int profile_take(struct journal *journal, const char *text)
{
	uint32_t model, items;
	double stage_ns[HB_STAGES];
	if (sscanf(text, "%u %u %lf %lf %lf", &model, &items, &stage_ns[0], &stage_ns[1], &stage_ns[2]) != 5 ||
	    model >= journal->watch.shadows[0].n_models || items < 1 || items > HB_SCHEDULER_BATCH_MAX)
		return bad(journal, "profile: a model, items and three times are needed");
	hb_serving_watch_profiled(&journal->watch, model, items, stage_ns);
	return 0;
}

static int start_take(struct journal *journal, const char *text)
{
	struct hb_scheduler_batch batch = {.used = true};
	int64_t now_ns;
	uint32_t slot, priority;
	if (sscanf(text, "%" SCNd64 " %u %u %u %u", &now_ns, &slot, &batch.model, &batch.items, &priority) != 5 ||
	    slot >= HB_SCHEDULER_FLIGHTS_MAX || journal->flies[slot] ||
	    batch.model >= journal->watch.shadows[0].n_models || batch.items < 1 ||
	    batch.items > HB_SCHEDULER_BATCH_MAX || priority >= HB_SCHEDULER_PRIORITIES)
		return bad(journal, "start: a time, a free slot, a model, items and a priority are needed");
	batch.priority = (enum hb_scheduler_priority)priority;
	journal->flies[slot] = true;
	hb_serving_watch_start(&journal->watch, now_ns, slot, &batch);
	return 0;
}

static int stage_take(struct journal *journal, const char *text)
{
	int64_t now_ns;
	uint32_t slot, stage;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &stage) != 3 || slot >= HB_SCHEDULER_FLIGHTS_MAX ||
	    !journal->flies[slot] || stage >= HB_STAGES)
		return bad(journal, "stage: a time, the slot of a batch and a stage are needed");
	hb_serving_watch_stage(&journal->watch, now_ns, slot, (enum hb_scheduler_stage)stage);
	return 0;
}

static int hold_take(struct journal *journal, const char *text)
{
	int64_t now_ns;
	uint32_t slot, held;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &held) != 3 || slot >= HB_SCHEDULER_FLIGHTS_MAX ||
	    !journal->flies[slot] || held > 1)
		return bad(journal, "hold: a time, the slot of a batch and 0 or 1 are needed");
	hb_serving_watch_hold(&journal->watch, now_ns, slot, held);
	return 0;
}

static int end_take(struct journal *journal, const char *text)
{
	const struct hb_scheduler_batch nobody = {.used = true};
	int64_t now_ns;
	uint32_t slot, whole;
	if (sscanf(text, "%" SCNd64 " %u %u", &now_ns, &slot, &whole) != 3 || slot >= HB_SCHEDULER_FLIGHTS_MAX ||
	    !journal->flies[slot])
		return bad(journal, "end: a time, the slot of a batch and 0 or 1 are needed");
	journal->flies[slot] = false;
	if (whole)
		hb_serving_watch_end(&journal->watch, now_ns, slot, &nobody);
	else
		for (uint32_t i = 0; i < journal->watch.n_shadows; i++)
			hb_predictor_end(&journal->watch.shadows[i], now_ns, slot, false);
	return 0;
}

static void stretch_end(struct journal *journal)
{
	struct hb_serving_run_result result = {.n_models = 0};
	hb_serving_watch_result(&journal->watch, &result);
	memcpy(journal->stretches[journal->n - 1].error, result.error, sizeof result.error);
	memset(journal->watch.error, 0, HB_SHADOWS * sizeof *journal->watch.error);
	memset(journal->watch.run_error, 0, HB_SHADOWS * sizeof *journal->watch.run_error);
	memset(journal->watch.copy_error, 0, HB_SHADOWS * sizeof *journal->watch.copy_error);
}

static int stretch_begin(struct journal *journal, const char *mark)
{
	struct hb_serving_stretch *stretches = realloc(journal->stretches, (journal->n + 1) * sizeof *stretches);
	if (!stretches)
		return hb_error_set(journal->error, -ENOMEM, "out of memory");
	journal->stretches = stretches;
	stretches[journal->n] = (struct hb_serving_stretch){.mark = ""};
	snprintf(stretches[journal->n++].mark, sizeof stretches->mark, "%s", mark);
	return 0;
}

static int mark_take(struct journal *journal, const char *text)
{
	int64_t now_ns;
	int begin = 0;
	if (sscanf(text, "%" SCNd64 " %n", &now_ns, &begin) != 1 || !begin)
		return bad(journal, "mark: a time is needed");
	stretch_end(journal);
	journal->watch.count_from_ns = now_ns;
	return stretch_begin(journal, text + begin);
}

static int line_take(struct journal *journal, char *line)
{
	static const struct {
		const char *word;
		int (*take)(struct journal *journal, const char *text);
	} words[] = {{"model", model_take}, {"profile", profile_take}, {"start", start_take}, {"stage", stage_take},
		     {"hold", hold_take},   {"end", end_take},         {"mark", mark_take}};
	size_t length = strcspn(line, " ");
	line[strcspn(line, "\n")] = '\0';
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i].word) == length && memcmp(line, words[i].word, length) == 0)
			return words[i].take(journal, line + length);
	return bad(journal, "begins with no word of a journal");
}

int hb_serving_journal_read(FILE *in, const char *name, struct hb_serving_stretch **out, size_t *n,
			    struct hb_error *error)
{
	struct journal journal = {.name = name, .error = error};
	char line[LINE_MAX_BYTES];
	int rc = hb_serving_watch_init(&journal.watch, true);
	rc = rc ? hb_error_set(error, rc, "out of memory") : stretch_begin(&journal, "");
	while (!rc && fgets(line, sizeof line, in)) {
		journal.line++;
		rc = line_take(&journal, line);
	}
	if (!rc && ferror(in))
		rc = hb_error_set(error, -EIO, "%s: %s", name, strerror(errno));
	if (!rc)
		stretch_end(&journal);
	hb_serving_watch_fini(&journal.watch);
	if (rc) {
		free(journal.stretches);
		return rc;
	}
	*out = journal.stretches;
	*n = journal.n;
	return 0;
}
