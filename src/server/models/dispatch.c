/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs requests; see dispatch.h. Every thread that takes the lock also advances
 * the state (hb_dispatch_advance): it carries out the scheduler's actions and
 * handles events of back ends and time-outs. Requests that end are collected;
 * their done() is called after the lock was released. The dispatcher's thread
 * sleeps until the next timer or event.
 */
#include "server/models/demand_trial.h"
#include "server/models/dispatch_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/newer_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- answers ---- */

static void remove_from_heap(struct hb_dispatch *dispatch, struct hb_inference *infer)
{
	if (infer->heap_place != UINT32_MAX)
		hb_timeout_heap_remove(&dispatch->timeouts, infer);
}

/* Ends a request whose answer was stored in *infer. Called with the lock held. */
static void answer_request(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns)
{
	infer->answered = true;
	infer->handle = 0;
	infer->times.ended_ns = now_ns;
	remove_from_heap(dispatch, infer);
	hb_served_model_note_answer(infer->model, infer);
	infer->next = dispatch->ended;
	dispatch->ended = infer;
}

bool hb_dispatch_report_ended(struct hb_inference *ended, const struct hb_inference *self)
{
	bool found = false;
	while (ended) {
		struct hb_inference *next = ended->next;
		if (ended == self)
			found = true;
		else
			ended->done(ended);
		ended = next;
	}
	return found;
}

struct hb_inference *hb_dispatch_take_ended(struct hb_dispatch *dispatch)
{
	struct hb_inference *ended = dispatch->ended;
	dispatch->ended = NULL;
	return ended;
}

/* ---- batches ---- */

/* How a batch ended. */
struct batch_end {
	bool complete; /* with results */
	enum hb_batch_loss loss;
	const char *why; /* without results: the reason */
};

/* Returns what the scheduler must know of a request. */
static struct hb_scheduler_request describe_request(const struct hb_inference *infer)
{
	return (struct hb_scheduler_request){
		.cookie = (uintptr_t)infer,
		.model = infer->model->number,
		.items = infer->items,
		.priority = infer->priority,
		.deadline_ns = infer->deadline_ns > 0 ? infer->times.arrived_ns + infer->deadline_ns : INT64_MAX,
		.room_bytes = infer->open_bytes,
	};
}

/* Queues a request, which no scheduler has, on this GPU; HB_ROUTE_GPUS_MAX = none. Returns false if it cannot take it. */
static bool give_request(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns, uint32_t gpu)
{
	struct hb_scheduler_request request = describe_request(infer);
	request.moved = true;
	infer->handle = gpu < HB_ROUTE_GPUS_MAX ? hb_scheduler_submit(dispatch->gpus[gpu].scheduler, now_ns, &request)
						: 0;
	if (!infer->handle)
		return false;
	infer->gpu = gpu;
	infer->answer = HB_ANSWER_OK;
	infer->reason[0] = '\0';
	return true;
}

/*
 * Queues a request again whose worker was lost: on another replica if one runs, else where one will be started. Returns
 * false if no replica can take it.
 */
static bool move_request(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns)
{
	const struct hb_scheduler_request request = describe_request(infer);
	bool moved = infer->model->state == HB_SERVED_MODEL_READY &&
		     give_request(dispatch, infer, now_ns, hb_dispatch_route(dispatch, now_ns, &request));
	infer->model->stats.moved += moved;
	return moved;
}

/*
 * Returns whether a request of a lost batch continues on another replica. A request that may itself have ended its worker
 * gets one more.
 */
static bool survives_loss(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns,
			  enum hb_batch_loss loss)
{
	if (loss == HB_BATCH_NOT_LOST || infer->answered || infer->model->config.replicas < 2)
		return false;
	if (loss == HB_BATCH_LOST_RUNNING && infer->lost_runs++)
		return false;
	return move_request(dispatch, infer, now_ns);
}

/* Moves queued requests away from replicas that do not run, if another replica runs. */
static void move_stranded(struct hb_dispatch *dispatch, int64_t now_ns)
{
	for (const struct hb_served_replica *replica = dispatch->pollable;
	     replica != dispatch->pollable + dispatch->n_pollable; replica++) {
		uint32_t number = (uint32_t)(replica->backend - replica->gpu->backends);
		const struct hb_served_model *model = dispatch->of_number[number];
		uint64_t cookie;
		if (model->config.replicas < 2 || hb_served_replica_runs(replica->backend) ||
		    model->state != HB_SERVED_MODEL_READY || !hb_dispatch_runs(dispatch, number))
			continue;
		while (hb_scheduler_cancel_any(replica->gpu->scheduler, number, &cookie)) {
			struct hb_inference *infer = hb_backend_inference(cookie);
			if (move_request(dispatch, infer, now_ns))
				continue;
			hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "the queues of the other replicas are full");
			answer_request(dispatch, infer, now_ns);
		}
	}
}

