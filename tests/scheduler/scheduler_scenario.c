/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of the serving scheduler: a text with the arrivals of requests, and
 * the exact text of the scheduler's actions.
 *
 *	scheduler_scenario [--check | --refresh] FILE.txt|FOLDER... (golden/golden_main.h)
 *
 * The output of a scenario with an error ends with "FILE:LINE: why".
 * tests/scheduler/README.md explains the language. A batch takes the time given
 * by its model, or `beside` times that if it starts beside others; no clock, no GPU.
 */
#include "base/units.h"
#include "golden/golden_main.h"
#include "server/scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX 4096

struct scenario_batch {
	int64_t stage_end_ns; /* 0 = free; INT64_MAX = paused */
	int64_t stop_ns;      /* when a paused run stops */
	int64_t rest_ns;      /* run time left when it stops; 0 = not paused */
	enum hb_scheduler_stage stage;
	double beside;
};

struct scenario {
	FILE *out;
	struct hb_scheduler_config config;
	struct hb_scheduler *scheduler;
	struct hb_scheduler_model models[HB_SCHEDULER_MODELS_MAX];
	int64_t run_ns[HB_SCHEDULER_MODELS_MAX], more_ns[HB_SCHEDULER_MODELS_MAX], in_ns[HB_SCHEDULER_MODELS_MAX];
	uint32_t n_models;
	struct scenario_batch batches[HB_SCHEDULER_FLIGHTS_MAX];
	uint64_t handles[REQUESTS_MAX], n_requests;
	int64_t now_ns;
	double beside;
	bool quiet;
	char policy[32];
};

static const char *ms(int64_t ns, char text[static 32])
{
	snprintf(text, 32, "%.3fms", (double)ns / 1e6);
	return text;
}

static void print_line(struct scenario *scenario, const char *text)
{
	char now[32];
	if (!scenario->quiet)
		fprintf(scenario->out, "%12s %s\n", ms(scenario->now_ns, now), text);
}

static int64_t stage_ns(const struct scenario *scenario, const struct hb_scheduler_batch *batch,
			enum hb_scheduler_stage stage, double beside)
{
	uint32_t more = batch->items - 1;
	if (stage == HB_STAGE_IN)
		return scenario->in_ns[batch->model] * batch->items;
	return (int64_t)((double)(scenario->run_ns[batch->model] + scenario->more_ns[batch->model] * more) * beside);
}

static void start_batch(struct scenario *scenario, const struct hb_scheduler_action *action)
{
	const struct hb_scheduler_batch *of = hb_scheduler_batch_get(scenario->scheduler, action->slot);
	struct scenario_batch *batch = &scenario->batches[action->slot];
	char text[512], finish[32], error[32];
	int at = snprintf(text, sizeof text, "- start %s x%u %s, done at %s +%s:", scenario->models[of->model].name,
			  of->items, of->priority == HB_SCHEDULER_HIGH ? "high" : "low", ms(action->finish_ns, finish),
			  ms(action->error_ns, error));
	for (uint32_t i = 0; i < of->n_requests; i++)
		at += snprintf(text + at, sizeof text - (size_t)at, " #%llu", (unsigned long long)of->cookies[i]);
	print_line(scenario, text);
	*batch = (struct scenario_batch){.beside = 1};
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (scenario->batches[i].stage_end_ns)
			batch->beside = scenario->beside;
	batch->stage = of->model < scenario->n_models && scenario->in_ns[of->model] ? HB_STAGE_IN : HB_STAGE_RUN;
	hb_scheduler_stage(scenario->scheduler, scenario->now_ns, action->slot, batch->stage);
	batch->stage_end_ns = scenario->now_ns + stage_ns(scenario, of, batch->stage, batch->beside);
}

static const char *model_in(const struct scenario *scenario, uint32_t slot)
{
	return scenario->models[hb_scheduler_batch_get(scenario->scheduler, slot)->model].name;
}

/* Launches that are already queued still execute: stop_share of the run. */
static void pause_batch(struct scenario *scenario, uint32_t slot)
{
	struct scenario_batch *batch = &scenario->batches[slot];
	const struct hb_scheduler_batch *of = hb_scheduler_batch_get(scenario->scheduler, slot);
	int64_t run_ns = stage_ns(scenario, of, HB_STAGE_RUN, batch->beside);
	int64_t still_ns = (int64_t)((double)run_ns * scenario->models[of->model].stop_share);
	int64_t left_ns = batch->stage_end_ns - scenario->now_ns;
	if (batch->stage != HB_STAGE_RUN || left_ns <= still_ns)
		return;
	batch->stop_ns = scenario->now_ns + still_ns;
	batch->rest_ns = left_ns - still_ns;
	batch->stage_end_ns = INT64_MAX;
}

