/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher: owns the served models, the scheduler (server/scheduler) and the
 * back ends, all under one lock. The HTTP and gRPC code submits requests from any
 * thread; the dispatcher's own thread waits for back ends and for timers.
 *
 * A request goes through these calls: hb_dispatch_take_model(), then checks and
 * fills in the inference, hb_dispatch_submit(), its done(), and
 * hb_dispatch_give_model(). If the scheduler starts it at once and the back end
 * answers at once, it is complete when hb_dispatch_submit() returns, without a
 * change of threads.
 */
#ifndef HB_SERVER_DISPATCH_H
#define HB_SERVER_DISPATCH_H

#include "base/hist.h"
#include "server/kserve/inference.h"
#include "server/models/model_config.h"
#include "server/scheduler/fairness.h"
#include "server/scheduler/route.h"
#include "server/scheduler/scheduler.h"

#include <jansson.h>

struct hb_dispatch;

struct hb_dispatch_config {
	const char *models; /* folder with one folder for each model */
	const char *policy; /* name in scheduler_policies.def */
	enum hb_scheduler_late late[HB_SCHEDULER_PRIORITIES];
	uint32_t queue_max;  /* requests of each priority that may wait or run */
	int64_t drain_ns;    /* time that running batches have to end when their model is unloaded */
	double speed;        /* simulated GPU: seconds of GPU time per second */
	int gpu;             /* enum hb_worker_gpu: how workers are started */
	uint32_t n_gpus;     /* GPUs to use, at most HB_ROUTE_GPUS_MAX; 0 = all of the machine */
	const char *journal; /* file of the journal (journal.h); NULL = none */
	const char *
		demands; /* file of measured demands (demand_file.h); NULL = the default, "none" = nothing is measured */
};

enum hb_served_model_state {
	HB_SERVED_MODEL_UNLOADED,
	HB_SERVED_MODEL_LOADING,
	HB_SERVED_MODEL_READY,
	HB_SERVED_MODEL_FAILED,
	HB_SERVED_MODEL_RESTARTING, /* its worker ended several times in a row; another one is not ready yet */
	HB_SERVED_MODEL_UNLOADING,  /* takes no new request; its running batches may still end */
};

/* Where a demand comes from. */
enum hb_demand_origin { HB_DEMAND_DEFAULT, HB_DEMAND_WRITTEN, HB_DEMAND_FROM_TRIAL, HB_DEMAND_RECORDED };

/* The demand of a model (demand_trial.h). */
struct hb_served_demand {
	struct hb_demand used;                      /* by the schedulers */
	enum hb_demand_origin sm, memory, transfer; /* of `used` */
	struct hb_demand measured;
	bool is_measured; /* `measured` is valid */
	bool is_wanted;   /* a trial runs or will run */
	uint64_t digest;  /* hb_demand_digest() */
};

struct hb_duration {
	uint64_t count, ns;
};

/* Counts of one model; updated under the dispatcher's lock. */
struct hb_served_model_stats {
	uint64_t inferences, executions, ended_ms; /* ended_ms: end of the last execution, ms since 1970 */
	struct hb_duration success, fail, queue, input, infer, output;
	struct {
		struct hb_duration input, infer, output;
	} batch[HB_SCHEDULER_BATCH_MAX + 1];
	uint64_t answers[HB_SCHEDULER_PRIORITIES][HB_ANSWERS];
	uint64_t late[HB_SCHEDULER_PRIORITIES]; /* answered with results, but after the deadline */
	struct hb_in_time_share in_time[HB_SCHEDULER_PRIORITIES];
	uint64_t running;  /* replicas that execute batches now */
	uint64_t pending;  /* requests that wait or run */
	uint64_t moved;    /* requests that another replica got, because the worker of theirs had ended */
	uint64_t restarts; /* workers that were started because the one before had ended */
};