/* Gives a waiting request to each idle GPU that has a running replica of its model. Returns whether it has moved any. */
static bool balance_gpus(struct hb_dispatch *dispatch, int64_t now_ns)
{
	bool any = false;
	uint64_t cookie;
	for (const struct hb_served_replica *replica = dispatch->pollable;
	     replica != dispatch->pollable + dispatch->n_pollable; replica++) {
		uint32_t number = (uint32_t)(replica->backend - replica->gpu->backends);
		uint32_t from = hb_served_replica_runs(replica->backend)
					? hb_dispatch_find_waiting(dispatch, replica->gpu, number)
					: HB_ROUTE_GPUS_MAX;
		if (from == HB_ROUTE_GPUS_MAX ||
		    !hb_scheduler_cancel_any(dispatch->gpus[from].scheduler, number, &cookie))
			continue;
		struct hb_inference *infer = hb_backend_inference(cookie);
		/* The idle GPU has room: nothing is admitted there. */
		any |= give_request(dispatch, infer, now_ns, replica->gpu->shared.index);
	}
	return any;
}

static void end_batch(struct hb_dispatch *dispatch, struct hb_served_gpu *gpu, int64_t now_ns, uint32_t slot,
		      const struct batch_end *end)
{
	const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(gpu->scheduler, slot);
	if (!batch)
		return;
	struct hb_served_model *model = dispatch->of_number[batch->model];
	if (end->complete)
		hb_served_model_note_batch(model, &gpu->slots[slot], batch->items, now_ns);
	for (uint32_t i = 0; i < batch->n_requests; i++) {
		struct hb_inference *infer = hb_backend_inference(batch->cookies[i]);
		if (!infer->answered && !survives_loss(dispatch, infer, now_ns, end->loss)) {
			if (!end->complete && infer->answer == HB_ANSWER_OK)
				hb_inference_fail(infer, HB_ANSWER_BROKEN, "%s", end->why);
			infer->times.run_ns = gpu->slots[slot].run_ns;
			infer->times.out_ns = gpu->slots[slot].out_ns;
			answer_request(dispatch, infer, now_ns);
		}
		hb_served_model_drop(dispatch, infer->model);
		hb_inference_free(infer);
	}
	hb_scheduler_end(gpu->scheduler, now_ns, slot, end->complete);
	hb_journal_end(gpu->journal, now_ns, slot, end->complete);
}

static void note_stage(struct hb_served_gpu *gpu, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage)
{
	hb_scheduler_stage(gpu->scheduler, now_ns, slot, stage);
	hb_journal_stage(gpu->journal, now_ns, slot, stage);
}

static void start_batch(struct hb_dispatch *dispatch, struct hb_served_gpu *gpu, int64_t now_ns, uint32_t slot)
{
	const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(gpu->scheduler, slot);
	struct hb_backend *backend = &gpu->backends[batch->model];
	gpu->slots[slot] = (struct hb_slot_times){.begun_ns = now_ns};
	hb_journal_start(gpu->journal, now_ns, slot, batch);
	for (uint32_t i = 0; i < batch->n_requests; i++) {
		struct hb_inference *infer = hb_backend_inference(batch->cookies[i]);
		infer->handle = 0;
		infer->slot = slot;
		infer->times.begun_ns = now_ns;
		infer->model->users++;
		atomic_fetch_add(&infer->holders, 1);
		if (!backend->ops)
			hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "the model was unloaded");
	}
	/* Without separate copies, the run stage begins at once. */
	if (hb_scheduler_predictor(gpu->scheduler)->models[batch->model].in_bytes <= 0)
		note_stage(gpu, now_ns, slot, HB_STAGE_RUN);
	int result = backend->ops ? backend->ops->start(backend->self, now_ns, slot, 0, batch) : -ENODEV;
	if (result < 0)
		end_batch(dispatch, gpu, now_ns, slot, &(struct batch_end){.why = strerror(-result)});
}

