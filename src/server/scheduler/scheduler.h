/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serving scheduler: takes requests of two priorities with deadlines and
 * decides which batch starts, which is paused and which request is refused. Pure
 * like the daemon's core: time is an argument, nothing is allocated after
 * hb_scheduler_new(), one caller at a time. Callers: the dispatcher of hb serve
 * (server/models) and the evaluation in virtual time (src/simserving).
 *
 * The caller carries out the actions with a back end (scheduler_provider.h) and
 * reports how its batches proceed:
 *
 *	hb_scheduler_submit / _cancel   a request arrives / its client has gone
 *	hb_scheduler_stage / _end       a batch begins to copy in, to run or to copy out / ends
 *	hb_scheduler_step               repeatedly until false, after each of these
 *	                                calls and at hb_scheduler_next_wake_ns()
 *
 * The order of requests is decided by a policy (scheduler_policy.h), chosen by
 * name: `ours`, `ours` with parts switched off, and baselines.
 */
#ifndef HB_SCHEDULER_H
#define HB_SCHEDULER_H

#include "base/error.h"
#include "server/scheduler/predictor.h"

struct hb_scheduler;

/* The treatments of a request that is late or is predicted to be late. */
enum hb_scheduler_late {
	HB_SCHEDULER_REJECT,    /* refuse it at once, with the predicted finish */
	HB_SCHEDULER_DOWNGRADE, /* make it low priority without a deadline; refuse it if that queue is full */
};

struct hb_scheduler_config {
	const char *policy;
	uint32_t queue_max;   /* limit of admitted (queued or running) requests, for each priority separately */
	uint32_t slots;       /* batches in flight of one model and priority; 2 lets copies overlap runs */
	uint32_t concurrency; /* baselines: batches in flight */
	uint32_t batch_most;  /* items of a batch; a model may allow fewer */
	enum hb_scheduler_late late[HB_SCHEDULER_PRIORITIES];
	int64_t age_ns;    /* a low-priority request is aged after waiting for this time */
	double aged_share; /* share of GPU time for aged requests, whatever is predicted for high priority */
};

struct hb_scheduler_request {
	uint64_t cookie; /* chosen by the caller; returned in actions and batches */
	uint32_t model;
	uint32_t items; /* batch items in this request, usually 1 */
	enum hb_scheduler_priority priority;
	int64_t deadline_ns; /* absolute; INT64_MAX = none */
	uint64_t room_bytes; /* data of variable size; a batch has at most the model's room_bytes of it */
	bool moved;          /* it arrived earlier and was queued on another GPU: not an arrival to learn from */
};

enum hb_scheduler_reason { HB_SCHEDULER_LATE, HB_SCHEDULER_TIMEOUT };

enum hb_scheduler_action_kind {
	HB_SCHEDULER_START,  /* start the batch in `slot` */
	HB_SCHEDULER_REFUSE, /* refuse the request `cookie`; the scheduler has removed it */
	HB_SCHEDULER_PAUSE,  /* stop the batch in `slot` between two of its steps */
	HB_SCHEDULER_RESUME, /* let the paused batch in `slot` continue */
};

struct hb_scheduler_action {
	enum hb_scheduler_action_kind kind;
	uint32_t slot;
	uint64_t cookie;
	enum hb_scheduler_reason reason;
	int64_t finish_ns; /* predicted finish, absolute */
	int64_t error_ns;  /* error estimate of finish_ns */
};

/* A batch in flight. */
struct hb_scheduler_batch {
	uint32_t model, items, n_requests;
	enum hb_scheduler_priority priority; /* priority of the batch's streams on the GPU */
	int64_t begun_ns, deadline_ns;       /* deadline_ns: the earliest of its requests */
	uint64_t cookies[HB_SCHEDULER_BATCH_MAX];
	bool used;
	bool can_pause;                /* the batch may be paused, so it must be launched in steps */
	bool paused, runs_to_end;      /* runs_to_end: it is aged and must not be paused any more */
	int64_t pause_change_after_ns; /* pick_pause.c does not pause or resume it before this time */
};

struct hb_scheduler_counts {
	uint64_t submitted[HB_SCHEDULER_PRIORITIES], started[HB_SCHEDULER_PRIORITIES], refused[HB_SCHEDULER_PRIORITIES];
	uint64_t timeouts[HB_SCHEDULER_PRIORITIES], downgraded[HB_SCHEDULER_PRIORITIES],
		cancelled[HB_SCHEDULER_PRIORITIES];
	uint64_t full[HB_SCHEDULER_PRIORITIES]; /* requests refused because queue_max of their priority were admitted */
	uint64_t batches, aged; /* aged: low-priority batches started, or protected from pauses, because of their age */
	uint64_t pauses;        /* number of times that a batch was paused */
};