static void resume_batch(struct scenario *scenario, uint32_t slot)
{
	struct scenario_batch *batch = &scenario->batches[slot];
	int64_t from_ns = scenario->now_ns > batch->stop_ns ? scenario->now_ns : batch->stop_ns;
	if (batch->rest_ns)
		batch->stage_end_ns = from_ns + batch->rest_ns;
	batch->rest_ns = 0;
}

static void carry_out_actions(struct scenario *scenario)
{
	struct hb_scheduler_action action;
	char text[256], finish[32];
	while (hb_scheduler_step(scenario->scheduler, scenario->now_ns, &action)) {
		unsigned long long cookie = action.cookie;
		switch (action.kind) {
		case HB_SCHEDULER_START:
			start_batch(scenario, &action);
			continue;
		case HB_SCHEDULER_REFUSE:
			if (action.reason == HB_SCHEDULER_TIMEOUT)
				snprintf(text, sizeof text, "- timeout #%llu", cookie);
			else
				snprintf(text, sizeof text, "- refuse #%llu, it would be done at %s", cookie,
					 ms(action.finish_ns, finish));
			break;
		case HB_SCHEDULER_PAUSE:
			pause_batch(scenario, action.slot);
			snprintf(text, sizeof text, "- pause %s", model_in(scenario, action.slot));
			break;
		case HB_SCHEDULER_RESUME:
			resume_batch(scenario, action.slot);
			snprintf(text, sizeof text, "- resume %s", model_in(scenario, action.slot));
			break;
		}
		print_line(scenario, text);
	}
}

static void end_stage(struct scenario *scenario, uint32_t slot)
{
	struct scenario_batch *batch = &scenario->batches[slot];
	const struct hb_scheduler_batch *of = hb_scheduler_batch_get(scenario->scheduler, slot);
	char text[128];
	if (batch->stage == HB_STAGE_IN) {
		batch->stage = HB_STAGE_RUN;
		batch->stage_end_ns = scenario->now_ns + stage_ns(scenario, of, HB_STAGE_RUN, batch->beside);
		hb_scheduler_stage(scenario->scheduler, scenario->now_ns, slot, HB_STAGE_RUN);
		return;
	}
	snprintf(text, sizeof text, "> %s x%u done%s", scenario->models[of->model].name, of->items,
		 scenario->now_ns > of->deadline_ns ? ", late" : "");
	print_line(scenario, text);
	batch->stage_end_ns = 0;
	hb_scheduler_end(scenario->scheduler, scenario->now_ns, slot, true);
}

/* Advances the time to until_ns and handles all events on the way. */
static void advance_to(struct scenario *scenario, int64_t until_ns)
{
	for (;;) {
		uint32_t slot = HB_SCHEDULER_FLIGHTS_MAX;
		int64_t next = hb_scheduler_next_wake_ns(scenario->scheduler);
		for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
			if (scenario->batches[i].stage_end_ns && scenario->batches[i].stage_end_ns <= next) {
				next = scenario->batches[i].stage_end_ns;
				slot = i;
			}
		if (next > until_ns)
			break;
		scenario->now_ns = next > scenario->now_ns ? next : scenario->now_ns;
		if (slot < HB_SCHEDULER_FLIGHTS_MAX)
			end_stage(scenario, slot);
		carry_out_actions(scenario);
	}
	scenario->now_ns = until_ns > scenario->now_ns ? until_ns : scenario->now_ns;
}

static int read_time(char **words, uint32_t n, const char *key, int64_t *ns, struct hb_error *error)
{
	const char *value = hb_golden_value(words, n, key);
	*ns = 0;
	return value ? hb_duration_parse(value, ns, error) : 0;
}

static int open_scheduler(struct scenario *scenario, struct hb_error *error)
{
	return scenario->scheduler ? 0 : hb_scheduler_new(&scenario->config, &scenario->scheduler, error);
}

/*
 * model NAME max=N run=TIME more=TIME in=TIME stop=SHARE slots=N. run = time of the first item, more = of each further item, in =
 * time to copy one item, stop = share of a run that still executes after a pause.
 */