static void refuse_request(struct hb_dispatch *dispatch, int64_t now_ns, const struct hb_scheduler_action *action)
{
	struct hb_inference *infer = hb_backend_inference(action->cookie);
	if (action->reason == HB_SCHEDULER_TIMEOUT)
		hb_inference_fail(infer, HB_ANSWER_TIMEOUT, "the deadline has passed while the request was waiting");
	else
		hb_inference_fail(
			infer, HB_ANSWER_LATE,
			"refused: it would miss its deadline; predicted finish in %.3f ms (+- %.3f ms), deadline in %.3f ms",
			(double)(action->finish_ns - now_ns) / 1e6, (double)action->error_ns / 1e6,
			(double)(infer->times.arrived_ns + infer->deadline_ns - now_ns) / 1e6);
	answer_request(dispatch, infer, now_ns);
}

static void pause_batch(struct hb_served_gpu *gpu, int64_t now_ns, uint32_t slot, bool paused)
{
	const struct hb_backend *backend = &gpu->backends[hb_scheduler_batch_get(gpu->scheduler, slot)->model];
	hb_journal_pause(gpu->journal, now_ns, slot, paused);
	if (backend->ops && backend->ops->pause)
		backend->ops->pause(backend->self, now_ns, slot, paused);
}

static void carry_out_action(struct hb_dispatch *dispatch, struct hb_served_gpu *gpu, int64_t now_ns,
			     const struct hb_scheduler_action *action)
{
	switch (action->kind) {
	case HB_SCHEDULER_START:
		start_batch(dispatch, gpu, now_ns, action->slot);
		break;
	case HB_SCHEDULER_REFUSE:
		refuse_request(dispatch, now_ns, action);
		break;
	case HB_SCHEDULER_PAUSE:
	case HB_SCHEDULER_RESUME:
		pause_batch(gpu, now_ns, action->slot, action->kind == HB_SCHEDULER_PAUSE);
		break;
	}
}

static void handle_event(struct hb_dispatch *dispatch, struct hb_served_gpu *gpu, int64_t now_ns,
			 const struct hb_scheduler_provider_event *event)
{
	struct hb_slot_times *times = &gpu->slots[event->slot];
	if (event->stage == HB_STAGES) {
		end_batch(dispatch, gpu, now_ns, event->slot,
			  &(struct batch_end){event->complete, event->loss, "the back end of the model failed"});
		return;
	}
	if (event->stage == HB_STAGE_RUN)
		times->run_ns = now_ns;
	else if (event->stage == HB_STAGE_OUT)
		times->out_ns = now_ns;
	note_stage(gpu, now_ns, event->slot, event->stage);
}

static bool poll_backends(struct hb_dispatch *dispatch, int64_t now_ns)
{
	struct hb_scheduler_provider_event event;
	bool any = false;
	for (uint32_t i = 0; i < dispatch->n_pollable; i++) {
		const struct hb_served_replica *replica = &dispatch->pollable[i];
		while (replica->backend->ops->poll(replica->backend->self, now_ns, &event)) {
			handle_event(dispatch, replica->gpu, now_ns, &event);
			any = true;
		}
	}
	return any;
}

/* ---- time ---- */

static bool is_queued(const struct hb_inference *infer)
{
	return infer->handle != 0;
}

/* Cancels the batch if all its requests are answered already and the back end can cancel. */
static void cancel_if_unwanted(struct hb_served_gpu *gpu, uint32_t slot, int64_t now_ns)
{
	const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(gpu->scheduler, slot);
	for (uint32_t i = 0; i < batch->n_requests; i++)
		if (!hb_backend_inference(batch->cookies[i])->answered)
			return;
	const struct hb_backend *backend = &gpu->backends[batch->model];
	if (backend->ops && backend->ops->cancel)
		backend->ops->cancel(backend->self, now_ns, slot);
}

/* Answers a request before its batch ends. A queued request is removed; the batch of a running one continues. */
static void answer_early(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns)
{
	struct hb_served_gpu *gpu = &dispatch->gpus[infer->gpu];
	bool queued = is_queued(infer);
	if (queued)
		hb_scheduler_cancel(gpu->scheduler, now_ns, infer->handle);
	answer_request(dispatch, infer, now_ns);
	if (!queued)
		cancel_if_unwanted(gpu, infer->slot, now_ns);
}

