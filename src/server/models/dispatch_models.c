/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of the dispatcher: opening, states and counts. dispatch_load.c has the
 * requests to load models, dispatch_unload.c unloads them. A model that is loaded again is a new object; the old one
 * is freed when its last request has ended.
 */
#include "server/models/demand_file.h"
#include "server/models/demand_trial.h"
#include "server/models/dispatch_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/backends/worker_process.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Time that killed workers have to end when the server ends. */
#define WORKERS_WAIT_NS (5 * HB_NS_PER_S)

static const struct hb_platform *const platforms[] = {
#define HB_PLATFORM(name, symbol, what) &symbol,
#include "server/models/platforms.def"
#undef HB_PLATFORM
};

/* ---- finding models ---- */

struct hb_served_model *hb_dispatch_find(struct hb_dispatch *dispatch, const char *name)
{
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		if (strcmp(dispatch->models[i]->config.name, name) == 0)
			return dispatch->models[i];
	return NULL;
}

struct hb_served_model *hb_dispatch_take_model(struct hb_dispatch *dispatch, const char *name, const char *version,
					       enum hb_answer *answer, char *reason, size_t size)
{
	pthread_mutex_lock(&dispatch->lock);
	struct hb_served_model *model = hb_dispatch_find(dispatch, name);
	*answer = HB_ANSWER_OK;
	if (!model || model->state == HB_SERVED_MODEL_UNLOADED) {
		*answer = HB_ANSWER_NOT_FOUND;
		snprintf(reason, size, "Request for unknown model: '%s' is not loaded",
			 name); /* the text that Triton uses */
	} else if (version && version[0] && strcmp(version, "1") != 0) {
		*answer = HB_ANSWER_NOT_FOUND;
		snprintf(reason, size, "model \"%s\" has version 1 only, not \"%s\"", name, version);
	} else if (model->state != HB_SERVED_MODEL_READY) {
		*answer = HB_ANSWER_UNAVAILABLE;
		snprintf(reason, size, "model \"%s\" is not ready%s%s", name, model->why[0] ? ": " : "", model->why);
	}
	if (*answer != HB_ANSWER_OK)
		model = NULL;
	else
		model->users++;
	pthread_mutex_unlock(&dispatch->lock);
	return model;
}

/* Finds a model by a name that is not checked and not terminated; NULL = no model has this name. */
static struct hb_served_model *find_unchecked(struct hb_dispatch *dispatch, const char *model, size_t length)
{
	char name[HB_MODEL_NAME_MAX];
	if (length >= sizeof(name))
		return NULL;
	memcpy(name, model, length);
	name[length] = '\0';
	return hb_dispatch_find(dispatch, name);
}

bool hb_dispatch_is_low(struct hb_dispatch *dispatch, const char *model, size_t length)
{
	pthread_mutex_lock(&dispatch->lock);
	const struct hb_served_model *found = find_unchecked(dispatch, model, length);
	bool low = !found || found->config.priority == HB_SCHEDULER_LOW;
	pthread_mutex_unlock(&dispatch->lock);
	return low;
}

void hb_dispatch_expect(struct hb_dispatch *dispatch, const char *model, size_t length)
{
	if (!atomic_load_explicit(&dispatch->expects, memory_order_relaxed))
		return;
	pthread_mutex_lock(&dispatch->lock);
	const struct hb_served_model *found = find_unchecked(dispatch, model, length);
	hb_demand_expect(dispatch, hb_clock_now_ns());
	if (found && found->state == HB_SERVED_MODEL_READY)
		for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
			const struct hb_backend *backend = &gpu->backends[found->number];
			if (backend->ops && backend->ops->expect)
				backend->ops->expect(backend->self, hb_clock_now_ns());
		}
	pthread_mutex_unlock(&dispatch->lock);
}

static void free_model(struct hb_served_model *model)
{
	for (int i = 0; i < HB_SCHEDULER_PRIORITIES; i++)
		free(model->latency[i]);
	free(model);
}

static bool is_listed(const struct hb_dispatch *dispatch, const struct hb_served_model *model)
{
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		if (dispatch->models[i] == model)
			return true;
	return false;
}

