/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal state of the dispatcher, for dispatch*.c only. dispatch.c runs
 * requests, dispatch_models.c opens models and counts, dispatch_load.c has the
 * requests to load them, dispatch_unload.c unloads.
 */
#ifndef HB_SERVER_DISPATCH_PRIV_H
#define HB_SERVER_DISPATCH_PRIV_H

#include "server/backends/backend.h"
#include "server/models/dispatch.h"
#include "server/models/journal.h"
#include "server/models/timeout_heap.h"

#include <pthread.h>

/* The number of a model that could not be opened. backends[] has an element for it, which stays empty. */
#define HB_SERVED_MODEL_NO_NUMBER HB_SCHEDULER_MODELS_MAX

/* When a batch began and entered its stages; 0 = that stage was not reported. */
struct hb_slot_times {
	int64_t begun_ns, run_ns, out_ns;
};

/*
 * One GPU and the host link to it: its own scheduler with its own predictor, and the back ends of the models that have a
 * replica on it. A model has the same number in the schedulers of all GPUs.
 */
struct hb_served_gpu {
	struct hb_scheduler *scheduler;
	struct hb_journal *journal; /* NULL = none */
	struct hb_backend
		backends[HB_SCHEDULER_MODELS_MAX + 1]; /* indexed by the scheduler's number; ops NULL = no replica */
	struct hb_slot_times slots[HB_SCHEDULER_FLIGHTS_MAX];
	struct hb_backend_shared shared;
};

struct hb_dispatch {
	pthread_mutex_t lock;
	pthread_cond_t state_changed;
	pthread_t thread, loading; /* runs requests; loads models */
	bool runs, runs_loads;     /* these threads were created */
	bool stopping;             /* both must end */
	bool ending;               /* accepts no new request */
	int epoll, doorbell;       /* doorbell: eventfd that wakes the thread */
	int64_t next_ns;           /* when hb_dispatch_advance() must be called next */
	int64_t drain_ns;          /* hb_dispatch_config.drain_ns */
	uint32_t n_draining;       /* models in state UNLOADING */
	int64_t armed_ns;          /* when the thread's timer expires; INT64_MIN = it is awake or being woken */
	char models_folder[1024];
	bool measures;                 /* the demands of models are measured */
	char demands_file[4096];       /* "" = none: what was measured is forgotten */
	struct hb_demand_trial *trial; /* NULL = none runs */
	struct hb_inference *ended;    /* list of answered requests whose done() must be called, without the lock */
	struct hb_timeout_heap timeouts;
	uint32_t n_models;
	struct hb_served_model *models[HB_SCHEDULER_MODELS_MAX];
	struct hb_served_model
		*of_number[HB_SCHEDULER_MODELS_MAX]; /* models, indexed by the scheduler's number; NULL = not loaded */
	uint64_t n_closed;                           /* counts closed models */
	uint64_t closed_order[HB_SCHEDULER_MODELS_MAX]; /* value of n_closed when a model with this number was closed */
	struct hb_served_gpu gpus[HB_ROUTE_GPUS_MAX], *gpus_end; /* gpus_end: behind the last one that is used */
	atomic_bool expects;                                     /* at least one back end has the function expect() */
	struct hb_load *loads; /* requests to load a model, in the order of their arrival */
	uint32_t n_loads;
	uint64_t load_serial, load_changes; /* counts load requests; counts changes of them by other threads */
	uint32_t n_pollable;
	struct hb_served_replica {
		struct hb_served_gpu *gpu;
		const struct hb_backend *backend;
	} pollable[HB_ROUTE_GPUS_MAX * HB_SCHEDULER_MODELS_MAX]; /* the loaded elements of backends[] of all GPUs */
};

/* All functions are called with the lock held, unless they say otherwise. */

/* Carries out the scheduler's actions, handles events of back ends and time-outs, until nothing is left to do. */
void hb_dispatch_advance(struct hb_dispatch *dispatch, int64_t now_ns);
/* Returns the number of requests of a priority that wait or run, on all GPUs. */
uint32_t hb_dispatch_admitted(const struct hb_dispatch *dispatch, enum hb_scheduler_priority priority);
/* Returns the number of batches in flight of a model number, on all GPUs. */
uint32_t hb_dispatch_in_flight(const struct hb_dispatch *dispatch, uint32_t number);
/* Returns whether a model with this number has a replica on at least one GPU. */
bool hb_dispatch_is_loaded(const struct hb_dispatch *dispatch, uint32_t number);
/* Creates the scheduler and the journal of each GPU. Returns 0, or negative errno with *error. */
int hb_dispatch_make_gpus(struct hb_dispatch *dispatch, const struct hb_dispatch_config *config,
			  struct hb_error *error);
