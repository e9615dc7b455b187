/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the scheduler: queues, batches, counts; see scheduler.h. Decisions are made by the policies, pick_*.c. */
#include "server/scheduler/scheduler_policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_MOST (1u << 24)
/* Assumed time between the first and the second high-priority request of a model. */
#define GAP_GUESS_NS 1e8

static const struct {
	const char *name;
	const struct hb_scheduler_ops *ops;
} policies[] = {
#define HB_SCHEDULER_POLICY(name, ops) {name, &ops},
#include "server/scheduler/scheduler_policies.def"
#undef HB_SCHEDULER_POLICY
};

#define N_POLICIES (sizeof policies / sizeof *policies)

const char *const hb_scheduler_policy_names[] = {
#define HB_SCHEDULER_POLICY(name, ops) name,
#include "server/scheduler/scheduler_policies.def"
#undef HB_SCHEDULER_POLICY
	NULL,
};

void hb_scheduler_config_init(struct hb_scheduler_config *config)
{
	*config = (struct hb_scheduler_config){
		.policy = "ours",
		.queue_max = 4096,
		.slots = 2,
		.concurrency = 2,
		.batch_most = HB_SCHEDULER_BATCH_MAX,
		.late = {HB_SCHEDULER_REJECT, HB_SCHEDULER_REJECT},
		.age_ns = INT64_C(1000000000),
		.aged_share = 0.02,
	};
}

/* Makes the next hb_scheduler_step() ask the policy. */
static void request_decision(struct hb_scheduler *scheduler)
{
	scheduler->settled_ns = INT64_MIN;
}

static const struct hb_scheduler_ops *find_policy(const char *name)
{
	for (size_t i = 0; i < N_POLICIES; i++)
		if (strcmp(policies[i].name, name) == 0)
			return policies[i].ops;
	return NULL;
}

static int check_config(const struct hb_scheduler_config *config, struct hb_error *error)
{
	if (!find_policy(config->policy))
		return hb_error_set(error, -EINVAL, "no serving policy '%s'", config->policy);
	if (config->queue_max < 1 || config->queue_max > QUEUE_MOST)
		return hb_error_set(error, -EINVAL, "queue of %u requests: must be 1 to %u", config->queue_max,
				    QUEUE_MOST);
	if (config->slots < 1 || config->slots > HB_SCHEDULER_FLIGHTS_MAX)
		return hb_error_set(error, -EINVAL, "%u batches of a model: must be 1 to %u", config->slots,
				    HB_SCHEDULER_FLIGHTS_MAX);
	if (config->concurrency < 1)
		return hb_error_set(error, -EINVAL, "0 batches at one time: must be at least 1");
	if (config->batch_most < 1)
		return hb_error_set(error, -EINVAL, "batches of 0 items: must be at least 1");
	if (config->age_ns <= 0)
		return hb_error_set(error, -EINVAL, "ageing after %lld ns: must be more than 0",
				    (long long)config->age_ns);
	if (!(config->aged_share > 0 && config->aged_share <= 1))
		return hb_error_set(error, -EINVAL, "a share of %g for aged requests: must be above 0, at most 1",
				    config->aged_share);
	return 0;
}

int hb_scheduler_new(const struct hb_scheduler_config *config, struct hb_scheduler **out, struct hb_error *error)
{
	int rc = check_config(config, error);
	if (rc)
		return rc;
	struct hb_scheduler *scheduler = calloc(1, sizeof *scheduler);
	if (!scheduler)
		return hb_error_set(error, -ENOMEM, "out of memory");
	scheduler->config = *config;
	scheduler->ops = find_policy(config->policy);
	scheduler->policy_wake_ns = INT64_MAX;
	request_decision(scheduler);
	hb_predictor_init(&scheduler->predictor, scheduler->ops->parts);
	for (uint32_t model = 0; model < HB_SCHEDULER_MODELS_MAX; model++)
		for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++)
			hb_scheduler_queue_init(&scheduler->queues[model][class]);
	if (hb_scheduler_pool_init(&scheduler->pool, HB_SCHEDULER_PRIORITIES * config->queue_max)) {
		free(scheduler);
		return hb_error_set(error, -ENOMEM, "out of memory for %u requests of each priority",
				    config->queue_max);
	}
	*out = scheduler;
	return 0;
}

void hb_scheduler_free(struct hb_scheduler *scheduler)
{
	if (!scheduler)
		return;
	hb_scheduler_pool_fini(&scheduler->pool);
	free(scheduler);
}

