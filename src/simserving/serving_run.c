/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation runs: arrivals, scheduler and back end in virtual time; see serving_run.h. */
#include "simserving/serving_run.h"

#include "base/clock.h"
#include "sim/arrivals.h"
#include "simserving/serving_gpu.h"
#include "simserving/serving_watch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Requests that arrive in the first WARM_NS do not count: queues fill and the predictor learns. */
#define WARM_NS (500 * HB_NS_PER_MS)
/* Measurement of the capacity: its duration, and the queue length of each model. */
#define CAPACITY_NS HB_NS_PER_S
#define CAPACITY_QUEUE 64
/* A run ends at most this long after its last arrival. */
#define DRAIN_NS (10 * HB_NS_PER_S)
/* Number of runs of each batch size alone when a model is loaded. */
#define PROFILE_RUNS 3

/* The arrivals of one model and priority. */
struct request_source {
	uint32_t model;
	enum hb_scheduler_priority priority;
	struct hb_arrivals *arrivals;
	int64_t next_ns;
};

struct serving_run {
	const struct hb_serving_run_options *options;
	struct hb_error *error;
	void *gpu;
	struct hb_scheduler *scheduler;
	struct hb_serving_watch watch;
	uint32_t n_models;
	struct hb_scheduler_model models[HB_SCHEDULER_MODELS_MAX];
	double alone_ns[HB_SCHEDULER_MODELS_MAX], item_ns[HB_SCHEDULER_MODELS_MAX];
	double share[HB_SCHEDULER_MODELS_MAX]; /* share of requests */
	struct request_source sources[HB_SCHEDULER_MODELS_MAX * HB_SCHEDULER_PRIORITIES];
	uint32_t n_sources;
	int64_t now_ns, end_ns, busy_before_ns;
	int failure;
};

void hb_serving_run_options_init(struct hb_serving_run_options *options)
{
	*options = (struct hb_serving_run_options){
		.gpu = "h200",
		.load = 0.8,
		.traffic = "poisson",
		.high_share = 0.4,
		.deadline_factor = {4, 8},
		.seconds = 10,
		.seed = 1,
	};
	hb_scheduler_config_init(&options->config);
}

static const struct hb_scheduler_provider_ops *const gpu_ops = &hb_serving_gpu_ops;

/* Runs one batch alone and measures its stages. */
static void measure_batch(struct serving_run *run, uint32_t model, uint32_t items, double stage_ns[HB_STAGES])
{
	struct hb_scheduler_provider_event event = {.stage = HB_STAGE_IN};
	int64_t since_ns = run->now_ns;
	enum hb_scheduler_stage stage = run->models[model].in_bytes > 0 ? HB_STAGE_IN : HB_STAGE_RUN;
	memset(stage_ns, 0, HB_STAGES * sizeof *stage_ns);
	const struct hb_scheduler_batch batch = {.model = model, .items = items, .priority = HB_SCHEDULER_HIGH};
	if (gpu_ops->start(run->gpu, run->now_ns, 0, model, &batch) < 0)
		return;
	while (event.stage < HB_STAGES) {
		int64_t next = gpu_ops->next_ns(run->gpu);
		if (next == INT64_MAX)
			return;
		while (event.stage < HB_STAGES && gpu_ops->poll(run->gpu, next, &event)) {
			stage_ns[stage] = (double)(event.at_ns - since_ns);
			since_ns = run->now_ns = event.at_ns;
			stage = event.stage;
		}
	}
}

/* Runs batches of 1, 2, 4, ... items alone, as a server does when it loads a model. */
static void profile_model(struct serving_run *run, uint32_t model)
{
	uint32_t most = run->models[model].max_items, items = 1;
	double stage_ns[HB_STAGES];
	for (;;) {
		for (int i = 0; i < PROFILE_RUNS; i++) {
			measure_batch(run, model, items, stage_ns);
			hb_scheduler_profiled(run->scheduler, model, items, stage_ns);
			hb_serving_watch_profiled(&run->watch, model, items, stage_ns);
			run->now_ns += HB_NS_PER_MS;
		}
		if (items == 1) {
			run->alone_ns[model] = stage_ns[0] + stage_ns[1] + stage_ns[2];
			run->item_ns[model] = stage_ns[HB_STAGE_RUN];
		}
		if (items == most)
			break;
		items = 2 * items < most ? 2 * items : most;
	}
}

