/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of `serve`: requests of two priorities with deadlines in,
 * batches to start and requests to refuse out. Pure as the scheduling core is:
 * time is an argument, nothing is allocated after hb_serve_new(), one caller at
 * a time. Who calls it: the front end (its event loop) and the evaluation
 * harness in virtual time. What starts a batch is the caller's back end
 * (serve_provider.h); the scheduler only says which, and wants to be told how
 * it goes.
 *
 *	hb_serve_submit / _cancel         a request comes, its client goes
 *	hb_serve_stage / _end             a batch gets on, ends
 *	hb_serve_step until false         after each of these and at next_wake_ns
 *
 * Who is served next is a policy's (serve_policy.h), by name: policies `ours`,
 * two of its own parts switched off, and baselines.
 */
#ifndef HB_SERVE_SERVE_H
#define HB_SERVE_SERVE_H

#include "base/error.h"
#include "server/scheduler/predictor.h"

struct hb_serve;

/* What is done with a request that is predicted to be late, or is. */
enum hb_serve_late {
	HB_SERVE_REJECT,    /* it is refused at once, with the finish that was predicted */
	HB_SERVE_DOWNGRADE, /* it goes on as low priority without a deadline; refused where that queue is full */
};

struct hb_serve_config {
	const char *policy;
	uint32_t
		queue_max; /* requests of one priority queued or in batches at one time: neither takes the other's room */
	uint32_t slots;    /* batches of one model and priority at one time: 2 lets copies overlap runs */
	uint32_t concurrency; /* of the baselines: batches at one time */
	uint32_t batch_most;  /* items of any batch, whatever its model could */
	enum hb_serve_late late[HB_SERVE_PRIORITIES];
	int64_t age_ns;    /* low priority: served as soon as may be after waiting so long */
	double aged_share; /* of the GPU's time, for those, whatever is predicted for high priority */
};

struct hb_serve_request {
	uint64_t cookie; /* the caller's; comes back in actions and batches */
	uint32_t model;
	uint32_t items; /* inputs in this request, usually 1 */
	enum hb_serve_priority priority;
	int64_t deadline_ns; /* absolute; INT64_MAX = none */
	uint64_t room_bytes; /* it takes of the model's, where that is limited: a batch is made of what fits together */
};

enum hb_serve_reason { HB_SERVE_LATE, HB_SERVE_TIMEOUT };

enum hb_serve_action_kind {
	HB_SERVE_START,   /* the batch in `slot` */
	HB_SERVE_REFUSE,  /* the request `cookie`; it is forgotten */
	HB_SERVE_HOLD,    /* the batch in `slot` stops as soon as it can (preemption by software) */
	HB_SERVE_RELEASE, /* and goes on */
};

struct hb_serve_action {
	enum hb_serve_action_kind kind;
	uint32_t slot;
	uint64_t cookie;
	enum hb_serve_reason reason;
	int64_t finish_ns; /* predicted, absolute */
	int64_t error_ns;  /* its error estimate */
};

/* A batch that was started. */
struct hb_serve_batch {
	uint32_t model, items, n_requests;
	enum hb_serve_priority priority; /* of its stream on the GPU */
	int64_t begun_ns, deadline_ns;   /* of the request that is most urgent */
	uint64_t cookies[HB_SERVE_BATCH_MAX];
	bool used;
	bool can_stop;         /* it may be held, so it is to be launched in pieces */
	bool held, goes_on;    /* goes_on: it was held for so long that it is not any more */
	int64_t hold_after_ns; /* pick_hold.c: it is not held, or let go on, again before */
};

struct hb_serve_counts {
	uint64_t submitted[HB_SERVE_PRIORITIES], started[HB_SERVE_PRIORITIES], refused[HB_SERVE_PRIORITIES];
	uint64_t timeouts[HB_SERVE_PRIORITIES], downgraded[HB_SERVE_PRIORITIES], cancelled[HB_SERVE_PRIORITIES];
	uint64_t full[HB_SERVE_PRIORITIES]; /* not submitted: queue_max of that priority were there */
	uint64_t batches, aged; /* aged: low-priority batches started, or let go on, for having waited long */
	uint64_t holds;         /* times that a batch was held */
};