int hb_scheduler_check_policy(const struct hb_scheduler *scheduler, const char *policy, struct hb_error *error)
{
	if (!find_policy(policy))
		return hb_error_set(error, -EINVAL, "no serving policy '%s'", policy);
	if (hb_scheduler_busy(scheduler) || scheduler->queued[HB_SCHEDULER_HIGH] || scheduler->queued[HB_SCHEDULER_LOW])
		return hb_error_set(error, -EBUSY, "requests wait or run: the policy cannot change now");
	return 0;
}

int hb_scheduler_set_policy(struct hb_scheduler *scheduler, const char *policy, struct hb_error *error)
{
	int result = hb_scheduler_check_policy(scheduler, policy, error);
	if (result < 0)
		return result;
	scheduler->ops = find_policy(policy);
	scheduler->predictor.parts = scheduler->ops->parts;
	scheduler->policy_wake_ns = INT64_MAX;
	request_decision(scheduler);
	return 0;
}

static int refuse_model(int result, const struct hb_scheduler_model *model, struct hb_error *error)
{
	if (result == -ENOSPC)
		return hb_error_set(error, result, "model %s: more than %u models", model->name,
				    HB_SCHEDULER_MODELS_MAX);
	if (result == -EBUSY)
		return hb_error_set(error, result, "model %s: requests of the previous model wait or run", model->name);
	return hb_error_set(error, result,
			    "model %s: batches must have 1 to %u items, bytes must be 0 or more, demands 0 to 1",
			    model->name, HB_SCHEDULER_BATCH_MAX);
}

int hb_scheduler_add_model(struct hb_scheduler *scheduler, const struct hb_scheduler_model *model,
			   struct hb_error *error)
{
	int index = hb_predictor_add_model(&scheduler->predictor, model);
	return index < 0 ? refuse_model(index, model, error) : index;
}

int hb_scheduler_replace_model(struct hb_scheduler *scheduler, uint32_t number, const struct hb_scheduler_model *model,
			       struct hb_error *error)
{
	bool waits = number < scheduler->predictor.n_models && (scheduler->queues[number][HB_SCHEDULER_HIGH].requests ||
								scheduler->queues[number][HB_SCHEDULER_LOW].requests);
	int result = waits ? -EBUSY : hb_predictor_replace_model(&scheduler->predictor, number, model);
	if (result < 0)
		return refuse_model(result, model, error);
	scheduler->habits[number] = (struct hb_scheduler_habit){0};
	request_decision(scheduler);
	return 0;
}

int hb_scheduler_set_demand(struct hb_scheduler *scheduler, uint32_t number, const struct hb_demand *demand)
{
	request_decision(scheduler);
	return hb_predictor_set_demand(&scheduler->predictor, number, demand);
}

void hb_scheduler_profiled(struct hb_scheduler *scheduler, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES])
{
	request_decision(scheduler);
	hb_predictor_profiled(&scheduler->predictor, model, items, stage_ns);
}

static enum hb_scheduler_priority choose_queue(const struct hb_scheduler *scheduler,
					       enum hb_scheduler_priority priority)
{
	return scheduler->ops->priorities ? priority : HB_SCHEDULER_HIGH;
}

static void enqueue_request(struct hb_scheduler *scheduler, uint32_t index)
{
	struct hb_waiting *request = hb_scheduler_waiting(scheduler, index);
	hb_scheduler_queue_insert(&scheduler->queues[request->model][request->class], &scheduler->pool, index);
	scheduler->queued[request->class]++;
}

static void dequeue_request(struct hb_scheduler *scheduler, uint32_t index)
{
	struct hb_waiting *request = hb_scheduler_waiting(scheduler, index);
	hb_scheduler_queue_remove(&scheduler->queues[request->model][request->class], &scheduler->pool, index);
	scheduler->queued[request->class]--;
}

