/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a scheduling policy and the functions that a policy may call.
 * A policy is a file pick_NAME.c (or part of one) and a row in
 * scheduler_policies.def. Included by scheduler.c, route.c, miss_chance.h and pick_*.c only.
 */
#ifndef HB_SCHEDULER_POLICY_H
#define HB_SCHEDULER_POLICY_H

#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_queue.h"

struct hb_scheduler_ops {
	struct hb_predictor_parts parts;
	bool priorities; /* false: both priorities share queues and streams */
	bool pauses;     /* the policy may pause low-priority batches of models with a stop_share */
	/*
	 * Sets *action to the next action (by hb_scheduler_start, _refuse or _pause) and returns true, or returns false when
	 * nothing is to be done now. Called repeatedly until false. May set scheduler->policy_wake_ns to be called again at
	 * that time. Requests whose deadline has passed were removed before the call.
	 */
	bool (*decide)(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);
};

#define HB_SCHEDULER_POLICY(name, ops) extern const struct hb_scheduler_ops ops;
#include "server/scheduler/scheduler_policies.def"
#undef HB_SCHEDULER_POLICY

/* Recent high-priority requests of a model; the next one is assumed to be like them. */
struct hb_scheduler_habit {
	int64_t deadline_ns; /* shortest recent deadline, from arrival; 0 = no request yet */
	int64_t seen_ns;     /* arrival of the last request */
	double gap_ns;       /* mean recent time between two arrivals */
};

struct hb_scheduler {
	struct hb_scheduler_config config;
	const struct hb_scheduler_ops *ops;
	struct hb_predictor predictor;
	struct hb_scheduler_pool pool;
	struct hb_scheduler_queue queues[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	struct hb_scheduler_batch batches[HB_SCHEDULER_FLIGHTS_MAX];
	uint32_t members[HB_SCHEDULER_FLIGHTS_MAX]
			[HB_SCHEDULER_BATCH_MAX]; /* requests of each batch, index in `pool` */
	uint32_t in_flight[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	uint32_t n_in_flight[HB_SCHEDULER_PRIORITIES];
	uint32_t queued[HB_SCHEDULER_PRIORITIES];
	uint32_t admitted[HB_SCHEDULER_PRIORITIES]; /* requests queued or in batches, each at most queue_max */
	struct hb_scheduler_counts counts;
	int64_t policy_wake_ns; /* when the policy wants to be called; INT64_MAX = only after an event */
	int64_t settled_ns;     /* without an event no decision is needed before this time; INT64_MIN = needed now */
	struct hb_scheduler_habit habits[HB_SCHEDULER_MODELS_MAX];
	int64_t aged_after_ns; /* policy `ours`: the next aged batch may start at this time */
};

static inline struct hb_waiting *hb_scheduler_waiting(struct hb_scheduler *scheduler, uint32_t index)
{
	return &scheduler->pool.requests[index];
}

/* Returns the first request of a queue in an order; NULL when the queue is empty. */
static inline struct hb_waiting *hb_scheduler_first(struct hb_scheduler *scheduler, uint32_t model,
						    enum hb_scheduler_priority class, enum hb_scheduler_order order)
{
	uint32_t first = scheduler->queues[model][class].first[order];
	return first == HB_SCHEDULER_NONE ? NULL : &scheduler->pool.requests[first];
}

/*
 * `class` is the priority of a queue or batch. Policies without priorities put all requests into HB_SCHEDULER_HIGH.
 */

/* Returns whether the model may have one more batch of the class in flight. */
bool hb_scheduler_slot_free(const struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class);
/*
 * Returns the number of items of a batch made of the first requests in that order: at most `most`, but at least the
 * first request.
 */
uint32_t hb_scheduler_batch_items(struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class,
				  enum hb_scheduler_order order, uint32_t most);
/* Starts a batch of the first requests in that order and sets *action. Returns true. */
bool hb_scheduler_start(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t model,
			enum hb_scheduler_priority class, enum hb_scheduler_order order, uint32_t most,
			struct hb_scheduler_action *action);
/*
 * Pauses or resumes the batch in `slot` and sets *action. False: the batch is in that state already, or cannot be
 * paused.
 */
bool hb_scheduler_pause(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool paused,
			struct hb_scheduler_action *action);
/*
 * Refuses or downgrades a request that is late or will be, as configured. True:
 * *action refuses it. False: it was downgraded; the low-priority queue had room.
 */
bool hb_scheduler_refuse(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_waiting *request,
			 enum hb_scheduler_reason reason, int64_t finish_ns, struct hb_scheduler_action *action);
/* Returns the number of batches in flight of all classes. */
static inline uint32_t hb_scheduler_busy(const struct hb_scheduler *scheduler)
{
	return scheduler->n_in_flight[HB_SCHEDULER_HIGH] + scheduler->n_in_flight[HB_SCHEDULER_LOW];
}

#endif