void hb_serve_config_init(struct hb_serve_config *config);
/* 0, -EINVAL (error says which value), -ENOMEM. */
int hb_serve_new(const struct hb_serve_config *config, struct hb_serve **out, struct hb_error *error);
void hb_serve_free(struct hb_serve *serve);
/* Another policy from now on; what was learned stays. 0, -EINVAL (no such policy), -EBUSY (requests are there). */
int hb_serve_set_policy(struct hb_serve *serve, const char *policy, struct hb_error *error);
/* The model's number; -EINVAL, -ENOSPC. */
int hb_serve_add_model(struct hb_serve *serve, const struct hb_serve_model *model, struct hb_error *error);
/*
 * The number stands for another model from now on; what was learned of the one before is forgotten. 0, -EINVAL, -EBUSY
 * (requests of the one before wait or run).
 */
int hb_serve_replace_model(struct hb_serve *serve, uint32_t number, const struct hb_serve_model *model,
			   struct hb_error *error);

/* The model was run alone when it was loaded; see hb_predictor_profiled(). */
void hb_serve_profiled(struct hb_serve *serve, uint32_t model, uint32_t items, const double stage_ns[HB_STAGES]);

/* A handle for cancelling; 0 = refused at once: no such model, too many items, or the queue of its priority is full. */
uint64_t hb_serve_submit(struct hb_serve *serve, int64_t now_ns, const struct hb_serve_request *request);
/* True: it was queued and is forgotten. False: it is in a batch, or over; its batch goes on. */
bool hb_serve_cancel(struct hb_serve *serve, int64_t now_ns, uint64_t handle);
/* The same for any that is queued of that model, whose cookie is given back. False: none is. */
bool hb_serve_cancel_any(struct hb_serve *serve, uint32_t model, uint64_t *cookie);
void hb_serve_stage(struct hb_serve *serve, int64_t now_ns, uint32_t slot, enum hb_serve_stage stage);
/* The batch has ended; its slot is free. `whole` false: it was cut off (a worker died). */
void hb_serve_end(struct hb_serve *serve, int64_t now_ns, uint32_t slot, bool whole);
/* One action to carry out before the next call; false: none now. */
bool hb_serve_step(struct hb_serve *serve, int64_t now_ns, struct hb_serve_action *action);
/* When step may have something to do without anything happening; INT64_MAX = never. */
int64_t hb_serve_next_wake_ns(const struct hb_serve *serve);

const struct hb_serve_batch *hb_serve_batch_get(const struct hb_serve *serve, uint32_t slot);
/* When such a request would be done if it came now: for answers that say so. */
struct hb_estimate hb_serve_outlook(struct hb_serve *serve, int64_t now_ns, uint32_t model,
				    enum hb_serve_priority priority);
const struct hb_predictor *hb_serve_predictor(const struct hb_serve *serve);
const struct hb_serve_counts *hb_serve_counts_get(const struct hb_serve *serve);
/* Batches of a model that were started and have not ended. */
uint32_t hb_serve_in_flight(const struct hb_serve *serve, uint32_t model);
/* Requests queued as that priority (with those that were downgraded to it). */
uint32_t hb_serve_queued(const struct hb_serve *serve, enum hb_serve_priority priority);
/* Of the limit queue_max of a priority: what is taken, queued and in batches. */
uint32_t hb_serve_held(const struct hb_serve *serve, enum hb_serve_priority priority);
uint32_t hb_serve_queue_max(const struct hb_serve *serve);
/* Names of policies, NULL-terminated. */
extern const char *const hb_serve_policy_names[];

#endif