/* Updates the model's habit: deadlines and arrival gaps of its high-priority requests. */
static void update_habit(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_scheduler_request *request)
{
	if (request->priority != HB_SCHEDULER_HIGH || request->deadline_ns == INT64_MAX || request->moved)
		return;
	struct hb_scheduler_habit *habit = &scheduler->habits[request->model];
	int64_t deadline_ns = request->deadline_ns - now_ns;
	if (deadline_ns <= 0) /* such a request is late anyway and says nothing about later ones */
		return;
	double gap_ns = (double)(now_ns - habit->seen_ns);
	/* A shorter deadline counts at once, longer ones as a moving average. */
	bool shorter = habit->deadline_ns <= 0 || deadline_ns < habit->deadline_ns;
	habit->gap_ns += habit->deadline_ns > 0 ? (gap_ns - habit->gap_ns) / 16 : GAP_GUESS_NS;
	habit->deadline_ns = shorter ? deadline_ns : habit->deadline_ns + (deadline_ns - habit->deadline_ns) / 16;
	habit->seen_ns = now_ns;
}

uint64_t hb_scheduler_submit(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_scheduler_request *request)
{
	if (request->model >= scheduler->predictor.n_models || request->items < 1 ||
	    request->items > scheduler->predictor.models[request->model].max_items)
		return 0;
	if (scheduler->admitted[request->priority] == scheduler->config.queue_max) {
		scheduler->counts.full[request->priority]++;
		return 0;
	}
	uint32_t index = hb_scheduler_pool_take(
		&scheduler->pool); /* never full: it has room for queue_max of each priority */
	struct hb_waiting *waiting = hb_scheduler_waiting(scheduler, index);
	waiting->cookie = request->cookie;
	waiting->model = request->model;
	waiting->items = request->items;
	waiting->priority = request->priority;
	waiting->class = choose_queue(scheduler, request->priority);
	waiting->limit = request->priority;
	scheduler->admitted[waiting->limit]++;
	waiting->arrival_ns = now_ns;
	waiting->deadline_ns = request->deadline_ns;
	waiting->room_bytes = request->room_bytes;
	request_decision(scheduler);
	enqueue_request(scheduler, index);
	update_habit(scheduler, now_ns, request);
	scheduler->counts.submitted[request->priority]++;
	return (uint64_t)waiting->generation << 32 | index;
}

void hb_scheduler_note_full(struct hb_scheduler *scheduler, enum hb_scheduler_priority priority)
{
	scheduler->counts.full[priority]++;
}

static void free_request(struct hb_scheduler *scheduler, uint32_t index)
{
	scheduler->admitted[hb_scheduler_waiting(scheduler, index)->limit]--;
	hb_scheduler_pool_give(&scheduler->pool, index);
}

static void cancel_queued(struct hb_scheduler *scheduler, uint32_t index)
{
	request_decision(scheduler);
	scheduler->counts.cancelled[hb_scheduler_waiting(scheduler, index)->priority]++;
	dequeue_request(scheduler, index);
	free_request(scheduler, index);
}

bool hb_scheduler_cancel(struct hb_scheduler *scheduler, int64_t now_ns, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;
	if (index >= scheduler->pool.capacity)
		return false;
	struct hb_waiting *request = hb_scheduler_waiting(scheduler, index);
	if (request->generation != handle >> 32 || !request->queued)
		return false;
	cancel_queued(scheduler, index);
	return true;
}

bool hb_scheduler_cancel_any(struct hb_scheduler *scheduler, uint32_t model, uint64_t *cookie)
{
	for (int class = 0; class < HB_SCHEDULER_PRIORITIES && model < scheduler->predictor.n_models; class ++) {
		uint32_t index = scheduler->queues[model][class].first[HB_ORDER_ARRIVAL];
		if (index == HB_SCHEDULER_NONE)
			continue;
		*cookie = hb_scheduler_waiting(scheduler, index)->cookie;
		cancel_queued(scheduler, index);
		return true;
	}
	return false;
}

void hb_scheduler_stage(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage)
{
	request_decision(scheduler);
	hb_predictor_stage(&scheduler->predictor, now_ns, slot, stage);
}

void hb_scheduler_end(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool complete)
{
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || !scheduler->batches[slot].used)
		return;
	struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	request_decision(scheduler);
	hb_predictor_end(&scheduler->predictor, now_ns, slot, complete);
	for (uint32_t i = 0; i < batch->n_requests; i++)
		free_request(scheduler, scheduler->members[slot][i]);
	scheduler->in_flight[batch->model][batch->priority]--;
	scheduler->n_in_flight[batch->priority]--;
	batch->used = false;
}