void hb_served_model_drop(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	if (--model->users == 0 && !is_listed(dispatch, model))
		free_model(model);
}

void hb_dispatch_give_model(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	if (!model)
		return;
	pthread_mutex_lock(&dispatch->lock);
	hb_served_model_drop(dispatch, model);
	pthread_mutex_unlock(&dispatch->lock);
}

void hb_dispatch_each_model(struct hb_dispatch *dispatch, void (*visit)(void *argument, struct hb_served_model *model),
			    void *argument)
{
	pthread_mutex_lock(&dispatch->lock);
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		visit(argument, dispatch->models[i]);
	pthread_mutex_unlock(&dispatch->lock);
}

bool hb_dispatch_ready(struct hb_dispatch *dispatch)
{
	pthread_mutex_lock(&dispatch->lock);
	bool ready = !dispatch->ending;
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		ready &= dispatch->models[i]->state != HB_SERVED_MODEL_LOADING;
	pthread_mutex_unlock(&dispatch->lock);
	return ready;
}

void hb_dispatch_inspect(struct hb_dispatch *dispatch,
			 void (*visit)(void *argument, struct hb_scheduler *const *schedulers, uint32_t n),
			 void *argument)
{
	struct hb_scheduler *schedulers[HB_ROUTE_GPUS_MAX];
	uint32_t n = (uint32_t)(dispatch->gpus_end - dispatch->gpus);
	for (uint32_t i = 0; i < n; i++)
		schedulers[i] = dispatch->gpus[i].scheduler;
	pthread_mutex_lock(&dispatch->lock);
	visit(argument, schedulers, n);
	pthread_mutex_unlock(&dispatch->lock);
}

/* ---- counting, with the lock ---- */

static void add_duration(struct hb_duration *duration, int64_t ns)
{
	duration->count++;
	duration->ns += ns > 0 ? (uint64_t)ns : 0;
}

void hb_served_model_note_answer(struct hb_served_model *model, const struct hb_inference *infer)
{
	const struct hb_inference_times *times = &infer->times;
	struct hb_served_model_stats *stats = &model->stats;
	int64_t latency_ns = times->ended_ns - times->arrived_ns;
	stats->pending--;
	stats->answers[infer->priority][infer->answer]++;
	bool in_time = infer->answer == HB_ANSWER_OK && !(infer->deadline_ns > 0 && latency_ns > infer->deadline_ns);
	/* Other answers say nothing about the scheduler. */
	if (infer->answer == HB_ANSWER_OK || infer->answer == HB_ANSWER_LATE || infer->answer == HB_ANSWER_TIMEOUT)
		hb_in_time_share_note(&stats->in_time[infer->priority], in_time);
	add_duration(infer->answer == HB_ANSWER_OK ? &stats->success : &stats->fail, latency_ns);
	if (infer->answer != HB_ANSWER_OK)
		return;
	add_duration(&stats->queue, times->begun_ns - times->arrived_ns);
	add_duration(&stats->input, times->run_ns ? times->run_ns - times->begun_ns : 0);
	add_duration(&stats->infer, (times->out_ns ? times->out_ns : times->ended_ns) -
					    (times->run_ns ? times->run_ns : times->begun_ns));
	add_duration(&stats->output, times->out_ns ? times->ended_ns - times->out_ns : 0);
	stats->inferences += infer->items;
	stats->late[infer->priority] += !in_time;
	struct hb_hist **latency = &model->latency[infer->priority];
	if (!*latency)
		*latency = calloc(1, sizeof(**latency));
	if (*latency)
		hb_hist_record(*latency, latency_ns);
}

