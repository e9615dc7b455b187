/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of load requests and the loading thread; see dispatch_load.h. Other
 * threads append requests and cancel them; only the loading thread removes them
 * from the queue. It looks at all of them whenever the state of a model changes.
 */
#include "server/models/dispatch_load.h"

#include "base/clock.h"
#include "base/thread.h"
#include "server/kserve/parameters.h"
#include "server/models/demand_trial.h"
#include "server/models/dispatch_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_WAIT_S 120

/* ---- requests ---- */

struct hb_load *hb_load_new(const char *name, void (*done)(struct hb_load *load), void *owner)
{
	struct hb_load *load = calloc(1, sizeof(*load));
	if (!load)
		return NULL;
	snprintf(load->name, sizeof(load->name), "%s", name);
	load->done = done;
	load->owner = owner;
	load->holders = 1;
	return load;
}

void hb_load_free(struct hb_load *load)
{
	if (!load || atomic_fetch_sub(&load->holders, 1) != 1)
		return;
	free(load->model);
	free(load);
}

/* ---- the steps of a request, with the lock ---- */

static void end_load(struct hb_load *load, int result, const char *text)
{
	load->state = HB_LOAD_ENDED;
	if (!load->reported)
		load->result = result < 0 ? hb_error_set(&load->error, result, "%s", text) : 0;
}

/* Ends requests that wait for `first`, or lets them wait until the model is ready, as `first` does. */
static void join_loads(struct hb_dispatch *dispatch, const struct hb_load *first)
{
	for (struct hb_load *load = dispatch->loads; load; load = load->next) {
		if (load->state != HB_LOAD_QUEUED || load->serial > first->last_joined ||
		    strcmp(load->name, first->name) != 0)
			continue;
		if (first->state == HB_LOAD_ENDED)
			end_load(load, first->result, first->error.text);
		else
			load->state = HB_LOAD_WAITS;
	}
}

/* Opens the model of a request when the batches of the loaded one have ended. */
static void open_when_drained(struct hb_dispatch *dispatch, struct hb_load *load, int64_t now_ns)
{
	struct hb_error error = {.text = ""};
	bool late = now_ns >= load->until_ns;
	if (!hb_dispatch_try_unloaded(dispatch, load->name, !late)) {
		if (!late)
			return;
		hb_error_set(&error, -ETIMEDOUT, "model %s: batches of the loaded model still run", load->name);
		end_load(load, -ETIMEDOUT, error.text);
	} else {
		int result = hb_dispatch_open_model(dispatch, load->model, &error);
		load->model = NULL;
		load->state = HB_LOAD_WAITS;
		if (result < 0)
			end_load(load, result, error.text);
	}
	join_loads(dispatch, load);
}

static bool is_draining(const struct hb_dispatch *dispatch, const char *name)
{
	for (const struct hb_load *load = dispatch->loads; load; load = load->next)
		if (load->state == HB_LOAD_DRAINS && strcmp(load->name, name) == 0)
			return true;
	return false;
}

/* Reads the model's file, without the lock. */
static void begin_load(struct hb_dispatch *dispatch, struct hb_load *load)
{
	struct hb_error error = {.text = ""};
	uint64_t last = dispatch->load_serial;
	pthread_mutex_unlock(&dispatch->lock);
	struct hb_served_model *model = calloc(1, sizeof(*model));
	int result = model ? hb_model_config_load(dispatch->models_folder, load->name, &model->config, &error)
			   : hb_error_set(&error, -ENOMEM, "out of memory");
	if (result == 0)
		hb_demand_recall(dispatch, model);
	pthread_mutex_lock(&dispatch->lock);
	load->last_joined = last;
	dispatch->load_changes++; /* look at all requests again: a model's state may have changed without the lock */
	if (result < 0) {
		free(model);
		end_load(load, result, error.text);
		join_loads(dispatch, load);
	} else {
		load->model = model;
		load->state = HB_LOAD_DRAINS;
	}
}

static void check_ready(struct hb_dispatch *dispatch, struct hb_load *load, int64_t now_ns)
{
	const struct hb_served_model *model = hb_dispatch_find(dispatch, load->name);
	struct hb_error error = {.text = ""};
	if (model && model->state == HB_SERVED_MODEL_LOADING && now_ns < load->until_ns)
		return;
	int result = 0;
	if (model && model->state == HB_SERVED_MODEL_LOADING)
		result = hb_error_set(&error, -ETIMEDOUT, "model %s: still loading after %d s", load->name,
				      LOAD_WAIT_S);
	else if (!model || model->state != HB_SERVED_MODEL_READY)
		result = hb_error_set(&error, -EIO, "model %s: %s", load->name,
				      model ? model->why : "unloaded meanwhile");
	end_load(load, result, error.text);
}