bool hb_scheduler_slot_free(const struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class)
{
	const uint32_t *in_flight = scheduler->in_flight[model], slots = scheduler->predictor.models[model].slots;
	if (slots && in_flight[HB_SCHEDULER_HIGH] + in_flight[HB_SCHEDULER_LOW] >= slots)
		return false;
	return in_flight[class] < scheduler->config.slots && hb_scheduler_busy(scheduler) < HB_SCHEDULER_FLIGHTS_MAX;
}

uint32_t hb_scheduler_batch_items(struct hb_scheduler *scheduler, uint32_t model, enum hb_scheduler_priority class,
				  enum hb_scheduler_order order, uint32_t most)
{
	uint32_t items = 0, limit = scheduler->predictor.models[model].max_items;
	uint64_t room = scheduler->predictor.models[model].room_bytes, bytes = 0;
	most = scheduler->config.batch_most < most ? scheduler->config.batch_most : most;
	limit = most < limit ? most : limit;
	for (uint32_t i = scheduler->queues[model][class].first[order]; i != HB_SCHEDULER_NONE;) {
		const struct hb_waiting *request = hb_scheduler_waiting(scheduler, i);
		if (items && (items + request->items > limit || (room && bytes + request->room_bytes > room)))
			break;
		items += request->items;
		bytes += request->room_bytes;
		i = request->next[order];
	}
	return items;
}

static uint32_t find_free_slot(const struct hb_scheduler *scheduler)
{
	uint32_t slot = 0;
	while (slot + 1 < HB_SCHEDULER_FLIGHTS_MAX && scheduler->batches[slot].used)
		slot++;
	return slot;
}

static void fill_batch(struct hb_scheduler *scheduler, uint32_t slot, enum hb_scheduler_order order, uint32_t items)
{
	struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	while (batch->items < items) {
		uint32_t index = scheduler->queues[batch->model][batch->priority].first[order];
		struct hb_waiting *request = hb_scheduler_waiting(scheduler, index);
		dequeue_request(scheduler, index);
		scheduler->members[slot][batch->n_requests] = index;
		batch->cookies[batch->n_requests++] = request->cookie;
		batch->items += request->items;
		if (request->deadline_ns < batch->deadline_ns)
			batch->deadline_ns = request->deadline_ns;
		scheduler->counts.started[request->priority]++;
	}
}

bool hb_scheduler_start(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t model,
			enum hb_scheduler_priority class, enum hb_scheduler_order order, uint32_t most,
			struct hb_scheduler_action *action)
{
	uint32_t slot = find_free_slot(scheduler),
		 items = hb_scheduler_batch_items(scheduler, model, class, order, most);
	struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	*batch = (struct hb_scheduler_batch){
		.model = model, .priority = class, .begun_ns = now_ns, .deadline_ns = INT64_MAX, .used = true};
	batch->can_pause = class == HB_SCHEDULER_LOW && scheduler->ops->pauses &&
			   scheduler->predictor.models[model].stop_share > 0;
	fill_batch(scheduler, slot, order, items);
	scheduler->in_flight[model][class]++;
	scheduler->n_in_flight[class]++;
	scheduler->counts.batches++;
	hb_predictor_begin(&scheduler->predictor, now_ns, slot, model, items, class);
	const struct hb_flight *flight = &scheduler->predictor.flights[slot];
	double error = hb_predictor_error(&scheduler->predictor, class, flight->flow.beside) * flight->predicted_ns;
	*action = (struct hb_scheduler_action){
		.kind = HB_SCHEDULER_START,
		.slot = slot,
		.finish_ns = now_ns + (int64_t)flight->predicted_ns,
		.error_ns = (int64_t)error,
	};
	return true;
}

bool hb_scheduler_pause(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool paused,
			struct hb_scheduler_action *action)
{
	struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	if (!batch->used || !batch->can_pause || batch->paused == paused)
		return false;
	batch->paused = paused;
	scheduler->counts.pauses += paused;
	hb_predictor_pause(&scheduler->predictor, now_ns, slot, paused);
	*action = (struct hb_scheduler_action){.kind = paused ? HB_SCHEDULER_PAUSE : HB_SCHEDULER_RESUME, .slot = slot};
	return true;
}

static bool has_room_as_low(const struct hb_scheduler *scheduler, const struct hb_waiting *request)
{
	return request->limit == HB_SCHEDULER_LOW ||
	       scheduler->admitted[HB_SCHEDULER_LOW] < scheduler->config.queue_max;
}

