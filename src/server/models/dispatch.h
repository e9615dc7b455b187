/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The middle of the server: models, the scheduler (server/scheduler/scheduler.h) and the back
 * ends that run batches, behind one lock. Front ends submit requests from any
 * thread; one thread of the dispatcher's own waits for back ends and for time.
 *
 * A request that the scheduler starts at once and whose back end answers at once
 * is done before hb_dispatch_submit() returns, without another thread.
 */
#ifndef HB_FRONT_DISPATCH_H
#define HB_FRONT_DISPATCH_H

#include "base/hist.h"
#include "server/kserve/inference.h"
#include "server/models/model_config.h"
#include "server/scheduler/scheduler.h"

#include <jansson.h>

struct hb_dispatch;

struct hb_dispatch_config {
	const char *models; /* folder; one folder a model in it */
	const char *policy; /* of scheduler_policies.def */
	enum hb_scheduler_late late[HB_SCHEDULER_PRIORITIES];
	uint32_t queue_max;  /* requests of each priority that wait or run */
	int64_t drain_ns;    /* for batches that run when their model is unloaded; then their requests end */
	double speed;        /* of the simulated GPU: seconds of its time a second */
	int gpu;             /* enum hb_worker_gpu: how workers are started */
	const char *journal; /* file to write what ran when to; NULL = none */
};

enum hb_served_model_state { HB_MODEL_UNLOADED, HB_MODEL_LOADING, HB_MODEL_READY, HB_MODEL_FAILED, HB_MODEL_UNLOADING };

struct hb_duration {
	uint64_t count, ns;
};

/* Of one model; updated under the dispatcher's lock. */
struct hb_served_model_stats {
	uint64_t inferences, executions, ended_ms; /* ended_ms: wall clock of the last, since 1970 */
	struct hb_duration success, fail, queue, input, infer, output;
	struct {
		struct hb_duration input, infer, output;
	} batch[HB_SCHEDULER_BATCH_MAX + 1];
	uint64_t answers[HB_SCHEDULER_PRIORITIES][HB_ANSWERS];
	uint64_t late[HB_SCHEDULER_PRIORITIES]; /* answered with results after the deadline */
	uint64_t pending;
};

struct hb_served_model {
	struct hb_model_config config;
	enum hb_served_model_state state;
	char why[512];
	uint32_t number; /* the scheduler's; HB_SCHEDULER_MODELS_MAX: it has none, it could not be opened */
	uint32_t users;  /* requests that hold it */
	/* While it is unloading: until when its batches may run, whether all have ended, whether somebody waits to load it. */
	int64_t close_ns;
	bool drained, reloads;
	/* Counts models that were closed, or could not be opened: those that were first are forgotten first. */
	uint64_t left;
	struct hb_served_model_stats stats;
	struct hb_hist *latency[HB_SCHEDULER_PRIORITIES]; /* of requests with results; NULL until the first */
};

/* Loads every model of the folder; one that cannot be loaded is logged and stays listed with its reason. */
int hb_dispatch_new(const struct hb_dispatch_config *config, struct hb_dispatch **out, struct hb_error *error);
/*
 * It is not ready any more and takes no new request or model. Requests that are
 * there may end for so long, then they are answered as when a model is unloaded.
 */
void hb_dispatch_end(struct hb_dispatch *dispatch, int64_t grace_ns);
/* After hb_dispatch_end(), when the front ends are gone. */
void hb_dispatch_free(struct hb_dispatch *dispatch);

/*
 * 0, or negative errno with *error. Loading a loaded model reads its description again, and where that is right, waits until
 * the batches that run have ended, as unloading lets them; unloading does not wait.
 */
int hb_dispatch_load(struct hb_dispatch *dispatch, const char *name, struct hb_error *error);
int hb_dispatch_unload(struct hb_dispatch *dispatch, const char *name, struct hb_error *error);

/*
 * The model by its name, taken for a request (hb_dispatch_give_model() gives it
 * back); its config does not change while it is taken. NULL: *answer and reason say why.
 */
struct hb_served_model *hb_dispatch_take_model(struct hb_dispatch *dispatch, const char *name, const char *version,
					       enum hb_answer *answer, char *reason, size_t size);
void hb_dispatch_give_model(struct hb_dispatch *dispatch, struct hb_served_model *model);
/* Calls look for each model under the lock, in order of name. */
void hb_dispatch_each_model(struct hb_dispatch *dispatch, void (*look)(void *argument, struct hb_served_model *model),
			    void *argument);
/* No model is being loaded, and the server does not end. */
bool hb_dispatch_ready(struct hb_dispatch *dispatch);

/*
 * The first bytes of a request for that model have come: a sign for whatever gives its back end the GPU. Cheap where
 * nothing listens; the name is not trusted (`length` bytes of it).
 */
void hb_dispatch_expect(struct hb_dispatch *dispatch, const char *model, size_t length);
/*
 * Whether requests for that model are of low priority if they do not say so themselves, for one that is still being read;
 * true where there is no such model. The name is not trusted (`length` bytes of it).
 */
bool hb_dispatch_is_low(struct hb_dispatch *dispatch, const char *model, size_t length);
/*
 * Hands over a request that was checked and holds its model. True: it is done,
 * done() was not called and will not be. False: done() will be called.
 */
bool hb_dispatch_submit(struct hb_dispatch *dispatch, struct hb_inference *infer);
/* The client is gone: queued work is dropped at once. done() is called as for any other end. */
void hb_dispatch_cancel(struct hb_dispatch *dispatch, struct hb_inference *infer);

/* Changes the scheduling policy. 0, -EINVAL (no such policy), -EBUSY (requests wait or run), with *error. */
int hb_dispatch_set_policy(struct hb_dispatch *dispatch, const char *policy, struct hb_error *error);

/* What the scheduler and predictor know, for metrics; under the lock. */
void hb_dispatch_inspect(struct hb_dispatch *dispatch,
			 void (*look)(void *argument, const struct hb_scheduler *scheduler), void *argument);

#endif