static void advance_load(struct hb_dispatch *dispatch, struct hb_load *load, int64_t now_ns)
{
	if (dispatch->ending && load->state != HB_LOAD_ENDED)
		end_load(load, -ESHUTDOWN, HB_LOAD_NO_SERVER);
	else if (load->reported && load->state != HB_LOAD_DRAINS)
		load->state = HB_LOAD_ENDED; /* its client has gone */
	if (load->state == HB_LOAD_QUEUED && !is_draining(dispatch, load->name))
		begin_load(dispatch, load);
	if (load->state == HB_LOAD_DRAINS)
		open_when_drained(dispatch, load, now_ns);
	if (load->state == HB_LOAD_WAITS)
		check_ready(dispatch, load, now_ns);
}

/* ---- the thread ---- */

/* Removes the requests that have ended from the queue. Returns them as a list. */
static struct hb_load *take_ended_loads(struct hb_dispatch *dispatch)
{
	struct hb_load *ended = NULL, **place = &dispatch->loads;
	while (*place) {
		struct hb_load *load = *place;
		if (load->state != HB_LOAD_ENDED) {
			place = &load->next;
			continue;
		}
		*place = load->next;
		dispatch->n_loads--;
		load->next = ended;
		ended = load;
	}
	return ended;
}

/* Without the lock. */
static void report_load(struct hb_load *load, bool reported)
{
	if (!reported)
		load->done(load);
	hb_load_free(load);
}

static void report_ended_loads(struct hb_dispatch *dispatch, struct hb_load *ended)
{
	while (ended) {
		struct hb_load *load = ended;
		ended = load->next;
		bool reported = load->reported;
		load->reported = true;
		pthread_mutex_unlock(&dispatch->lock);
		report_load(load, reported);
		pthread_mutex_lock(&dispatch->lock);
	}
}

static void wait_for_change(struct hb_dispatch *dispatch)
{
	int64_t until_ns = INT64_MAX;
	for (const struct hb_load *load = dispatch->loads; load; load = load->next)
		until_ns = load->until_ns < until_ns ? load->until_ns : until_ns;
	hb_condition_wait_until(&dispatch->state_changed, &dispatch->lock, until_ns);
}

void *hb_dispatch_run_loads(void *argument)
{
	struct hb_dispatch *dispatch = argument;
	pthread_mutex_lock(&dispatch->lock);
	while (!dispatch->stopping || dispatch->loads) {
		uint64_t changes = dispatch->load_changes;
		for (struct hb_load *load = dispatch->loads; load; load = load->next)
			advance_load(dispatch, load, hb_clock_now_ns());
		struct hb_load *ended = take_ended_loads(dispatch);
		if (ended)
			report_ended_loads(dispatch, ended);
		else if (changes == dispatch->load_changes && !dispatch->stopping)
			wait_for_change(dispatch);
	}
	pthread_mutex_unlock(&dispatch->lock);
	return NULL;
}

/* ---- for HTTP and gRPC ---- */

int hb_dispatch_load(struct hb_dispatch *dispatch, struct hb_load *load, struct hb_error *error)
{
	int result = 0;
	struct hb_load **last = &dispatch->loads;
	load->until_ns = hb_clock_now_ns() + LOAD_WAIT_S * HB_NS_PER_S;
	pthread_mutex_lock(&dispatch->lock);
	if (dispatch->ending) {
		result = hb_error_set(error, -ESHUTDOWN, HB_LOAD_NO_SERVER);
	} else if (dispatch->n_loads == HB_LOADS_MAX) {
		result = hb_error_set(error, -EAGAIN, "%d load requests wait already; try again later", HB_LOADS_MAX);
	} else {
		while (*last)
			last = &(*last)->next;
		*last = load;
		dispatch->n_loads++;
		load->serial = ++dispatch->load_serial;
		atomic_fetch_add(&load->holders, 1);
		dispatch->load_changes++;
		pthread_cond_broadcast(&dispatch->state_changed);
	}
	pthread_mutex_unlock(&dispatch->lock);
	return result;
}

void hb_dispatch_cancel_load(struct hb_dispatch *dispatch, struct hb_load *load)
{
	pthread_mutex_lock(&dispatch->lock);
	bool reported = load->reported;
	if (!reported) {
		load->reported = true;
		load->result = hb_error_set(&load->error, -ECANCELED, "the client has gone");
		dispatch->load_changes++;
		pthread_cond_broadcast(&dispatch->state_changed);
	}
	pthread_mutex_unlock(&dispatch->lock);
	if (!reported)
		load->done(load);
}

uint32_t hb_dispatch_waiting_loads(struct hb_dispatch *dispatch)
{
	pthread_mutex_lock(&dispatch->lock);
	uint32_t n = dispatch->n_loads;
	pthread_mutex_unlock(&dispatch->lock);
	return n;
}