void hb_served_model_note_batch(struct hb_served_model *model, const struct hb_slot_times *times, uint32_t items,
				int64_t now_ns)
{
	struct timespec wall;
	if (items > HB_SCHEDULER_BATCH_MAX)
		return;
	clock_gettime(CLOCK_REALTIME_COARSE, &wall);
	model->stats.executions++;
	model->stats.ended_ms = (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000;
	int64_t run_ns = times->run_ns ? times->run_ns : times->begun_ns,
		out_ns = times->out_ns ? times->out_ns : now_ns;
	add_duration(&model->stats.batch[items].input, run_ns - times->begun_ns);
	add_duration(&model->stats.batch[items].infer, out_ns - run_ns);
	add_duration(&model->stats.batch[items].output, now_ns - out_ns);
}

/* ---- states ---- */

void hb_dispatch_list_pollable(struct hb_dispatch *dispatch)
{
	uint32_t n = 0;
	bool expects = false;
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		for (uint32_t i = 0; i < HB_SCHEDULER_MODELS_MAX; i++)
			if (gpu->backends[i].ops) {
				dispatch->pollable[n++] = (struct hb_served_replica){gpu, &gpu->backends[i]};
				expects |= gpu->backends[i].ops->expect != NULL;
			}
	dispatch->n_pollable = n;
	atomic_store(&dispatch->expects, expects);
}

static bool has_changed(const struct hb_served_model *model, enum hb_served_model_state state,
			const struct hb_backend *backend)
{
	return model->state != state ||
	       (state == HB_SERVED_MODEL_RESTARTING && strcmp(model->why, backend->why_failed) != 0);
}

void hb_dispatch_update_states(struct hb_dispatch *dispatch)
{
	for (uint32_t i = 0; i < dispatch->n_models; i++) {
		struct hb_served_model *model = dispatch->models[i];
		const struct hb_backend *backend;
		enum hb_served_model_state state = hb_dispatch_find_state(dispatch, model, &backend);
		if (!backend || model->state == HB_SERVED_MODEL_UNLOADING || !has_changed(model, state, backend))
			continue;
		model->state = state;
		snprintf(model->why, sizeof(model->why), "%s",
			 model->state == HB_SERVED_MODEL_READY || !backend->why_failed ? "" : backend->why_failed);
		pthread_cond_broadcast(&dispatch->state_changed);
	}
}

/* ---- loading, with the lock ---- */

static void describe_model(const struct hb_model_config *config, const struct hb_backend *backend,
			   struct hb_scheduler_model *out)
{
	*out = (struct hb_scheduler_model){.max_items = config->max_batch ? (uint32_t)config->max_batch : 1,
					   .run_guess_ns = (double)config->run_ns};
	memcpy(out->name, config->name, sizeof(out->name));
	for (uint32_t i = 0; i < config->n_inputs; i++)
		out->in_bytes += (double)hb_tensor_spec_bytes(&config->inputs[i]);
	for (uint32_t i = 0; i < config->n_outputs; i++)
		out->out_bytes += (double)hb_tensor_spec_bytes(&config->outputs[i]);
	memcpy(out->sm_demand, config->sm_share, sizeof(out->sm_demand));
	memcpy(out->memory_demand, config->memory_share, sizeof(out->memory_demand));
	out->stop_share = backend->ops->pause ? config->stop_share : 0;
	backend->ops->model(backend->self, 0, out);
}

static bool are_shares_equal(const double a[2], const double b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

static bool are_models_equal(const struct hb_scheduler_model *a, const struct hb_scheduler_model *b)
{
	return a->max_items == b->max_items && a->slots == b->slots && a->room_bytes == b->room_bytes &&
	       a->in_bytes == b->in_bytes && a->out_bytes == b->out_bytes &&
	       are_shares_equal(a->sm_demand, b->sm_demand) && are_shares_equal(a->memory_demand, b->memory_demand) &&
	       a->stop_share == b->stop_share;
}

/*
 * Chooses the scheduler's number for a model: the number of a closed model of the same name, else the next new number, else
 * the number of the model that was closed first.
 */
static uint32_t choose_number(struct hb_dispatch *dispatch, const char *name)
{
	const struct hb_predictor *predictor = hb_scheduler_predictor(dispatch->gpus->scheduler);
	uint32_t next = predictor->n_models, use = next;
	for (uint32_t i = 0; i < next; i++) {
		if (hb_dispatch_is_loaded(dispatch, i) || hb_dispatch_in_flight(dispatch, i))
			continue;
		if (strcmp(predictor->models[i].name, name) == 0)
			return i;
		if (next == HB_SCHEDULER_MODELS_MAX &&
		    (use == next || dispatch->closed_order[i] < dispatch->closed_order[use]))
			use = i;
	}
	return use;
}

/* Registers a model with the scheduler and returns its number. A reloaded, unchanged model keeps what was learned. */
static int register_model(struct hb_dispatch *dispatch, const struct hb_scheduler_model *described,
			  struct hb_error *error)
{
	const struct hb_predictor *predictor = hb_scheduler_predictor(dispatch->gpus->scheduler);
	uint32_t number = choose_number(dispatch, described->name);
	const struct hb_scheduler_model *before = number < predictor->n_models ? &predictor->models[number] : NULL;
	if (before && strcmp(before->name, described->name) == 0 && are_models_equal(before, described))
		return (int)number;
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		int result = before ? hb_scheduler_replace_model(gpu->scheduler, number, described, error)
				    : hb_scheduler_add_model(gpu->scheduler, described, error);
		if (result < 0)
			return result;
		hb_journal_model(gpu->journal, number, described);
	}
	return (int)number;
}

/* Lets the back end compute the times of batches of 1, 2, 4, ... `most` items before the first run, if it can. */
static void profile_model(struct hb_served_gpu *gpu, const struct hb_backend *backend, uint32_t number, uint32_t most)
{
	double stage_ns[HB_STAGES];
	if (!backend->ops->profile)
		return;
	for (uint32_t items = 1;; items = 2 * items < most ? 2 * items : most) {
		if (backend->ops->profile(backend->self, 0, items, stage_ns) == 0) {
			hb_scheduler_profiled(gpu->scheduler, number, items, stage_ns);
			hb_journal_profile(gpu->journal, number, items, stage_ns);
		}
		if (items >= most)
			return;
	}
}

static void list_model(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	struct hb_served_model *before = hb_dispatch_find(dispatch, model->config.name);
	uint32_t at = 0;
	while (at < dispatch->n_models && strcmp(dispatch->models[at]->config.name, model->config.name) < 0)
		at++;
	if (!before) {
		memmove(&dispatch->models[at + 1], &dispatch->models[at],
			(dispatch->n_models - at) * sizeof(*dispatch->models));
		dispatch->n_models++;
	}
	dispatch->models[at] = model;
	if (before && before->users == 0)
		free_model(before);
}

/* Removes the unloaded model that was closed first from the list. False: all models are loaded. */
static bool forget_oldest(struct hb_dispatch *dispatch)
{
	uint32_t first = dispatch->n_models;
	for (uint32_t i = 0; i < dispatch->n_models; i++) {
		const struct hb_served_model *model = dispatch->models[i];
		if (!hb_dispatch_is_loaded(dispatch, model->number) &&
		    (first == dispatch->n_models || model->closed_order < dispatch->models[first]->closed_order))
			first = i;
	}
	if (first == dispatch->n_models)
		return false;
	struct hb_served_model *model = dispatch->models[first];
	dispatch->n_models--;
	memmove(&dispatch->models[first], &dispatch->models[first + 1],
		(dispatch->n_models - first) * sizeof(*dispatch->models));
	if (model->users == 0)
		free_model(model);
	return true;
}

static int open_model(struct hb_dispatch *dispatch, struct hb_served_model *model, struct hb_error *error)
{
	struct hb_served_gpu *gpus[HB_ROUTE_GPUS_MAX];
	struct hb_backend backends[HB_ROUTE_GPUS_MAX] = {0};
	struct hb_scheduler_model described;
	uint32_t n = 0, opened = 0;
	int result = hb_dispatch_place_model(dispatch, &model->config, gpus, &n, error);
	for (; result == 0 && opened < n; opened += result == 0)
		result = platforms[model->config.platform]->open(&model->config, &gpus[opened]->shared,
								 &backends[opened], error);
	if (result == 0) {
		describe_model(&model->config, &backends[0], &described);
		hb_demand_describe(model, &described);
		result = register_model(dispatch, &described, error);
	}
	if (result < 0) {
		while (opened--)
			backends[opened].ops->close(backends[opened].self);
		return result;
	}
	model->number = (uint32_t)result;
	dispatch->of_number[model->number] = model;
	for (uint32_t i = 0; i < n; i++) {
		gpus[i]->backends[model->number] = backends[i];
		profile_model(gpus[i], &backends[i], model->number, described.max_items);
		hb_backend_watch(dispatch, &gpus[i]->backends[model->number], true);
	}
	hb_dispatch_list_pollable(dispatch);
	model->state = backends[0].state ? (enum hb_served_model_state) * backends[0].state : HB_SERVED_MODEL_READY;
	return 0;
}

int hb_dispatch_open_model(struct hb_dispatch *dispatch, struct hb_served_model *model, struct hb_error *error)
{
	const char *name = model->config.name;
	if (!hb_dispatch_find(dispatch, name) && dispatch->n_models == HB_SCHEDULER_MODELS_MAX &&
	    !forget_oldest(dispatch)) {
		int code = hb_error_set(error, -ENOSPC, "model %s: more than %d models are loaded", name,
					HB_SCHEDULER_MODELS_MAX);
		free(model);
		return code;
	}
	model->number = HB_SERVED_MODEL_NO_NUMBER;
	int result = open_model(dispatch, model, error);
	if (result < 0) {
		model->state = HB_SERVED_MODEL_FAILED;
		hb_served_model_note_closed(dispatch, model);
		snprintf(model->why, sizeof(model->why), "%s", error ? error->text : strerror(-result));
	}
	list_model(dispatch, model);
	hb_dispatch_wake(dispatch);
	return result;
}

/* ---- the dispatcher ---- */

static int load_at_start(struct hb_dispatch *dispatch, const char *name, struct hb_error *error)
{
	struct hb_served_model *model = calloc(1, sizeof(*model));
	int result = model ? hb_model_config_load(dispatch->models_folder, name, &model->config, error) : -ENOMEM;
	if (result == 0) {
		hb_demand_recall(dispatch, model);
		return hb_dispatch_open_model(dispatch, model, error);
	}
	free(model);
	return result;
}

static int load_folder(struct hb_dispatch *dispatch, struct hb_error *error)
{
	DIR *folder = opendir(dispatch->models_folder);
	const struct dirent *entry;
	if (!folder)
		return hb_error_set(error, -errno, "%s: %s", dispatch->models_folder, strerror(errno));
	while ((entry = readdir(folder))) {
		struct hb_error why = {.text = ""};
		if (entry->d_name[0] == '.' || !hb_served_model_name_fits(entry->d_name))
			continue;
		if (load_at_start(dispatch, entry->d_name, &why) < 0)
			hb_log_error("model %s is not served: %s", entry->d_name, why.text);
	}
	closedir(folder);
	if (dispatch->n_models == 0)
		return hb_error_set(error, -ENOENT, "%s: no model in it; each is a folder with a model.yaml",
				    dispatch->models_folder);
	return 0;
}

int hb_dispatch_set_policy(struct hb_dispatch *dispatch, const char *policy, struct hb_error *error)
{
	pthread_mutex_lock(&dispatch->lock);
	int result = hb_dispatch_set_policy_of_gpus(dispatch, policy, error);
	pthread_mutex_unlock(&dispatch->lock);
	return result;
}

static int set_up_dispatch(struct hb_dispatch *dispatch, const struct hb_dispatch_config *config,
			   struct hb_error *error)
{
	dispatch->drain_ns = config->drain_ns;
	dispatch->measures = !config->demands || strcmp(config->demands, "none") != 0;
	if (config->demands)
		snprintf(dispatch->demands_file, sizeof(dispatch->demands_file), "%s", config->demands);
	else
		hb_demand_file_choose(dispatch->demands_file, sizeof(dispatch->demands_file));
	snprintf(dispatch->models_folder, sizeof(dispatch->models_folder), "%s", config->models);
	int result = hb_dispatch_make_gpus(dispatch, config, error);
	if (result == 0)
		result = hb_timeout_heap_init(&dispatch->timeouts, (uint32_t)(dispatch->gpus_end - dispatch->gpus) *
									   HB_SCHEDULER_PRIORITIES * config->queue_max);
	if (result < 0)
		return result;
	dispatch->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dispatch->epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = dispatch->doorbell};
	if (dispatch->doorbell < 0 || dispatch->epoll < 0 ||
	    epoll_ctl(dispatch->epoll, EPOLL_CTL_ADD, dispatch->doorbell, &event) < 0)
		return hb_error_set(error, -errno, "epoll: %s", strerror(errno));
	return load_folder(dispatch, error);
}