static int open_models(struct serving_run *run)
{
	double sum = 0;
	run->n_models = gpu_ops->models(run->gpu);
	for (uint32_t model = 0; model < run->n_models; model++) {
		int rc = gpu_ops->model(run->gpu, model, &run->models[model]);
		rc = rc ? rc : hb_scheduler_add_model(run->scheduler, &run->models[model], run->error);
		if (rc < 0)
			return rc;
		hb_serving_watch_model(&run->watch, &run->models[model]);
		profile_model(run, model);
		run->share[model] = 1 / run->item_ns[model];
		sum += run->share[model];
	}
	for (uint32_t model = 0; model < run->n_models; model++)
		run->share[model] /= sum;
	return 0;
}

static int open_source(struct serving_run *run, uint32_t model, enum hb_scheduler_priority priority, double per_s)
{
	char spec[PATH_MAX + 64];
	const char *traffic = run->options->traffic;
	bool trace = strncmp(traffic, "trace:", 6) == 0;
	snprintf(spec, sizeof spec, "%.6f/s%s%.*s", per_s,
		 trace                            ? ":trace="
		 : strcmp(traffic, "bursts") == 0 ? ":burst"
						  : "",
		 PATH_MAX, trace ? traffic + 6 : "");
	struct request_source *source = &run->sources[run->n_sources];
	uint64_t seed = run->options->seed * 1000 + run->n_sources;
	int rc = hb_arrivals_new(spec, seed, &source->arrivals, run->error);
	if (rc)
		return rc;
	run->n_sources++;
	source->model = model;
	source->priority = priority;
	source->next_ns = hb_arrivals_next(source->arrivals);
	return 0;
}

static int open_sources(struct serving_run *run, double per_s)
{
	for (uint32_t model = 0; model < run->n_models; model++)
		for (int priority = 0; priority < HB_SCHEDULER_PRIORITIES; priority++) {
			double high = run->options->high_share;
			double share = run->share[model] * (priority == HB_SCHEDULER_HIGH ? high : 1 - high);
			int rc = open_source(run, model, priority, share * per_s);
			if (rc)
				return rc;
		}
	return 0;
}

static void close_run(struct serving_run *run)
{
	for (uint32_t i = 0; i < run->n_sources; i++)
		hb_arrivals_free(run->sources[i].arrivals);
	hb_scheduler_free(run->scheduler);
	hb_serving_watch_fini(&run->watch);
	gpu_ops->close(run->gpu);
	free(run);
}

static int open_run(const struct hb_serving_run_options *options, struct serving_run **out, struct hb_error *error)
{
	struct hb_serving_gpu_options gpu = {
		.traces = options->traces,
		.gpu = options->gpu,
		.only = options->models,
		.link_bytes_per_s = options->link_bytes_per_s,
		.lanes = options->config.slots,
		.demand = options->demand,
	};
	struct serving_run *run = calloc(1, sizeof *run);
	if (!run)
		return hb_error_set(error, -ENOMEM, "out of memory");
	run->options = options;
	run->error = error;
	int rc = hb_serving_gpu_new(&gpu, &run->gpu, error);
	rc = rc ? rc : hb_scheduler_new(&options->config, &run->scheduler, error);
	rc = rc ? rc : hb_serving_watch_init(&run->watch, options->errors);
	rc = rc ? rc : open_models(run);
	if (rc) {
		close_run(run);
		return rc;
	}
	*out = run;
	return 0;
}