static void downgrade_request(struct hb_scheduler *scheduler, uint32_t index)
{
	struct hb_waiting *request = hb_scheduler_waiting(scheduler, index);
	dequeue_request(scheduler, index);
	scheduler->admitted[request->limit]--;
	scheduler->admitted[request->limit = HB_SCHEDULER_LOW]++;
	scheduler->counts.downgraded[request->priority]++;
	request->class = choose_queue(scheduler, HB_SCHEDULER_LOW);
	request->deadline_ns = INT64_MAX;
	enqueue_request(scheduler, index);
}

bool hb_scheduler_refuse(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_waiting *request,
			 enum hb_scheduler_reason reason, int64_t finish_ns, struct hb_scheduler_action *action)
{
	uint32_t index = (uint32_t)(request - scheduler->pool.requests);
	if (scheduler->config.late[request->priority] == HB_SCHEDULER_DOWNGRADE &&
	    has_room_as_low(scheduler, request)) {
		downgrade_request(scheduler, index);
		return false;
	}
	*(reason == HB_SCHEDULER_TIMEOUT ? &scheduler->counts.timeouts[request->priority]
					 : &scheduler->counts.refused[request->priority]) += 1;
	*action = (struct hb_scheduler_action){
		.kind = HB_SCHEDULER_REFUSE, .cookie = request->cookie, .reason = reason, .finish_ns = finish_ns};
	dequeue_request(scheduler, index);
	free_request(scheduler, index);
	return true;
}

/* Refuses the next queued request whose deadline has passed. False: there is none. */
static bool refuse_next_late(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++)
		for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++) {
			struct hb_waiting *first;
			while ((first = hb_scheduler_first(scheduler, model, class, HB_ORDER_URGENCY)) &&
			       first->deadline_ns <= now_ns)
				if (hb_scheduler_refuse(scheduler, now_ns, first, HB_SCHEDULER_TIMEOUT, INT64_MAX,
							action))
					return true;
		}
	return false;
}

int64_t hb_scheduler_next_wake_ns(const struct hb_scheduler *scheduler)
{
	int64_t wake = scheduler->policy_wake_ns;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++)
		for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++) {
			uint32_t first = scheduler->queues[model][class].first[HB_ORDER_URGENCY];
			if (first == HB_SCHEDULER_NONE)
				continue;
			int64_t deadline = scheduler->pool.requests[first].deadline_ns;
			wake = deadline < wake ? deadline : wake;
		}
	return wake;
}

bool hb_scheduler_step(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	/* The dispatcher calls this often. Without a new event the policy need not decide again. */
	if (now_ns < scheduler->settled_ns)
		return false;
	request_decision(scheduler);
	if (refuse_next_late(scheduler, now_ns, action))
		return true;
	scheduler->policy_wake_ns = INT64_MAX;
	if (scheduler->ops->decide(scheduler, now_ns, action))
		return true;
	scheduler->settled_ns = hb_scheduler_next_wake_ns(scheduler);
	return false;
}

const struct hb_scheduler_batch *hb_scheduler_batch_get(const struct hb_scheduler *scheduler, uint32_t slot)
{
	return slot < HB_SCHEDULER_FLIGHTS_MAX && scheduler->batches[slot].used ? &scheduler->batches[slot] : NULL;
}

const struct hb_predictor *hb_scheduler_predictor(const struct hb_scheduler *scheduler)
{
	return &scheduler->predictor;
}

const struct hb_scheduler_counts *hb_scheduler_counts_get(const struct hb_scheduler *scheduler)
{
	return &scheduler->counts;
}

uint32_t hb_scheduler_queued(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority)
{
	return scheduler->queued[priority];
}

uint32_t hb_scheduler_admitted(const struct hb_scheduler *scheduler, enum hb_scheduler_priority priority)
{
	return scheduler->admitted[priority];
}

uint32_t hb_scheduler_waiting_of(const struct hb_scheduler *scheduler, uint32_t model)
{
	return scheduler->queues[model][HB_SCHEDULER_HIGH].requests +
	       scheduler->queues[model][HB_SCHEDULER_LOW].requests;
}

uint32_t hb_scheduler_queue_max(const struct hb_scheduler *scheduler)
{
	return scheduler->config.queue_max;
}

uint32_t hb_scheduler_in_flight(const struct hb_scheduler *scheduler, uint32_t model)
{
	return scheduler->in_flight[model][HB_SCHEDULER_HIGH] + scheduler->in_flight[model][HB_SCHEDULER_LOW];
}