static int add_model(struct scenario *scenario, char **words, uint32_t n, struct hb_error *error)
{
	uint32_t index = scenario->n_models;
	if (n < 2 || index == HB_SCHEDULER_MODELS_MAX)
		return hb_error_set(error, -1, "model: a name is missing, or there are too many models");
	struct hb_scheduler_model *model = &scenario->models[index];
	const char *max = hb_golden_value(words, n, "max"), *stop = hb_golden_value(words, n, "stop"),
		   *slots = hb_golden_value(words, n, "slots");
	*model = (struct hb_scheduler_model){.max_items = max ? (uint32_t)atoi(max) : 1,
					     .slots = slots ? (uint32_t)atoi(slots) : 0,
					     .run_guess_ns = 1,
					     .sm_demand = {1, 1},
					     .stop_share = stop ? atof(stop) : 0};
	snprintf(model->name, sizeof model->name, "%s", words[1]);
	if (open_scheduler(scenario, error) || read_time(words, n, "run", &scenario->run_ns[index], error) ||
	    read_time(words, n, "more", &scenario->more_ns[index], error) ||
	    read_time(words, n, "in", &scenario->in_ns[index], error))
		return -1;
	model->in_bytes = (double)scenario->in_ns[index]; /* the link copies one byte per ns */
	if (hb_scheduler_add_model(scenario->scheduler, model, error) < 0)
		return -1;
	for (uint32_t items = 1; items <= model->max_items; items++) {
		struct hb_scheduler_batch batch = {.model = index, .items = items};
		double stage[HB_STAGES] = {(double)stage_ns(scenario, &batch, HB_STAGE_IN, 1),
					   (double)stage_ns(scenario, &batch, HB_STAGE_RUN, 1), 0};
		hb_scheduler_profiled(scenario->scheduler, index, items, stage);
	}
	scenario->n_models++;
	return 0;
}

static int find_model(const struct scenario *scenario, const char *name)
{
	for (uint32_t i = 0; i < scenario->n_models; i++)
		if (strcmp(scenario->models[i].name, name) == 0)
			return (int)i;
	return -1;
}

/* high|low MODEL within=TIME|none [count=N] */
static int submit_requests(struct scenario *scenario, char **words, uint32_t n, struct hb_error *error)
{
	int model = n > 1 ? find_model(scenario, words[1]) : -1;
	const char *within = hb_golden_value(words, n, "within"), *count = hb_golden_value(words, n, "count");
	int64_t within_ns = 0;
	if (model < 0)
		return hb_error_set(error, -1, "%s: no such model", n > 1 ? words[1] : words[0]);
	if (within && hb_duration_parse(within, &within_ns, error))
		return -1;
	enum hb_scheduler_priority priority = strcmp(words[0], "high") == 0 ? HB_SCHEDULER_HIGH : HB_SCHEDULER_LOW;
	for (int i = count ? atoi(count) : 1; i > 0; i--) {
		char text[128];
		uint64_t cookie = ++scenario->n_requests;
		if (cookie == REQUESTS_MAX)
			return hb_error_set(error, -1, "more than %d requests", REQUESTS_MAX);
		snprintf(text, sizeof text, "> #%llu %s %s%s%s", (unsigned long long)cookie, words[0], words[1],
			 within ? " within " : "", within ? within : "");
		print_line(scenario, text);
		scenario->handles[cookie] = hb_scheduler_submit(
			scenario->scheduler, scenario->now_ns,
			&(struct hb_scheduler_request){cookie, (uint32_t)model, 1, priority,
						       within ? scenario->now_ns + within_ns : INT64_MAX});
		if (!scenario->handles[cookie])
			print_line(scenario, "! the queue is full");
	}
	return 0;
}

static int set_config(struct scenario *scenario, char **words, uint32_t n, struct hb_error *error)
{
	struct hb_scheduler_config *config = &scenario->config;
	const char *policy = hb_golden_value(words, n, "policy"), *late = hb_golden_value(words, n, "late");
	const char *queue = hb_golden_value(words, n, "queue");
	if (policy) {
		snprintf(scenario->policy, sizeof scenario->policy, "%s", policy);
		config->policy = scenario->policy;
	}
	if (late)
		config->late[0] = config->late[1] = strcmp(late, "downgrade") == 0 ? HB_SCHEDULER_DOWNGRADE
										   : HB_SCHEDULER_REJECT;
	if (queue)
		config->queue_max = (uint32_t)atoi(queue);
	if (hb_golden_value(words, n, "age"))
		return read_time(words, n, "age", &config->age_ns, error);
	return 0;
}

static int cancel_request(struct scenario *scenario, char **words, uint32_t n)
{
	uint64_t cookie = n > 1 && words[1][0] == '#' ? strtoull(words[1] + 1, NULL, 10) : 0;
	char text[64];
	bool gone = cookie && cookie <= scenario->n_requests &&
		    hb_scheduler_cancel(scenario->scheduler, scenario->now_ns, scenario->handles[cookie]);
	snprintf(text, sizeof text, "> cancel #%llu: %s", (unsigned long long)cookie,
		 gone ? "gone" : "it is not queued");
	print_line(scenario, text);
	return 0;
}

