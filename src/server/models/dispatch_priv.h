/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher's inside, for dispatch*.c only: dispatch.c runs requests, dispatch_models.c loads and counts. */
#ifndef HB_FRONT_DISPATCH_PRIV_H
#define HB_FRONT_DISPATCH_PRIV_H

#include "server/backends/backend.h"
#include "server/models/timeout_heap.h"
#include "server/models/dispatch.h"
#include "server/models/journal.h"

#include <pthread.h>

/* Of a model that could not be opened: backends[] has a place for it, which stays empty. */
#define HB_MODEL_NO_NUMBER HB_SCHEDULER_MODELS_MAX

struct hb_slot_times {
	int64_t begun_ns, run_ns, out_ns; /* 0 = that stage was not reported */
};

struct hb_dispatch {
	pthread_mutex_t lock;
	pthread_cond_t state_changed;
	pthread_t thread;
	bool runs, stopping;
	bool ending; /* takes no new request */
	int epoll, bell;
	int64_t next_ns;  /* when something is to be done */
	int64_t drain_ns; /* for batches whose model is unloaded */
	uint32_t n_draining;
	int64_t armed_ns; /* when the thread wakes by itself; INT64_MIN = it is awake or being woken */
	char models_folder[1024];
	struct hb_scheduler *scheduler;
	struct hb_journal *journal; /* NULL = none */
	struct hb_inference *ended; /* to be told, without the lock */
	struct hb_timeout_heap cuts;
	uint32_t n_models;
	struct hb_served_model *models[HB_SCHEDULER_MODELS_MAX];
	struct hb_served_model *of_number[HB_SCHEDULER_MODELS_MAX]; /* while it is loaded */
	uint64_t n_left,
		left[HB_SCHEDULER_MODELS_MAX]; /* counts models that were closed; when each number's last was */
	struct hb_backend backends[HB_SCHEDULER_MODELS_MAX + 1]; /* by the scheduler's number; ops NULL = not loaded */
	struct hb_slot_times slots[HB_SCHEDULER_FLIGHTS_MAX];
	struct hb_backend_shared shared;
	atomic_bool expects; /* a back end wants to know of requests that begin to arrive */
	uint32_t n_pollable;
	const struct hb_backend *pollable[HB_SCHEDULER_MODELS_MAX]; /* those of backends[] that are loaded */
};

/* With the lock held. */
void hb_dispatch_advance(struct hb_dispatch *dispatch, int64_t now_ns);
void hb_dispatch_wake(struct hb_dispatch *dispatch);
void hb_dispatch_update_states(struct hb_dispatch *dispatch);
/* Ends the requests of a model: queued ones, or those in batches. */
void hb_dispatch_answer_waiting(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why);
void hb_dispatch_answer_running(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why);
/* NULL = none is listed under that name. */
struct hb_served_model *hb_dispatch_find(struct hb_dispatch *dispatch, const char *name);
/* After any change of backends[]. */
void hb_dispatch_list_pollable(struct hb_dispatch *dispatch);
void hb_backend_watch(struct hb_dispatch *dispatch, const struct hb_backend *backend, bool watched);
/* It is in use no more: counts it. */
void hb_served_model_note_left(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* At once: requests of the model that wait or run are told. No effect on one that is not loaded. */
void hb_served_model_close(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Closes models that are unloaded and of which nothing runs any more, or whose time is over. True: any was closed. */
bool hb_dispatch_end_drains(struct hb_dispatch *dispatch, int64_t now_ns);
/* When the time of the first is over. */
int64_t hb_dispatch_drain_moment(const struct hb_dispatch *dispatch);
/*
 * Unloads the model of that name, where there is one, and waits for it; leaves the lock meanwhile. 0; -ETIMEDOUT
 * (CLOCK_MONOTONIC), -ESHUTDOWN, with *error.
 */
int hb_dispatch_await_unloaded(struct hb_dispatch *dispatch, const char *name, const struct timespec *until,
			       struct hb_error *error);
/* One user less; a model that is listed no more goes with its last. */
void hb_served_model_drop(struct hb_dispatch *dispatch, struct hb_served_model *model);
struct hb_inference *hb_dispatch_take_ended(struct hb_dispatch *dispatch);
void hb_served_model_note_answer(struct hb_served_model *model, const struct hb_inference *infer);
void hb_served_model_note_batch(struct hb_served_model *model, const struct hb_slot_times *times, uint32_t items,
				int64_t now_ns);

/* Without the lock. Whether `self` was among them: its caller is told by the result instead. */
bool hb_dispatch_report_ended(struct hb_inference *ended, const struct hb_inference *self);
void *hb_dispatch_run(void *dispatch);

#endif
