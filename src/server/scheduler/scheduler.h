/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of `serve`: requests of two priorities with deadlines in,
 * batches to start and requests to refuse out. Pure as the scheduling core is:
 * time is an argument, nothing is allocated after hb_scheduler_new(), one caller at
 * a time. Who calls it: the front end (its event loop) and the evaluation
 * harness in virtual time. What starts a batch is the caller's back end
 * (scheduler_provider.h); the scheduler only says which, and wants to be told how
 * it goes.
 *
 *	hb_scheduler_submit / _cancel         a request comes, its client goes
 *	hb_scheduler_stage / _end             a batch gets on, ends
 *	hb_scheduler_step until false         after each of these and at next_wake_ns
 *
 * Who is served next is a policy's (scheduler_policy.h), by name: policies `ours`,
 * two of its own parts switched off, and baselines.
 */
#ifndef HB_SCHEDULER_SERVE_H
#define HB_SCHEDULER_SERVE_H

#include "base/error.h"
#include "server/scheduler/predictor.h"

struct hb_scheduler;

/* What is done with a request that is predicted to be late, or is. */
enum hb_scheduler_late {
	HB_SCHEDULER_REJECT,    /* it is refused at once, with the finish that was predicted */
	HB_SCHEDULER_DOWNGRADE, /* it goes on as low priority without a deadline; refused where that queue is full */
};

struct hb_scheduler_config {
	const char *policy;
	uint32_t
		queue_max; /* requests of one priority queued or in batches at one time: neither takes the other's room */
	uint32_t slots;    /* batches of one model and priority at one time: 2 lets copies overlap runs */
	uint32_t concurrency; /* of the baselines: batches at one time */
	uint32_t batch_most;  /* items of any batch, whatever its model could */
	enum hb_scheduler_late late[HB_SCHEDULER_PRIORITIES];
	int64_t age_ns;    /* low priority: served as soon as may be after waiting so long */
	double aged_share; /* of the GPU's time, for those, whatever is predicted for high priority */
};

struct hb_scheduler_request {
	uint64_t cookie; /* the caller's; comes back in actions and batches */
	uint32_t model;
	uint32_t items; /* inputs in this request, usually 1 */
	enum hb_scheduler_priority priority;
	int64_t deadline_ns; /* absolute; INT64_MAX = none */
	uint64_t room_bytes; /* it takes of the model's, where that is limited: a batch is made of what fits together */
};

enum hb_scheduler_reason { HB_SCHEDULER_LATE, HB_SCHEDULER_TIMEOUT };

enum hb_scheduler_action_kind {
	HB_SCHEDULER_START,  /* the batch in `slot` */
	HB_SCHEDULER_REFUSE, /* the request `cookie`; it is forgotten */
	HB_SCHEDULER_PAUSE,  /* the batch in `slot` stops as soon as it can (preemption by software) */
	HB_SCHEDULER_RESUME, /* and goes on */
};

struct hb_scheduler_action {
	enum hb_scheduler_action_kind kind;
	uint32_t slot;
	uint64_t cookie;
	enum hb_scheduler_reason reason;
	int64_t finish_ns; /* predicted, absolute */
	int64_t error_ns;  /* its error estimate */
};

/* A batch that was started. */
struct hb_scheduler_batch {
	uint32_t model, items, n_requests;
	enum hb_scheduler_priority priority; /* of its stream on the GPU */
	int64_t begun_ns, deadline_ns;       /* of the request that is most urgent */
	uint64_t cookies[HB_SCHEDULER_BATCH_MAX];
	bool used;
	bool can_pause;                /* it may be held, so it is to be launched in pieces */
	bool paused, goes_on;          /* goes_on: it was held for so long that it is not any more */
	int64_t pause_change_after_ns; /* pick_pause.c: it is not held, or let go on, again before */
};