/* hang|continue MODEL: its batches make no progress from now on; they begin their stage again. */
static int change_progress(struct scenario *scenario, char **words, uint32_t n, struct hb_error *error)
{
	int model = n > 1 ? find_model(scenario, words[1]) : -1;
	if (model < 0)
		return hb_error_set(error, -1, "%s: give it a model", words[0]);
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		struct scenario_batch *batch = &scenario->batches[slot];
		const struct hb_scheduler_batch *of = hb_scheduler_batch_get(scenario->scheduler, slot);
		if (!of || of->model != (uint32_t)model)
			continue;
		batch->stage_end_ns = strcmp(words[0], "hang") == 0
					      ? INT64_MAX
					      : scenario->now_ns + stage_ns(scenario, of, batch->stage, 1);
	}
	char text[80];
	snprintf(text, sizeof text, "> %s: %s", words[1], words[0]);
	print_line(scenario, text);
	return 0;
}

static int run_command(struct scenario *scenario, char **words, uint32_t n, struct hb_error *error)
{
	int64_t ns = 0;
	if (strcmp(words[0], "config") == 0)
		return set_config(scenario, words, n, error);
	if (strcmp(words[0], "model") == 0)
		return add_model(scenario, words, n, error);
	if (!scenario->scheduler)
		return hb_error_set(error, -1, "%s: must be after a model", words[0]);
	if (strcmp(words[0], "at") == 0 && n > 2) {
		if (hb_duration_parse(words[1], &ns, error))
			return -1;
		advance_to(scenario, ns);
		return run_command(scenario, words + 2, n - 2, error);
	}
	if (strcmp(words[0], "until") == 0 && n > 1) {
		if (hb_duration_parse(words[1], &ns, error))
			return -1;
		advance_to(scenario, ns);
		return 0;
	}
	if (strcmp(words[0], "beside") == 0 && n > 1)
		return (scenario->beside = strtod(words[1], NULL)) > 0
			       ? 0
			       : hb_error_set(error, -1, "beside: a factor above 0");
	if (strcmp(words[0], "quiet") == 0 || strcmp(words[0], "loud") == 0) {
		scenario->quiet = words[0][0] == 'q';
		return 0;
	}
	if (strcmp(words[0], "cancel") == 0)
		return cancel_request(scenario, words, n);
	if (strcmp(words[0], "hang") == 0 || strcmp(words[0], "continue") == 0)
		return change_progress(scenario, words, n, error);
	if (strcmp(words[0], "high") == 0 || strcmp(words[0], "low") == 0) {
		int rc = submit_requests(scenario, words, n, error);
		carry_out_actions(scenario);
		return rc;
	}
	return hb_error_set(error, -1, "%s: no such command", words[0]);
}

/* Runs one command. A time "+5ms" is relative to the current time. */
static int run_line(struct scenario *scenario, char *line, struct hb_error *error)
{
	char *words[HB_GOLDEN_WORDS], later[HB_UNITS_TEXT_MAX];
	uint32_t n = hb_golden_split(line, words);
	if (!n || words[0][0] == '#')
		return 0;
	int64_t ns;
	if (n > 1 && words[1][0] == '+') {
		if (hb_duration_parse(words[1] + 1, &ns, error))
			return -1;
		hb_duration_format(scenario->now_ns + ns, later);
		words[1] = later;
	}
	return run_command(scenario, words, n, error);
}

/* Runs a line, which may be "repeat N COMMAND [; COMMAND]...". */
static int run_repeated(struct scenario *scenario, char *line, struct hb_error *error)
{
	char *end = line;
	long times = 1;
	if (strncmp(line, "repeat ", 7) == 0)
		times = strtol(line + 7, &end, 10);
	for (long i = 0; i < times; i++) {
		char *copy = strdup(end), *rest = NULL;
		int rc = 0;
		for (char *part = strtok_r(copy, ";", &rest); part && !rc; part = strtok_r(NULL, ";", &rest))
			rc = run_line(scenario, part, error);
		free(copy);
		if (rc)
			return rc;
	}
	return 0;
}

static void run_scenario(const char *name, FILE *in, FILE *out)
{
	struct scenario *scenario = calloc(1, sizeof *scenario);
	struct hb_error error = {""};
	char *line = NULL;
	size_t room = 0;
	scenario->out = out;
	scenario->beside = 1;
	hb_scheduler_config_init(&scenario->config);
	for (int number = 1; getline(&line, &room, in) > 0; number++) {
		if (line[0] == '#')
			continue;
		if (run_repeated(scenario, line, &error)) {
			fprintf(out, "%s:%d: %s\n", name, number, error.text);
			break;
		}
	}
	free(line);
	hb_scheduler_free(scenario->scheduler);
	free(scenario);
}

int main(int argc, char **argv)
{
	return hb_golden_main(argc, argv, run_scenario);
}