void hb_scheduler_config_init(struct hb_scheduler_config *config);
/* Creates a scheduler. Returns 0, -EINVAL (the error names the value) or -ENOMEM. */
int hb_scheduler_new(const struct hb_scheduler_config *config, struct hb_scheduler **out, struct hb_error *error);
void hb_scheduler_free(struct hb_scheduler *scheduler);
/* Returns what hb_scheduler_set_policy() would return, and changes nothing. */
int hb_scheduler_check_policy(const struct hb_scheduler *scheduler, const char *policy, struct hb_error *error);
/* Changes the policy; what was learned stays. Returns 0, -EINVAL (no such policy), -EBUSY (requests wait or run). */
int hb_scheduler_set_policy(struct hb_scheduler *scheduler, const char *policy, struct hb_error *error);
/* Adds a model. Returns its number, -EINVAL or -ENOSPC. */
int hb_scheduler_add_model(struct hb_scheduler *scheduler, const struct hb_scheduler_model *model,
			   struct hb_error *error);
/*
 * Gives the number to another model; forgets what was learned. Returns 0, -EINVAL, -EBUSY (requests of the old model
 * wait or run).
 */
int hb_scheduler_replace_model(struct hb_scheduler *scheduler, uint32_t number, const struct hb_scheduler_model *model,
			       struct hb_error *error);

/* Changes the demand of a model; see hb_predictor_set_demand(). */
int hb_scheduler_set_demand(struct hb_scheduler *scheduler, uint32_t number, const struct hb_demand *demand);

/* Learns from a batch run alone when the model was loaded; see hb_predictor_profiled(). */
void hb_scheduler_profiled(struct hb_scheduler *scheduler, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES]);

/* Returns a handle for hb_scheduler_cancel(); 0 = refused: no such model, too many items, or queue_max is reached. */
uint64_t hb_scheduler_submit(struct hb_scheduler *scheduler, int64_t now_ns,
			     const struct hb_scheduler_request *request);
/* Counts a request that the caller refuses because queue_max requests of its priority are admitted on all GPUs. */
void hb_scheduler_note_full(struct hb_scheduler *scheduler, enum hb_scheduler_priority priority);
/* Removes a queued request. False: it was not queued; if it is in a batch, the batch continues. */
bool hb_scheduler_cancel(struct hb_scheduler *scheduler, int64_t now_ns, uint64_t handle);
/* Removes any queued request of the model and returns its cookie. False: none was queued. */
bool hb_scheduler_cancel_any(struct hb_scheduler *scheduler, uint32_t model, uint64_t *cookie);
void hb_scheduler_stage(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
/*
 * Reports that the batch has ended, which frees its slot. `complete` false: there are no results (for example, a worker
 * died).
 */
void hb_scheduler_end(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool complete);
/* Returns the next action, which the caller must carry out before the next call. False: no action now. */
bool hb_scheduler_step(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);
/* Returns when hb_scheduler_step() may have an action without a further event; INT64_MAX = never. */
int64_t hb_scheduler_next_wake_ns(const struct hb_scheduler *scheduler);

/* Returns the batch in a slot; NULL = the slot is free. */
const struct hb_scheduler_batch *hb_scheduler_batch_get(const struct hb_scheduler *scheduler, uint32_t slot);
const struct hb_predictor *hb_scheduler_predictor(const struct hb_scheduler *scheduler);
const struct hb_scheduler_counts *hb_scheduler_counts_get(const struct hb_scheduler *scheduler);
/* Returns the number of batches in flight of a model. */
uint32_t hb_scheduler_in_flight(const struct hb_scheduler *scheduler, uint32_t model);
/* Returns the number of queued requests of a model. */
uint32_t hb_scheduler_waiting_of(const struct hb_scheduler *scheduler, uint32_t model);
/* Returns the number of queued requests of a priority, including those downgraded to it. */
uint32_t hb_scheduler_queued(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority);
/* Returns the number of requests of a priority that are queued or in batches; at most queue_max. */
uint32_t hb_scheduler_admitted(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority);
uint32_t hb_scheduler_queue_max(const struct hb_scheduler *scheduler);
/* Names of policies, NULL-terminated. */
extern const char *const hb_scheduler_policy_names[];

#endif