int hb_dispatch_new(const struct hb_dispatch_config *config, struct hb_dispatch **out, struct hb_error *error)
{
	struct hb_dispatch *dispatch = calloc(1, sizeof(*dispatch));
	if (!dispatch)
		return hb_error_set(error, -ENOMEM, "out of memory");
	pthread_mutex_init(&dispatch->lock, NULL);
	hb_condition_init(&dispatch->state_changed);
	dispatch->doorbell = dispatch->epoll = -1;
	dispatch->next_ns = dispatch->armed_ns = INT64_MAX;
	int result = set_up_dispatch(dispatch, config, error);
	if (result == 0) {
		result = -pthread_create(&dispatch->thread, NULL, hb_dispatch_run, dispatch);
		dispatch->runs = result == 0;
		if (result == 0)
			result = -pthread_create(&dispatch->loading, NULL, hb_dispatch_run_loads, dispatch);
		dispatch->runs_loads = result == 0;
		if (result < 0)
			hb_error_set(error, result, "thread: %s", strerror(-result));
	}
	if (result < 0) {
		hb_dispatch_free(dispatch);
		return result;
	}
	*out = dispatch;
	return 0;
}

static void stop_threads(struct hb_dispatch *dispatch)
{
	pthread_mutex_lock(&dispatch->lock);
	dispatch->stopping = dispatch->ending = true;
	hb_dispatch_wake(dispatch);
	pthread_cond_broadcast(&dispatch->state_changed);
	pthread_mutex_unlock(&dispatch->lock);
	if (dispatch->runs_loads)
		pthread_join(dispatch->loading, NULL);
	if (dispatch->runs)
		pthread_join(dispatch->thread, NULL);
}

