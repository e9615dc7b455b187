/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unloading models. A model that is unloaded or loaded again accepts no new
 * request, and its queued requests are answered. Its running batches may end
 * within drain_ns. Then the model is closed, by the dispatcher's thread or by the
 * loading thread.
 */
#include "server/models/demand_trial.h"
#include "server/models/dispatch_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#define WHY "the model was unloaded"

/* ---- with the lock ---- */

void hb_backend_watch(struct hb_dispatch *dispatch, const struct hb_backend *backend, bool watched)
{
	int fd = backend->ops->descriptor ? backend->ops->descriptor(backend->self) : -1;
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	if (fd >= 0)
		epoll_ctl(dispatch->epoll, watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

void hb_served_model_note_closed(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	model->closed_order = ++dispatch->n_closed;
	if (model->number == HB_SERVED_MODEL_NO_NUMBER)
		return;
	dispatch->closed_order[model->number] = model->closed_order;
	dispatch->of_number[model->number] = NULL;
}

void hb_served_model_close(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	if (model->state == HB_SERVED_MODEL_UNLOADED)
		return;
	hb_demand_forget(dispatch, model);
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		struct hb_backend *backend = &gpu->backends[model->number];
		if (backend->ops) { /* the back end may use its requests until it is closed */
			hb_backend_watch(dispatch, backend, false);
			backend->ops->close(backend->self);
		}
		*backend = (struct hb_backend){0};
	}
	/* This must be done before another model can get the same number. */
	hb_dispatch_answer_waiting(dispatch, model, WHY);
	hb_dispatch_answer_running(dispatch, model, WHY);
	hb_served_model_note_closed(dispatch, model);
	hb_dispatch_list_pollable(dispatch);
	dispatch->n_draining -= model->state == HB_SERVED_MODEL_UNLOADING;
	model->state = HB_SERVED_MODEL_UNLOADED;
	snprintf(model->why, sizeof(model->why), "unloaded");
	pthread_cond_broadcast(&dispatch->state_changed); /* a thread may wait for the model to be loaded */
	hb_dispatch_wake(dispatch);                       /* the thread calls done() of the answered requests */
}

static bool has_running_batch(const struct hb_dispatch *dispatch, const struct hb_served_model *model)
{
	return model->number != HB_SERVED_MODEL_NO_NUMBER && hb_dispatch_in_flight(dispatch, model->number);
}

static void begin_unloading(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	if (model->state == HB_SERVED_MODEL_UNLOADING)
		return;
	hb_dispatch_answer_waiting(dispatch, model, WHY);
	model->state = HB_SERVED_MODEL_UNLOADING;
	snprintf(model->why, sizeof(model->why), "it is being unloaded: its running batches have not ended yet");
	model->close_ns = hb_clock_now_ns() + dispatch->drain_ns;
	model->drained = !has_running_batch(dispatch, model);
	model->reloads = false;
	dispatch->n_draining++;
	pthread_cond_broadcast(&dispatch->state_changed);
	hb_dispatch_wake(dispatch); /* the thread calls done() of the answered requests and closes the model in time */
}

bool hb_dispatch_close_drained(struct hb_dispatch *dispatch, int64_t now_ns)
{
	bool any = false;
	for (uint32_t i = 0; i < dispatch->n_models && dispatch->n_draining; i++) {
		struct hb_served_model *model = dispatch->models[i];
		if (model->state != HB_SERVED_MODEL_UNLOADING ||
		    (now_ns < model->close_ns && has_running_batch(dispatch, model)))
			continue;
		if (!model->reloads) {
			hb_served_model_close(dispatch, model);
			any = true;
		} else if (!model->drained) {
			model->drained = true;
			pthread_cond_broadcast(&dispatch->state_changed);
		}
	}
	return any;
}

int64_t hb_dispatch_next_close_ns(const struct hb_dispatch *dispatch)
{
	int64_t next_ns = INT64_MAX;
	for (uint32_t i = 0; i < dispatch->n_models && dispatch->n_draining; i++) {
		const struct hb_served_model *model = dispatch->models[i];
		if (model->state == HB_SERVED_MODEL_UNLOADING && !model->drained && model->close_ns < next_ns)
			next_ns = model->close_ns;
	}
	return next_ns;
}

bool hb_dispatch_try_unloaded(struct hb_dispatch *dispatch, const char *name, bool reloads)
{
	struct hb_served_model *model = hb_dispatch_find(dispatch, name);
	if (!model || model->state == HB_SERVED_MODEL_UNLOADED)
		return true;
	begin_unloading(dispatch, model);
	model->reloads = reloads;
	if (!model->drained)
		return false;
	hb_served_model_close(dispatch, model);
	return true;
}

/* ---- for HTTP and gRPC ---- */

int hb_dispatch_unload(struct hb_dispatch *dispatch, const char *name, struct hb_error *error)
{
	int result = 0;
	pthread_mutex_lock(&dispatch->lock);
	struct hb_served_model *model = hb_dispatch_find(dispatch, name);
	if (!model)
		result = hb_error_set(error, -ENOENT, "no model \"%s\"", name);
	else if (model->state != HB_SERVED_MODEL_UNLOADED)
		begin_unloading(dispatch, model);
	hb_dispatch_close_drained(dispatch, hb_clock_now_ns());
	pthread_mutex_unlock(&dispatch->lock);
	return result;
}