static void answer_timeouts(struct hb_dispatch *dispatch, int64_t now_ns)
{
	struct hb_inference *first;
	while ((first = hb_timeout_heap_first(&dispatch->timeouts)) && first->expires_ns <= now_ns) {
		hb_inference_fail(first, HB_ANSWER_TIMEOUT, "time-out after %.3f ms%s",
				  (double)(now_ns - first->times.arrived_ns) / 1e6,
				  is_queued(first) ? ", while it was waiting" : "");
		answer_early(dispatch, first, now_ns);
	}
}

static int64_t find_next_ns(struct hb_dispatch *dispatch, int64_t now_ns)
{
	int64_t next_ns = hb_dispatch_next_close_ns(dispatch), trial_ns = hb_demand_next_ns(dispatch, now_ns);
	next_ns = trial_ns < next_ns ? trial_ns : next_ns;
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++) {
		int64_t wake_ns = hb_scheduler_next_wake_ns(gpu->scheduler);
		next_ns = wake_ns < next_ns ? wake_ns : next_ns;
	}
	const struct hb_inference *first = hb_timeout_heap_first(&dispatch->timeouts);
	if (first && first->expires_ns < next_ns)
		next_ns = first->expires_ns;
	for (uint32_t i = 0; i < dispatch->n_pollable; i++) {
		const struct hb_backend *backend = dispatch->pollable[i].backend;
		int64_t at_ns = backend->ops->next_ns ? backend->ops->next_ns(backend->self) : INT64_MAX;
		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

void hb_dispatch_advance(struct hb_dispatch *dispatch, int64_t now_ns)
{
	struct hb_scheduler_action action;
	do {
		answer_timeouts(dispatch, now_ns);
		move_stranded(dispatch, now_ns);
		for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
			while (hb_scheduler_step(gpu->scheduler, now_ns, &action))
				carry_out_action(dispatch, gpu, now_ns, &action);
	} while (poll_backends(dispatch, now_ns) || hb_dispatch_close_drained(dispatch, now_ns) ||
		 balance_gpus(dispatch, now_ns));
	hb_dispatch_update_states(dispatch);
	hb_demand_advance(dispatch, now_ns);
	int64_t next_ns = find_next_ns(dispatch, now_ns);
	if (next_ns < dispatch->armed_ns)
		hb_dispatch_wake(dispatch);
	dispatch->next_ns = next_ns;
}

void hb_dispatch_wake(struct hb_dispatch *dispatch)
{
	dispatch->armed_ns = INT64_MIN; /* no second ring is needed until the thread has run */
	while (eventfd_write(dispatch->doorbell, 1) != 0 && errno == EINTR)
		;
}

/* ---- for HTTP and gRPC ---- */

/*
 * Returns whether a low-priority request is refused because memory is scarce. High-priority requests need memory
 * already while they are being read, so waiting low-priority requests must leave some. If no other low-priority request
 * is admitted, one may use all memory.
 */
static bool lacks_memory(const struct hb_dispatch *dispatch, const struct hb_inference *infer)
{
	const struct hb_memory_budget *budget = infer->charge.budget;
	return infer->priority == HB_SCHEDULER_LOW && budget && hb_memory_reserve_in_use(budget) &&
	       hb_dispatch_admitted(dispatch, HB_SCHEDULER_LOW) > 0;
}

/* Submits the request to the scheduler. Returns its handle; 0 = refused, and the answer is in *infer. */
static uint64_t submit_to_scheduler(struct hb_dispatch *dispatch, struct hb_inference *infer, int64_t now_ns,
				    const struct hb_scheduler_request *request)
{
	const char *why = dispatch->ending                               ? "the server is going down"
			  : infer->model->state != HB_SERVED_MODEL_READY ? "the model is not ready"
									 : NULL;
	uint64_t handle = 0;
	bool full = hb_dispatch_admitted(dispatch, infer->priority) >=
		    hb_scheduler_queue_max(dispatch->gpus->scheduler);
	infer->gpu = why || full ? 0 : hb_dispatch_route(dispatch, now_ns, request);
	if (infer->gpu == HB_ROUTE_GPUS_MAX) { /* the model's state was read before its last replica ended */
		infer->gpu = 0;
		why = "the model is not ready";
	}
	if (why)
		hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "%s", why);
	else if (lacks_memory(dispatch, infer))
		hb_inference_fail_memory_full(infer);
	else if (full)
		hb_scheduler_note_full(dispatch->gpus->scheduler, infer->priority);
	else
		handle = hb_scheduler_submit(dispatch->gpus[infer->gpu].scheduler, now_ns, request);
	if (!handle && infer->answer == HB_ANSWER_OK)
		hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "the queue of %s priority is full",
				  infer->priority == HB_SCHEDULER_HIGH ? "high" : "low");
	return handle;
}