void hb_dispatch_free_gpus(struct hb_dispatch *dispatch);
/*
 * Chooses the GPUs on which a model gets a replica: as many as `replicas` says, those with the fewest replicas of other
 * models. Stores them in `out` and the number in *n, and as config->replicas. Returns 0, or -EINVAL with *error.
 */
int hb_dispatch_place_model(struct hb_dispatch *dispatch, struct hb_model_config *config, struct hb_served_gpu **out,
			    uint32_t *n, struct hb_error *error);
/*
 * Returns the state of the model's replicas: that of the replica which is nearest to being ready. *backend is that replica;
 * NULL = none is loaded. Counts the restarts of all, and those that run.
 */
enum hb_served_model_state hb_dispatch_find_state(const struct hb_dispatch *dispatch, struct hb_served_model *model,
						  const struct hb_backend **backend);
/* Returns the index of the GPU from which an idle one takes a request (hb_route_find_waiting()). */
uint32_t hb_dispatch_find_waiting(struct hb_dispatch *dispatch, const struct hb_served_gpu *idle, uint32_t number);
/* Returns whether a replica of the model runs. */
bool hb_dispatch_runs(const struct hb_dispatch *dispatch, uint32_t number);
/* Returns whether the replica executes batches now. */
bool hb_served_replica_runs(const struct hb_backend *backend);
/* Returns the index of the GPU for a request: a replica that runs is preferred. HB_ROUTE_GPUS_MAX = no replica is ready. */
uint32_t hb_dispatch_route(struct hb_dispatch *dispatch, int64_t now_ns, const struct hb_scheduler_request *request);
/* Changes the policy on all GPUs, or on none. Returns 0, -EINVAL or -EBUSY, with *error. */
int hb_dispatch_set_policy_of_gpus(struct hb_dispatch *dispatch, const char *policy, struct hb_error *error);
/* Wakes the dispatcher's thread. */
void hb_dispatch_wake(struct hb_dispatch *dispatch);
/* Copies the states that the back ends report to the models. */
void hb_dispatch_update_states(struct hb_dispatch *dispatch);
/* Answers the requests of a model with an error: the queued ones, or those in batches. */
void hb_dispatch_answer_waiting(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why);
void hb_dispatch_answer_running(struct hb_dispatch *dispatch, const struct hb_served_model *model, const char *why);
/* Finds a model by name; NULL = not listed. */
struct hb_served_model *hb_dispatch_find(struct hb_dispatch *dispatch, const char *name);
/* Updates pollable[] and `expects`, after any change of backends[]. */
void hb_dispatch_list_pollable(struct hb_dispatch *dispatch);
/* Adds the back end's descriptor to the epoll set, or removes it. */
void hb_backend_watch(struct hb_dispatch *dispatch, const struct hb_backend *backend, bool watched);
/* Records the order in which models were closed or failed to open. */
void hb_served_model_note_closed(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Closes a model at once: answers its requests and closes the back end. No effect if it is not loaded. */
void hb_served_model_close(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Closes UNLOADING models whose batches have ended or whose close_ns has passed. True: at least one was closed. */
bool hb_dispatch_close_drained(struct hb_dispatch *dispatch, int64_t now_ns);
/* Returns the earliest close_ns; INT64_MAX = none. */
int64_t hb_dispatch_next_close_ns(const struct hb_dispatch *dispatch);
/*
 * Begins to unload the model of that name, if it is loaded. Returns whether it is closed. Call it again when the state of a
 * model has changed. `reloads`: the caller will do so; otherwise the dispatcher's thread closes the model.
 */
bool hb_dispatch_try_unloaded(struct hb_dispatch *dispatch, const char *name, bool reloads);
/*
 * Opens a model whose configuration was read, and lists it. Takes *model, also if that fails. Returns 0, or negative errno
 * with *error. The model may become ready later.
 */
int hb_dispatch_open_model(struct hb_dispatch *dispatch, struct hb_served_model *model, struct hb_error *error);
/* Removes one user. A model that is not listed any more is freed with its last user. */
void hb_served_model_drop(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Returns the list of answered requests and empties it. */
struct hb_inference *hb_dispatch_take_ended(struct hb_dispatch *dispatch);
/* Functions that count an answered request and a completed batch. */
void hb_served_model_note_answer(struct hb_served_model *model, const struct hb_inference *infer);
void hb_served_model_note_batch(struct hb_served_model *model, const struct hb_slot_times *times, uint32_t items,
				int64_t now_ns);

/* Without the lock: calls done() of each request of the list, except `self`. Returns whether `self` was in the list. */
bool hb_dispatch_report_ended(struct hb_inference *ended, const struct hb_inference *self);
/* Without the lock: the dispatcher's threads. */
void *hb_dispatch_run(void *dispatch);
void *hb_dispatch_run_loads(void *dispatch);

#endif