struct hb_scheduler_counts {
	uint64_t submitted[HB_SCHEDULER_PRIORITIES], started[HB_SCHEDULER_PRIORITIES], refused[HB_SCHEDULER_PRIORITIES];
	uint64_t timeouts[HB_SCHEDULER_PRIORITIES], downgraded[HB_SCHEDULER_PRIORITIES],
		cancelled[HB_SCHEDULER_PRIORITIES];
	uint64_t full[HB_SCHEDULER_PRIORITIES]; /* not submitted: queue_max of that priority were there */
	uint64_t batches, aged; /* aged: low-priority batches started, or let go on, for having waited long */
	uint64_t pauses;        /* times that a batch was held */
};

void hb_scheduler_config_init(struct hb_scheduler_config *config);
/* 0, -EINVAL (error says which value), -ENOMEM. */
int hb_scheduler_new(const struct hb_scheduler_config *config, struct hb_scheduler **out, struct hb_error *error);
void hb_scheduler_free(struct hb_scheduler *scheduler);
/* Another policy from now on; what was learned stays. 0, -EINVAL (no such policy), -EBUSY (requests are there). */
int hb_scheduler_set_policy(struct hb_scheduler *scheduler, const char *policy, struct hb_error *error);
/* The model's number; -EINVAL, -ENOSPC. */
int hb_scheduler_add_model(struct hb_scheduler *scheduler, const struct hb_scheduler_model *model,
			   struct hb_error *error);
/*
 * The number stands for another model from now on; what was learned of the one before is forgotten. 0, -EINVAL, -EBUSY
 * (requests of the one before wait or run).
 */
int hb_scheduler_replace_model(struct hb_scheduler *scheduler, uint32_t number, const struct hb_scheduler_model *model,
			       struct hb_error *error);

/* The model was run alone when it was loaded; see hb_predictor_profiled(). */
void hb_scheduler_profiled(struct hb_scheduler *scheduler, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES]);

/* A handle for cancelling; 0 = refused at once: no such model, too many items, or the queue of its priority is full. */
uint64_t hb_scheduler_submit(struct hb_scheduler *scheduler, int64_t now_ns,
			     const struct hb_scheduler_request *request);
/* True: it was queued and is forgotten. False: it is in a batch, or over; its batch goes on. */
bool hb_scheduler_cancel(struct hb_scheduler *scheduler, int64_t now_ns, uint64_t handle);
/* The same for any that is queued of that model, whose cookie is given back. False: none is. */
bool hb_scheduler_cancel_any(struct hb_scheduler *scheduler, uint32_t model, uint64_t *cookie);
void hb_scheduler_stage(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
/* The batch has ended; its slot is free. `whole` false: it was cut off (a worker died). */
void hb_scheduler_end(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool complete);
/* One action to carry out before the next call; false: none now. */
bool hb_scheduler_step(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);
/* When step may have something to do without anything happening; INT64_MAX = never. */
int64_t hb_scheduler_next_wake_ns(const struct hb_scheduler *scheduler);

const struct hb_scheduler_batch *hb_scheduler_batch_get(const struct hb_scheduler *scheduler, uint32_t slot);
/* When such a request would be done if it came now: for answers that say so. */
struct hb_estimate hb_scheduler_outlook(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t model,
					enum hb_scheduler_priority priority);
const struct hb_predictor *hb_scheduler_predictor(const struct hb_scheduler *scheduler);
const struct hb_scheduler_counts *hb_scheduler_counts_get(const struct hb_scheduler *scheduler);
/* Batches of a model that were started and have not ended. */
uint32_t hb_scheduler_in_flight(const struct hb_scheduler *scheduler, uint32_t model);
/* Requests queued as that priority (with those that were downgraded to it). */
uint32_t hb_scheduler_queued(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority);
/* Of the limit queue_max of a priority: what is taken, queued and in batches. */
uint32_t hb_scheduler_admitted(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority);
uint32_t hb_scheduler_queue_max(const struct hb_scheduler *scheduler);
/* Names of policies, NULL-terminated. */
extern const char *const hb_scheduler_policy_names[];

#endif