static uint64_t count_pending(const struct hb_dispatch *dispatch)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		n += dispatch->models[i]->stats.pending;
	return n;
}

void hb_dispatch_end(struct hb_dispatch *dispatch, int64_t grace_ns)
{
	int64_t until_ns = hb_clock_now_ns() + grace_ns;
	const struct timespec nap = {.tv_nsec = 5000000};
	pthread_mutex_lock(&dispatch->lock);
	dispatch->ending = true;
	pthread_cond_broadcast(&dispatch->state_changed); /* the loading thread ends the requests to load a model */
	while (count_pending(dispatch) && hb_clock_now_ns() < until_ns) {
		pthread_mutex_unlock(&dispatch->lock);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&dispatch->lock);
	}
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		hb_served_model_close(dispatch, dispatch->models[i]);
	hb_dispatch_wake(dispatch); /* the thread calls done() of the requests that closing the models has answered */
	pthread_mutex_unlock(&dispatch->lock);
}

void hb_dispatch_free(struct hb_dispatch *dispatch)
{
	if (!dispatch)
		return;
	stop_threads(dispatch);
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		hb_served_model_close(dispatch, dispatch->models[i]);
	hb_dispatch_report_ended(hb_dispatch_take_ended(dispatch), NULL);
	hb_demand_file_finish(WORKERS_WAIT_NS);
	uint32_t left = hb_worker_processes_await(WORKERS_WAIT_NS);
	if (left)
		hb_log_warning("%u workers were killed and have not ended", left);
	for (uint32_t i = 0; i < dispatch->n_models; i++)
		free_model(dispatch->models[i]);
	hb_timeout_heap_fini(&dispatch->timeouts);
	hb_dispatch_free_gpus(dispatch);
	if (dispatch->doorbell >= 0)
		close(dispatch->doorbell);
	if (dispatch->epoll >= 0)
		close(dispatch->epoll);
	pthread_mutex_destroy(&dispatch->lock);
	pthread_cond_destroy(&dispatch->state_changed);
	free(dispatch);
}