bool hb_dispatch_submit(struct hb_dispatch *dispatch, struct hb_inference *infer)
{
	int64_t now_ns = hb_clock_now_ns();
	struct hb_served_model *model = infer->model;
	if (!infer->times.arrived_ns)
		infer->times.arrived_ns = now_ns;
	pthread_mutex_lock(&dispatch->lock);
	if (infer->priority == HB_SCHEDULER_PRIORITIES)
		infer->priority = (enum hb_scheduler_priority)model->config.priority;
	if (infer->deadline_ns == 0)
		infer->deadline_ns = model->config.deadline_ns;
	const struct hb_scheduler_request request = describe_request(infer);
	model->stats.pending++;
	infer->handle = submit_to_scheduler(dispatch, infer, now_ns, &request);
	if (!infer->handle) {
		answer_request(dispatch, infer, now_ns);
	} else if (infer->timeout_ns > 0) {
		infer->expires_ns = infer->times.arrived_ns + infer->timeout_ns;
		hb_timeout_heap_insert(&dispatch->timeouts, infer);
	}
	hb_dispatch_advance(dispatch, now_ns);
	struct hb_inference *ended = hb_dispatch_take_ended(dispatch);
	pthread_mutex_unlock(&dispatch->lock);
	return hb_dispatch_report_ended(ended, infer);
}

void hb_dispatch_cancel(struct hb_dispatch *dispatch, struct hb_inference *infer)
{
	int64_t now_ns = hb_clock_now_ns();
	pthread_mutex_lock(&dispatch->lock);
	if (!infer->answered) {
		hb_inference_fail(infer, HB_ANSWER_CANCELLED, "the client has gone");
		answer_early(dispatch, infer, now_ns);
		hb_dispatch_advance(dispatch, now_ns);
	}
	struct hb_inference *ended = hb_dispatch_take_ended(dispatch);
	pthread_mutex_unlock(&dispatch->lock);
	hb_dispatch_report_ended(ended, NULL);
}

/* ---- the thread ---- */

static void wait_for_events(struct hb_dispatch *dispatch, int64_t next_ns)
{
	struct epoll_event events[16];
	struct timespec wait = {0};
	int64_t left_ns = next_ns == INT64_MAX ? INT64_MAX : next_ns - hb_clock_now_ns();
	eventfd_t value;
	if (left_ns > 0 && left_ns != INT64_MAX)
		wait = (struct timespec){.tv_sec = left_ns / HB_NS_PER_S, .tv_nsec = left_ns % HB_NS_PER_S};
	int n = hb_epoll_wait(dispatch->epoll, events, 16, left_ns == INT64_MAX ? NULL : &wait);
	for (int i = 0; i < n; i++)
		if (events[i].data.fd == dispatch->doorbell)
			eventfd_read(dispatch->doorbell, &value);
}

void *hb_dispatch_run(void *argument)
{
	struct hb_dispatch *dispatch = argument;
	pthread_mutex_lock(&dispatch->lock);
	while (!dispatch->stopping) {
		hb_dispatch_advance(dispatch, hb_clock_now_ns());
		struct hb_inference *ended = hb_dispatch_take_ended(dispatch);
		int64_t next_ns = dispatch->armed_ns = dispatch->next_ns;
		pthread_mutex_unlock(&dispatch->lock);
		hb_dispatch_report_ended(ended, NULL);
		wait_for_events(dispatch, next_ns);
		pthread_mutex_lock(&dispatch->lock);
	}
	pthread_mutex_unlock(&dispatch->lock);
	return NULL;
}

/* ---- answers when a model is unloaded, with the lock ---- */

void hb_dispatch_answer_running(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why)
{
	int64_t now_ns = hb_clock_now_ns();
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
			const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(gpu->scheduler, slot);
			if (batch && batch->model == model->number)
				end_batch(dispatch, gpu, now_ns, slot, &(struct batch_end){.why = why});
		}
}

void hb_dispatch_answer_waiting(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why)
{
	int64_t now_ns = hb_clock_now_ns();
	uint64_t cookie;
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		while (hb_scheduler_cancel_any(gpu->scheduler, model->number, &cookie)) {
			struct hb_inference *infer = hb_backend_inference(cookie);
			hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "%s", why);
			answer_request(dispatch, infer, now_ns);
		}
}