struct hb_served_model {
	struct hb_model_config config;
	enum hb_served_model_state state;
	char why[512];   /* reason of the state, if it is not ready */
	uint32_t number; /* the scheduler's number; HB_SCHEDULER_MODELS_MAX = none, the model could not be opened */
	uint32_t users;  /* requests that have taken the model */
	/* The next three fields are valid in state UNLOADING. */
	int64_t close_ns;      /* running batches are answered and the model closed at this time */
	bool drained;          /* all batches have ended */
	bool reloads;          /* the loading thread will load the model again and close this object */
	uint64_t closed_order; /* order in which models were closed or failed to open; the first is forgotten first */
	struct hb_served_demand demand;
	struct hb_served_model_stats stats;
	struct hb_hist *latency[HB_SCHEDULER_PRIORITIES]; /* latency of requests with results; NULL before the first */
};

/* Loads every model of the folder. A model that cannot be loaded is logged and listed with its reason. */
int hb_dispatch_new(const struct hb_dispatch_config *config, struct hb_dispatch **out, struct hb_error *error);
/*
 * Stops: the server is not ready any more and accepts no new request or model.
 * Returns when all requests have ended; those left after grace_ns are answered
 * as if their model were unloaded.
 */
void hb_dispatch_end(struct hb_dispatch *dispatch, int64_t grace_ns);
/* Frees the dispatcher, after hb_dispatch_end() and after the HTTP and gRPC servers were freed. */
void hb_dispatch_free(struct hb_dispatch *dispatch);

/* Unloads a model; does not wait. Returns 0, or negative errno with *error. dispatch_load.h loads models. */
int hb_dispatch_unload(struct hb_dispatch *dispatch, const char *name, struct hb_error *error);

/*
 * Finds a model by name and takes it for a request; hb_dispatch_give_model() gives
 * it back. Its config does not change while it is taken. NULL: *answer and `reason`
 * say why.
 */
struct hb_served_model *hb_dispatch_take_model(struct hb_dispatch *dispatch, const char *name, const char *version,
					       enum hb_answer *answer, char *reason, size_t size);
void hb_dispatch_give_model(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Calls visit() for each model under the lock, in order of name. */
void hb_dispatch_each_model(struct hb_dispatch *dispatch, void (*visit)(void *argument, struct hb_served_model *model),
			    void *argument);
/* True if no model is being loaded and the server is not ending. */
bool hb_dispatch_ready(struct hb_dispatch *dispatch);

/*
 * Notifies the model's back end that the first bytes of a request have arrived, so that it can get the GPU early. The
 * call costs little if no back end wants to be notified. `model` is `length` bytes received from the network, not
 * checked and not terminated.
 */
void hb_dispatch_expect(struct hb_dispatch *dispatch, const char *model, size_t length);
/*
 * Returns whether low is the default priority of the model's requests; used for a request that is still being read.
 * True if there is no such model. `model` is as for hb_dispatch_expect().
 */
bool hb_dispatch_is_low(struct hb_dispatch *dispatch, const char *model, size_t length);
/*
 * Submits a request that was checked and has taken its model. True: the request is
 * complete, and done() will not be called. False: done() will be called later.
 */
bool hb_dispatch_submit(struct hb_dispatch *dispatch, struct hb_inference *infer);
/* Cancels a request whose client has gone: if queued, it is removed at once. done() is called as for any other end. */
void hb_dispatch_cancel(struct hb_dispatch *dispatch, struct hb_inference *infer);

/* Changes the scheduling policy. Returns 0, -EINVAL (no such policy), -EBUSY (requests wait or run), with *error. */
int hb_dispatch_set_policy(struct hb_dispatch *dispatch, const char *policy, struct hb_error *error);

/*
 * Calls visit() under the lock with the schedulers of the n GPUs, for metrics. The schedulers are freed with the dispatcher
 * only; without the lock nothing may be read from them.
 */
void hb_dispatch_inspect(struct hb_dispatch *dispatch,
			 void (*visit)(void *argument, struct hb_scheduler *const *schedulers, uint32_t n),
			 void *argument);

#endif