static void carry_out_action(struct serving_run *run, const struct hb_scheduler_action *action)
{
	const struct hb_scheduler_batch *batch;
	switch (action->kind) {
	case HB_SCHEDULER_START:
		batch = hb_scheduler_batch_get(run->scheduler, action->slot);
		hb_serving_watch_start(&run->watch, run->now_ns, action->slot, batch);
		if (gpu_ops->start(run->gpu, run->now_ns, action->slot, batch->model, batch) < 0)
			run->failure = hb_error_set(run->error, -EINVAL, "the simulated GPU refused a batch");
		if (run->models[batch->model].in_bytes <= 0)
			hb_scheduler_stage(run->scheduler, run->now_ns, action->slot, HB_STAGE_RUN);
		break;
	case HB_SCHEDULER_REFUSE:
		hb_serving_watch_refused(&run->watch, action);
		break;
	case HB_SCHEDULER_PAUSE:
	case HB_SCHEDULER_RESUME:
		gpu_ops->pause(run->gpu, run->now_ns, action->slot, action->kind == HB_SCHEDULER_PAUSE);
		hb_serving_watch_pause(&run->watch, run->now_ns, action->slot, action->kind == HB_SCHEDULER_PAUSE);
		break;
	}
}

static void carry_out_actions(struct serving_run *run)
{
	struct hb_scheduler_action action;
	while (!run->failure && hb_scheduler_step(run->scheduler, run->now_ns, &action))
		carry_out_action(run, &action);
}

static void handle_event(struct serving_run *run, const struct hb_scheduler_provider_event *event)
{
	run->now_ns = event->at_ns;
	if (event->stage < HB_STAGES) {
		hb_scheduler_stage(run->scheduler, run->now_ns, event->slot, event->stage);
		hb_serving_watch_stage(&run->watch, run->now_ns, event->slot, event->stage);
	} else {
		hb_serving_watch_end(&run->watch, run->now_ns, event->slot,
				     hb_scheduler_batch_get(run->scheduler, event->slot));
		hb_scheduler_end(run->scheduler, run->now_ns, event->slot, event->complete);
	}
}

static void submit_request(struct serving_run *run, struct request_source *source)
{
	double allowed_ns = run->options->deadline_factor[source->priority] * run->alone_ns[source->model];
	int64_t deadline_ns = run->now_ns + (int64_t)allowed_ns;
	struct hb_scheduler_request request = {
		.cookie = hb_serving_watch_request(&run->watch, run->now_ns, source->model, source->priority,
						   deadline_ns),
		.model = source->model,
		.items = 1,
		.priority = source->priority,
		.deadline_ns = deadline_ns,
	};
	if (!hb_scheduler_submit(run->scheduler, run->now_ns, &request))
		hb_serving_watch_refused(&run->watch, &(struct hb_scheduler_action){.cookie = request.cookie});
	int64_t next = hb_arrivals_next(source->arrivals);
	source->next_ns = next == INT64_MAX ? next : next + run->watch.base_ns;
}

static struct request_source *find_next_source(struct serving_run *run)
{
	struct request_source *best = &run->sources[0];
	for (uint32_t i = 1; i < run->n_sources; i++)
		if (run->sources[i].next_ns < best->next_ns)
			best = &run->sources[i];
	return best;
}

/* Advances to the next event of the GPU, arrival or wake-up, and handles it. False: there is none. */
static bool advance_run(struct serving_run *run)
{
	struct request_source *source = find_next_source(run);
	int64_t arrival = source->next_ns < run->end_ns ? source->next_ns : INT64_MAX;
	int64_t gpu = gpu_ops->next_ns(run->gpu), wake = hb_scheduler_next_wake_ns(run->scheduler);
	int64_t next = gpu < arrival ? gpu : arrival;
	next = wake < next ? wake : next;
	if (next == INT64_MAX || run->failure)
		return false;
	run->now_ns = next > run->now_ns ? next : run->now_ns;
	int64_t until_ns = run->now_ns;
	struct hb_scheduler_provider_event event;
	while (gpu_ops->poll(run->gpu, until_ns, &event)) {
		handle_event(run, &event);
		carry_out_actions(run);
	}
	run->now_ns = until_ns;
	if (arrival <= until_ns)
		submit_request(run, source);
	/* Most events are ends of kernels within a batch; then the scheduler has nothing to decide. */
	if (arrival <= until_ns || wake <= until_ns)
		carry_out_actions(run);
	return true;
}

