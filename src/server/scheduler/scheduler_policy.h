/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy of `serve` is, and what it may use. One file each (or a family),
 * a row in scheduler_policies.def. Included by scheduler.c and pick_*.c only.
 */
#ifndef HB_SCHEDULER_SERVE_POLICY_H
#define HB_SCHEDULER_SERVE_POLICY_H

#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_queue.h"

struct hb_scheduler_ops {
	struct hb_predictor_parts parts;
	bool priorities; /* false: both priorities share queues and streams */
	bool pauses;     /* it may hold low-priority batches of models that can be (hb_scheduler_model.stop_share) */
	/*
	 * The next action now, if any: start a batch (hb_scheduler_start), refuse a
	 * request (hb_scheduler_refuse), hold or release. Called until it says false;
	 * may set serve->policy_wake_ns to be called again then. Requests whose
	 * deadline has passed are gone already.
	 */
	bool (*decide)(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action);
};

#define HB_SCHEDULER_POLICY(name, ops) extern const struct hb_scheduler_ops ops;
#include "server/scheduler/scheduler_policies.def"
#undef HB_SCHEDULER_POLICY

/* How high priority of a model comes: what may come next is like it. */
struct hb_scheduler_habit {
	int64_t deadline_ns; /* from arrival, the shortest lately; 0 = none came */
	int64_t seen_ns;
	double gap_ns; /* between two, lately */
};

struct hb_scheduler {
	struct hb_scheduler_config config;
	const struct hb_scheduler_ops *ops;
	struct hb_predictor predictor;
	struct hb_scheduler_pool pool;
	struct hb_scheduler_queue queues[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	struct hb_scheduler_batch batches[HB_SCHEDULER_FLIGHTS_MAX];
	uint32_t members[HB_SCHEDULER_FLIGHTS_MAX][HB_SCHEDULER_BATCH_MAX]; /* their requests */
	uint32_t in_flight[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	uint32_t n_in_flight[HB_SCHEDULER_PRIORITIES];
	uint32_t queued[HB_SCHEDULER_PRIORITIES];
	uint32_t admitted[HB_SCHEDULER_PRIORITIES]; /* of queue_max, each: queued and in batches */
	struct hb_scheduler_counts counts;
	int64_t policy_wake_ns;
	int64_t settled_ns; /* nothing is to be decided before, unless something happens; INT64_MIN = something has */
	struct hb_scheduler_habit habits[HB_SCHEDULER_MODELS_MAX];
	int64_t aged_after_ns; /* pick_ours.c: the next batch for having waited long, not before */
};

static inline struct hb_waiting *hb_scheduler_waiting(struct hb_scheduler *scheduler, uint32_t index)
{
	return &scheduler->pool.requests[index];
}

/* The first request of a queue in an order; NULL when it is empty. */
static inline struct hb_waiting *hb_scheduler_first(struct hb_scheduler *scheduler, uint32_t model,
						    enum hb_scheduler_priority class, enum hb_scheduler_order order)
{
	uint32_t first = scheduler->queues[model][class].first[order];
	return first == HB_SCHEDULER_NONE ? NULL : &scheduler->pool.requests[first];
}

/* Whether the model may have one more batch of the class in flight. */
bool hb_scheduler_slot_free(const struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class);
/* Items of a batch made of the first requests in that order, at most `most` (at least the first request's). */
uint32_t hb_scheduler_batch_items(struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class,
				  enum hb_scheduler_order order, uint32_t most);
/* Starts it; true. */
bool hb_scheduler_start(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t model,
			enum hb_scheduler_priority class, enum hb_scheduler_order order, uint32_t most,
			struct hb_scheduler_action *action);
/* Holds the batch in `slot` or lets it go on; false: it is so already, or cannot be held. */
bool hb_scheduler_pause(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool paused,
			struct hb_scheduler_action *action);
/*
 * Deals with a request that will be late, or is, as configured. True: *action
 * is to refuse it; false: it has been downgraded (not where low priority's queue is full).
 */
bool hb_scheduler_refuse(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_waiting *request,
			 enum hb_scheduler_reason reason, int64_t finish_ns, struct hb_scheduler_action *action);
/* Batches in flight of all classes. */
static inline uint32_t hb_scheduler_busy(const struct hb_scheduler *scheduler)
{
	return scheduler->n_in_flight[HB_SCHEDULER_HIGH] + scheduler->n_in_flight[HB_SCHEDULER_LOW];
}

#endif
