/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy of `serve` is, and what it may use. One file each (or a family),
 * a row in serve_policies.def. Included by serve.c and pick_*.c only.
 */
#ifndef HB_SERVE_SERVE_POLICY_H
#define HB_SERVE_SERVE_POLICY_H

#include "server/scheduler/serve.h"
#include "server/scheduler/serve_queue.h"

struct hb_serve_ops {
	struct hb_predictor_parts parts;
	bool priorities; /* false: both priorities share queues and streams */
	bool holds;      /* it may hold low-priority batches of models that can be (hb_serve_model.stop_share) */
	/*
	 * The next action now, if any: start a batch (hb_serve_start), refuse a
	 * request (hb_serve_refuse), hold or release. Called until it says false;
	 * may set serve->policy_wake_ns to be called again then. Requests whose
	 * deadline has passed are gone already.
	 */
	bool (*decide)(struct hb_serve *serve, int64_t now_ns, struct hb_serve_action *action);
};

#define HB_SERVE_POLICY(name, ops) extern const struct hb_serve_ops ops;
#include "server/scheduler/serve_policies.def"
#undef HB_SERVE_POLICY

/* How high priority of a model comes: what may come next is like it. */
struct hb_serve_habit {
	int64_t deadline_ns; /* from arrival, the shortest lately; 0 = none came */
	int64_t seen_ns;
	double gap_ns; /* between two, lately */
};

struct hb_serve {
	struct hb_serve_config config;
	const struct hb_serve_ops *ops;
	struct hb_predictor predictor;
	struct hb_serve_pool pool;
	struct hb_serve_queue queues[HB_SERVE_MODELS_MAX][HB_SERVE_PRIORITIES];
	struct hb_serve_batch batches[HB_SERVE_FLIGHTS_MAX];
	uint32_t members[HB_SERVE_FLIGHTS_MAX][HB_SERVE_BATCH_MAX]; /* their requests */
	uint32_t in_flight[HB_SERVE_MODELS_MAX][HB_SERVE_PRIORITIES];
	uint32_t n_in_flight[HB_SERVE_PRIORITIES];
	uint32_t queued[HB_SERVE_PRIORITIES];
	uint32_t held[HB_SERVE_PRIORITIES]; /* of queue_max, each: queued and in batches */
	struct hb_serve_counts counts;
	int64_t policy_wake_ns;
	int64_t settled_ns; /* nothing is to be decided before, unless something happens; INT64_MIN = something has */
	struct hb_serve_habit habits[HB_SERVE_MODELS_MAX];
	int64_t aged_after_ns; /* pick_ours.c: the next batch for having waited long, not before */
};

static inline struct hb_waiting *hb_serve_waiting(struct hb_serve *serve, uint32_t index)
{
	return &serve->pool.requests[index];
}

/* The first request of a queue in an order; NULL when it is empty. */
static inline struct hb_waiting *hb_serve_first(struct hb_serve *serve, uint32_t model, enum hb_serve_priority class,
						enum hb_serve_order order)
{
	uint32_t first = serve->queues[model][class].first[order];
	return first == HB_SERVE_NONE ? NULL : &serve->pool.requests[first];
}

/* Whether the model may have one more batch of the class in flight. */
bool hb_serve_slot_free(const struct hb_serve *serve, uint32_t model, enum hb_serve_priority class);
/* Items of a batch made of the first requests in that order, at most `most` (at least the first request's). */
uint32_t hb_serve_batch_items(struct hb_serve *serve, uint32_t model, enum hb_serve_priority class,
			      enum hb_serve_order order, uint32_t most);
/* Starts it; true. */
bool hb_serve_start(struct hb_serve *serve, int64_t now_ns, uint32_t model, enum hb_serve_priority class,
		    enum hb_serve_order order, uint32_t most, struct hb_serve_action *action);
/* Holds the batch in `slot` or lets it go on; false: it is so already, or cannot be held. */
bool hb_serve_hold(struct hb_serve *serve, int64_t now_ns, uint32_t slot, bool held, struct hb_serve_action *action);
/*
 * Deals with a request that will be late, or is, as configured. True: *action
 * is to refuse it; false: it has been downgraded (not where low priority's queue is full).
 */
bool hb_serve_refuse(struct hb_serve *serve, int64_t now_ns, struct hb_waiting *request, enum hb_serve_reason reason,
		     int64_t finish_ns, struct hb_serve_action *action);
/* Batches in flight of all classes. */
static inline uint32_t hb_serve_busy(const struct hb_serve *serve)
{
	return serve->n_in_flight[HB_SERVE_HIGH] + serve->n_in_flight[HB_SERVE_LOW];
}

#endif