static void fill_result(struct serving_run *run, struct hb_serving_run_result *result)
{
	result->n_models = run->n_models;
	for (uint32_t model = 0; model < run->n_models; model++) {
		memcpy(result->model_name[model], run->models[model].name, sizeof run->models[model].name);
		result->model_alone_ns[model] = run->alone_ns[model];
	}
	result->counts = *hb_scheduler_counts_get(run->scheduler);
	double span_ns = (double)(run->end_ns - run->watch.base_ns);
	double busy_ns = (double)(hb_serving_gpu_busy_ns(run->gpu) - run->busy_before_ns);
	result->gpu_busy = busy_ns / span_ns;
	hb_serving_watch_result(&run->watch, result);
}

int hb_serving_run(const struct hb_serving_run_options *options, struct hb_serving_run_result *result,
		   struct hb_error *error)
{
	double capacity = options->capacity_per_s;
	int rc = capacity > 0 ? 0 : hb_serving_capacity(options, &capacity, error);
	struct serving_run *run;
	rc = rc ? rc : open_run(options, &run, error);
	if (rc)
		return rc;
	rc = open_sources(run, capacity * options->load);
	/* Arrivals begin after the profiles. */
	run->busy_before_ns = hb_serving_gpu_busy_ns(run->gpu);
	run->watch.base_ns = run->now_ns;
	run->watch.count_from_ns = run->now_ns + WARM_NS;
	run->end_ns = run->now_ns + WARM_NS + (int64_t)(options->seconds * 1e9);
	for (uint32_t i = 0; i < run->n_sources; i++)
		run->sources[i].next_ns += run->watch.base_ns;
	while (!rc && run->now_ns < run->end_ns + DRAIN_NS && advance_run(run))
		continue;
	rc = rc ? rc : run->failure ? run->failure : run->watch.failure;
	if (!rc) {
		*result = (struct hb_serving_run_result){.capacity_per_s = capacity,
							 .offered_per_s = capacity * options->load};
		fill_result(run, result);
	}
	close_run(run);
	return rc;
}

/* Fills the queues to CAPACITY_QUEUE requests per model, in proportion to the models' shares. */
static void fill_queues(struct serving_run *run, uint64_t *sent)
{
	for (uint32_t model = 0; model < run->n_models; model++) {
		struct hb_scheduler_request request = {.model = model, .items = 1, .deadline_ns = INT64_MAX};
		while (hb_scheduler_queued(run->scheduler, HB_SCHEDULER_HIGH) < CAPACITY_QUEUE * run->n_models &&
		       !run->failure) {
			/* The next request is for the model that is furthest behind its share. */
			uint32_t next = 0;
			for (uint32_t i = 1; i < run->n_models; i++)
				if ((double)sent[i] / run->share[i] < (double)sent[next] / run->share[next])
					next = i;
			request.model = next;
			sent[next]++;
			if (!hb_scheduler_submit(run->scheduler, run->now_ns, &request))
				return;
		}
	}
}

int hb_serving_capacity(const struct hb_serving_run_options *options, double *per_s, struct hb_error *error)
{
	struct hb_serving_run_options full = *options;
	uint64_t sent[HB_SCHEDULER_MODELS_MAX] = {0}, done = 0;
	struct hb_scheduler_provider_event event;
	struct serving_run *run;
	full.config.policy = "fifo";
	full.config.batch_most = 1;
	full.errors = false;
	int rc = open_run(&full, &run, error);
	if (rc)
		return rc;
	int64_t from_ns = run->now_ns + WARM_NS, to_ns = from_ns + CAPACITY_NS;
	run->watch.count_from_ns = INT64_MAX;
	while (run->now_ns < to_ns && !run->failure) {
		fill_queues(run, sent);
		carry_out_actions(run);
		run->now_ns = gpu_ops->next_ns(run->gpu);
		while (gpu_ops->poll(run->gpu, run->now_ns, &event)) {
			if (event.stage == HB_STAGES && run->now_ns >= from_ns && run->now_ns < to_ns)
				done += hb_scheduler_batch_get(run->scheduler, event.slot)->items;
			handle_event(run, &event);
		}
	}
	rc = run->failure;
	if (!rc)
		*per_s = (double)done * 1e9 / (double)CAPACITY_NS;
	close_run(run);
	return rc;
}
