/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster in virtual time; see cluster_sim.h. GPUs with the same state of interest are in one list ("bucket"), so that a
 * placement looks at buckets and not at GPUs: its cost does not grow with the cluster.
 */
#include "cluster/cluster_sim.h"

#include "cluster/event_heap.h"
#include "cluster/pair_choices.h"
#include "cluster/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE HB_WAITING_NONE
#define MILLI_KINDS_MAX 64u /* different shares that pods ask for */
#define PROGRAMS HB_CLUSTER_PROGRAMS
#define MINUTE_S 60

struct gpu {
	uint32_t high, low;      /* indices of pods, or NONE */
	uint32_t next, previous; /* in its bucket */
	uint32_t bucket;         /* NONE = in none */
	uint32_t version;        /* of its LP's end; older events are void */
	double since_s;          /* when loss and progress were counted last */
};

struct pod_state {
	double left_s;  /* work that LP still has, in seconds of a GPU alone */
	double loss_s;  /* HP: loss integrated over time; with HB_CLUSTER_AT_ONCE: the loss */
	double start_s; /* < 0: not yet */
	uint32_t gpu;
	bool shared;
};

struct cluster {
	const struct hb_cluster_setup *setup;
	struct hb_pair_choices choices;
	uint16_t milli[MILLI_KINDS_MAX]; /* ascending; one entry 0 where shares do not matter */
	uint32_t n_milli, n_buckets;
	uint32_t *heads;                    /* of buckets: services without LP, then LP alone, then free GPUs */
	uint32_t at_milli[MILLI_KINDS_MAX]; /* services without LP with this share */
	struct gpu *gpus;
	uint32_t n_gpus, size_gpus, used;
	struct pod_state *states;
	struct hb_event_heap events;
	struct hb_cluster_queue low_queue, high_queue;
	uint32_t *whole_gpus; /* next GPU of the same pod, by GPU */
	double now_s, used_since_s;
	struct hb_cluster_result sum;
};

enum { POD_ARRIVES, POD_ENDS, LOW_ENDS };

static const struct hb_pod *pod_of(const struct cluster *cluster, uint32_t pod)
{
	return &cluster->setup->pods->pods[pod];
}

/* --- what the model says, once for all placements ------------------------------------------------------------------ */

static const struct hb_pair_choice *pair_on(const struct cluster *cluster, const struct gpu *gpu)
{
	return &cluster->choices.pairs[hb_pair_program(pod_of(cluster, gpu->high))][pod_of(cluster, gpu->low)->low];
}

static double true_loss(const struct cluster *cluster, const struct gpu *gpu)
{
	double loss = pair_on(cluster, gpu)->loss * cluster->setup->truth;
	return loss < 1 ? loss : 1;
}

static double true_speed(const struct cluster *cluster, const struct gpu *gpu)
{
	if (gpu->high == NONE)
		return 1;
	double speed = 1 - (1 - pair_on(cluster, gpu)->speed) * cluster->setup->truth;
	return speed > 0.01 ? speed : 0.01;
}

/* --- buckets ------------------------------------------------------------------------------------------------------- */

static uint32_t milli_index(const struct cluster *cluster, uint16_t milli)
{
	uint32_t i = 0;
	while (i + 1 < cluster->n_milli && cluster->milli[i] < milli)
		i++;
	return i;
}

static uint32_t high_bucket(uint32_t milli, uint32_t program)
{
	return milli * PROGRAMS + program;
}

static uint32_t low_bucket(const struct cluster *cluster, uint32_t milli, uint32_t low)
{
	return cluster->n_milli * PROGRAMS + milli * HB_PAIR_LOWS + low;
}

static uint32_t free_bucket(const struct cluster *cluster)
{
	return cluster->n_buckets - 1;
}

/* The bucket where the GPU belongs, NONE for one that no pod can join. */
static uint32_t bucket_of(const struct cluster *cluster, const struct gpu *gpu)
{
	if (gpu->high == NONE && gpu->low == NONE)
		return free_bucket(cluster);
	if (gpu->high != NONE && gpu->low != NONE)
		return NONE;
	const struct hb_pod *pod = pod_of(cluster, gpu->high != NONE ? gpu->high : gpu->low);
	if (pod->class == HB_POD_WHOLE)
		return NONE;
	uint32_t milli = milli_index(cluster, pod->milli);
	return gpu->high != NONE ? high_bucket(milli, hb_pair_program(pod)) : low_bucket(cluster, milli, pod->low);
}

static void count_milli(struct cluster *cluster, uint32_t bucket, int change)
{
	if (bucket < cluster->n_milli * PROGRAMS)
		cluster->at_milli[bucket / PROGRAMS] += (uint32_t)change;
}

static void move_to_bucket(struct cluster *cluster, uint32_t id)
{
	struct gpu *gpu = &cluster->gpus[id];
	if (gpu->bucket != NONE) {
		if (gpu->previous != NONE)
			cluster->gpus[gpu->previous].next = gpu->next;
		else
			cluster->heads[gpu->bucket] = gpu->next;
		if (gpu->next != NONE)
			cluster->gpus[gpu->next].previous = gpu->previous;
		count_milli(cluster, gpu->bucket, -1);
	}
	gpu->bucket = bucket_of(cluster, gpu);
	gpu->previous = NONE;
	if (gpu->bucket == NONE)
		return;
	gpu->next = cluster->heads[gpu->bucket];
	if (gpu->next != NONE)
		cluster->gpus[gpu->next].previous = id;
	cluster->heads[gpu->bucket] = id;
	count_milli(cluster, gpu->bucket, 1);
}

/* Returns a free GPU; a new one unless the cluster is limited; NONE: there is none, or no memory for it. */
static uint32_t take_free(struct cluster *cluster)
{
	uint32_t id = cluster->heads[free_bucket(cluster)];
	if (id != NONE)
		return id;
	if (cluster->setup->arrivals == HB_CLUSTER_LIMITED && cluster->n_gpus >= cluster->setup->n_gpus)
		return NONE;
	if (cluster->n_gpus == cluster->size_gpus) {
		uint32_t size = cluster->size_gpus ? 2 * cluster->size_gpus : 256;
		struct gpu *gpus = realloc(cluster->gpus, size * sizeof *gpus);
		cluster->gpus = gpus ? gpus : cluster->gpus;
		uint32_t *whole = realloc(cluster->whole_gpus, size * sizeof *whole);
		cluster->whole_gpus = whole ? whole : cluster->whole_gpus;
		if (!gpus || !whole)
			return NONE;
		cluster->size_gpus = size;
	}
	id = cluster->n_gpus++;
	cluster->gpus[id] = (struct gpu){.high = NONE, .low = NONE, .bucket = NONE, .next = NONE, .previous = NONE};
	move_to_bucket(cluster, id);
	return id;
}

/* The GPU of a service beside which this job may run; NONE: none. */
static uint32_t find_beside_high(const struct cluster *cluster, const struct hb_pod *pod)
{
	if (!cluster->setup->rule->sharings)
		return NONE;
	for (uint32_t milli = cluster->n_milli; milli-- > 0;) {
		if (!cluster->at_milli[milli] ||
		    (cluster->setup->rule->fits_shares && cluster->milli[milli] + pod->milli > 1000))
			continue;
		for (uint32_t i = 0; i < PROGRAMS; i++) {
			uint32_t program = cluster->choices.order[pod->low][i];
			if (cluster->choices.pairs[program][pod->low].speed > 0 &&
			    cluster->heads[high_bucket(milli, program)] != NONE)
				return cluster->heads[high_bucket(milli, program)];
		}
	}
	return NONE;
}

/* The GPU of a job alone that this service may join; NONE: none. */
static uint32_t find_beside_low(const struct cluster *cluster, const struct hb_pod *pod)
{
	uint32_t found = NONE;
	double best = 0;
	for (uint32_t milli = cluster->n_milli; milli-- > 0 && found == NONE;) {
		if (cluster->setup->rule->fits_shares && cluster->milli[milli] + pod->milli > 1000)
			continue;
		for (uint32_t low = 0; low < HB_PAIR_LOWS; low++) {
			uint32_t id = cluster->heads[low_bucket(cluster, milli, low)];
			double speed = cluster->choices.pairs[hb_pair_program(pod)][low].speed;
			if (id != NONE && speed > best) {
				best = speed;
				found = id;
			}
		}
	}
	return found;
}

static uint32_t find_low_alone(const struct cluster *cluster)
{
	for (uint32_t bucket = cluster->n_milli * PROGRAMS; bucket < free_bucket(cluster); bucket++)
		if (cluster->heads[bucket] != NONE)
			return cluster->heads[bucket];
	return NONE;
}

/* --- what happens on one GPU --------------------------------------------------------------------------------------- */

static void count_used(struct cluster *cluster, int change)
{
	cluster->sum.gpu_hours += cluster->used * (cluster->now_s - cluster->used_since_s) / 3600;
	cluster->used_since_s = cluster->now_s;
	cluster->used += (uint32_t)change;
	if (cluster->used > cluster->sum.gpus)
		cluster->sum.gpus = cluster->used;
}

/* Counts loss and progress up to now. */
static void settle(struct cluster *cluster, struct gpu *gpu)
{
	double passed_s = cluster->now_s - gpu->since_s;
	gpu->since_s = cluster->now_s;
	if (gpu->low == NONE)
		return;
	double work_s = passed_s * true_speed(cluster, gpu);
	cluster->states[gpu->low].left_s -= work_s;
	cluster->sum.low_hours += work_s / 3600;
	if (gpu->high == NONE)
		return;
	cluster->sum.harvested_hours += work_s / 3600;
	struct pod_state *high = &cluster->states[gpu->high];
	high->loss_s += cluster->setup->arrivals == HB_CLUSTER_AT_ONCE ? 0 : passed_s * true_loss(cluster, gpu);
	high->shared = true;
}

static int expect_low_end(struct cluster *cluster, uint32_t id)
{
	struct gpu *gpu = &cluster->gpus[id];
	gpu->version++;
	if (gpu->low == NONE || cluster->setup->arrivals == HB_CLUSTER_AT_ONCE ||
	    pod_of(cluster, gpu->low)->class == HB_POD_WHOLE)
		return 0;
	double left_s = cluster->states[gpu->low].left_s;
	return hb_event_push(&cluster->events,
			     (struct hb_cluster_event){.time_s = cluster->now_s +
								 (left_s > 0 ? left_s : 0) / true_speed(cluster, gpu),
						       .kind = LOW_ENDS,
						       .subject = id,
						       .version = gpu->version});
}

static void note_end(struct cluster *cluster, uint32_t pod)
{
	if (cluster->setup->visits)
		cluster->setup->visits[pod].end_s = cluster->now_s;
}

/* Puts the pod on the GPU, beside what is there. */
static int join_gpu(struct cluster *cluster, uint32_t id, uint32_t pod, bool is_low)
{
	struct gpu *gpu = &cluster->gpus[id];
	struct pod_state *state = &cluster->states[pod];
	settle(cluster, gpu);
	if (gpu->high == NONE && gpu->low == NONE)
		count_used(cluster, 1);
	*(is_low ? &gpu->low : &gpu->high) = pod;
	state->gpu = id;
	if (state->start_s < 0)
		state->start_s = cluster->now_s;
	if (cluster->setup->visits)
		cluster->setup->visits[pod] = (struct hb_cluster_visit){
			.start_s = state->start_s, .end_s = -1, .gpu = id};
	if (cluster->setup->arrivals == HB_CLUSTER_AT_ONCE && gpu->high != NONE && gpu->low != NONE) {
		cluster->states[gpu->high].loss_s = true_loss(cluster, gpu);
		cluster->states[gpu->high].shared = true;
		cluster->sum.harvested_hours += true_speed(cluster, gpu); /* GPUs' worth of work: there is no time */
	}
	move_to_bucket(cluster, id);
	return expect_low_end(cluster, id);
}

static int leave_gpu(struct cluster *cluster, uint32_t id, bool is_low)
{
	struct gpu *gpu = &cluster->gpus[id];
	settle(cluster, gpu);
	*(is_low ? &gpu->low : &gpu->high) = NONE;
	if (gpu->high == NONE && gpu->low == NONE)
		count_used(cluster, -1);
	move_to_bucket(cluster, id);
	return expect_low_end(cluster, id);
}

/* --- waiting ------------------------------------------------------------------------------------------------------- */

/* The job loses what it did and waits again. The service or pod that needs its GPU takes it. */
static int evict_low(struct cluster *cluster, uint32_t id)
{
	uint32_t pod = cluster->gpus[id].low;
	struct pod_state *state = &cluster->states[pod];
	int rc = leave_gpu(cluster, id, true);
	double done_s = pod_of(cluster, pod)->run_s - state->left_s;
	cluster->sum.evictions++;
	cluster->sum.lost_hours += done_s / 3600;
	cluster->sum.low_hours -= done_s / 3600;
	state->left_s = pod_of(cluster, pod)->run_s;
	return rc ? rc : hb_waiting_add(&cluster->low_queue, pod);
}

/* --- placement ----------------------------------------------------------------------------------------------------- */

static int expect_end(struct cluster *cluster, uint32_t pod)
{
	if (cluster->setup->arrivals == HB_CLUSTER_AT_ONCE)
		return 0;
	return hb_event_push(&cluster->events,
			     (struct hb_cluster_event){.time_s = cluster->now_s + pod_of(cluster, pod)->run_s,
						       .kind = POD_ENDS,
						       .subject = pod});
}

/* 1: placed; 0: it has to wait; or a negative errno. */
static int place_low(struct cluster *cluster, uint32_t pod)
{
	uint32_t id = find_beside_high(cluster, pod_of(cluster, pod));
	id = id != NONE ? id : take_free(cluster);
	if (id == NONE)
		return cluster->setup->arrivals == HB_CLUSTER_LIMITED ? 0 : -ENOMEM;
	int rc = join_gpu(cluster, id, pod, true);
	return rc ? rc : 1;
}

static int place_high(struct cluster *cluster, uint32_t pod)
{
	uint32_t id = find_beside_low(cluster, pod_of(cluster, pod));
	int rc = 0;
	id = id != NONE ? id : take_free(cluster);
	if (id == NONE && cluster->setup->arrivals != HB_CLUSTER_LIMITED)
		return -ENOMEM;
	if (id == NONE && (id = find_low_alone(cluster)) != NONE)
		rc = evict_low(cluster, id);
	if (id == NONE || rc)
		return rc;
	rc = join_gpu(cluster, id, pod, false);
	rc = rc ? rc : expect_end(cluster, pod);
	return rc ? rc : 1;
}

/* A pod with GPUs of its own. In a limited cluster it waits until enough are free or can be freed. */
static int place_whole(struct cluster *cluster, uint32_t pod)
{
	uint32_t n = pod_of(cluster, pod)->n_gpus, free = 0, lows = 0, last = NONE;
	bool limited = cluster->setup->arrivals == HB_CLUSTER_LIMITED;
	for (uint32_t id = 0; limited && id < cluster->n_gpus; id++) {
		free += cluster->gpus[id].bucket == free_bucket(cluster);
		lows += cluster->gpus[id].high == NONE && cluster->gpus[id].low != NONE;
	}
	if (limited && free + lows + (cluster->setup->n_gpus - cluster->n_gpus) < n)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t id = take_free(cluster);
		int rc = 0;
		if (id == NONE && limited && (id = find_low_alone(cluster)) != NONE)
			rc = evict_low(cluster, id);
		rc = rc ? rc : id == NONE ? -ENOMEM : join_gpu(cluster, id, pod, false);
		if (rc)
			return rc;
		cluster->whole_gpus[id] = last;
		last = id;
	}
	cluster->states[pod].gpu = last;
	int rc = expect_end(cluster, pod);
	return rc ? rc : 1;
}

static int place_pod(struct cluster *cluster, uint32_t pod)
{
	switch (pod_of(cluster, pod)->class) {
	case HB_POD_LOW:
		return place_low(cluster, pod);
	case HB_POD_HIGH:
		return place_high(cluster, pod);
	default:
		return place_whole(cluster, pod);
	}
}

/* Starts those who wait, in their order; services first. */
static int serve_queues(struct cluster *cluster)
{
	struct hb_cluster_queue *queues[] = {&cluster->high_queue, &cluster->low_queue};
	for (int q = 0; q < 2; q++) {
		uint32_t pod;
		while ((pod = hb_waiting_first(queues[q])) != NONE) {
			int rc = place_pod(cluster, pod);
			if (rc < 0)
				return rc;
			if (rc == 0)
				break;
			queues[q]->head++;
		}
	}
	return 0;
}

static int arrive(struct cluster *cluster, uint32_t pod)
{
	bool is_low = pod_of(cluster, pod)->class == HB_POD_LOW;
	struct hb_cluster_queue *queue = is_low ? &cluster->low_queue : &cluster->high_queue;
	int rc = hb_waiting_first(queue) == NONE ? place_pod(cluster, pod) : 0;
	if (rc == 0) {
		cluster->sum.high_waited += !is_low;
		rc = hb_waiting_add(queue, pod);
	}
	return rc < 0 ? rc : serve_queues(cluster); /* a job may wait for a service to run beside */
}

static int end_pod(struct cluster *cluster, uint32_t pod)
{
	uint32_t id = cluster->states[pod].gpu;
	int rc = 0;
	note_end(cluster, pod);
	if (pod_of(cluster, pod)->class != HB_POD_WHOLE)
		return leave_gpu(cluster, id, false);
	while (!rc && id != NONE) {
		uint32_t next = cluster->whole_gpus[id];
		rc = leave_gpu(cluster, id, false);
		id = next;
	}
	return rc;
}

/* --- the whole run ------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile(const double *sorted, uint32_t n, double share)
{
	return n ? sorted[(uint32_t)(share * (n - 1))] : 0;
}

static void end_low(struct cluster *cluster, uint32_t id, double *waits, double *completions, uint32_t *n_completions,
		    uint32_t *n_waits)
{
	uint32_t pod = cluster->gpus[id].low;
	const struct hb_pod *facts = pod_of(cluster, pod);
	note_end(cluster, pod);
	waits[(*n_waits)++] = cluster->states[pod].start_s - facts->created_s;
	if (facts->run_s >= MINUTE_S)
		completions[(*n_completions)++] = (cluster->now_s - facts->created_s) / facts->run_s;
}

static void sum_up(struct cluster *cluster, double *waits, uint32_t n_waits, double *completions,
		   uint32_t n_completions)
{
	struct hb_cluster_result *sum = &cluster->sum;
	bool at_once = cluster->setup->arrivals == HB_CLUSTER_AT_ONCE;
	count_used(cluster, 0);
	for (uint32_t i = 0; i < cluster->setup->pods->n; i++) {
		const struct hb_pod *pod = pod_of(cluster, i);
		const struct pod_state *state = &cluster->states[i];
		if (pod->class != HB_POD_HIGH || state->start_s < 0)
			continue;
		double loss = at_once ? state->loss_s : pod->run_s > 0 ? state->loss_s / pod->run_s : 0;
		sum->shared_high += state->shared;
		sum->loss += loss / sum->high;
		sum->worst_loss = loss > sum->worst_loss ? loss : sum->worst_loss;
	}
	sum->unfinished = at_once ? 0 : sum->low - n_waits;
	qsort(waits, n_waits, sizeof *waits, compare_doubles);
	qsort(completions, n_completions, sizeof *completions, compare_doubles);
	for (uint32_t i = 0; i < n_waits; i++)
		sum->wait_mean_s += waits[i] / n_waits;
	for (uint32_t i = 0; i < n_completions; i++)
		sum->completion_mean += completions[i] / n_completions;
	sum->wait_p99_s = quantile(waits, n_waits, 0.99);
	sum->completion_p99 = quantile(completions, n_completions, 0.99);
	sum->completion_most = quantile(completions, n_completions, 1);
}

static int push_arrivals(struct cluster *cluster)
{
	const struct hb_pods *pods = cluster->setup->pods;
	bool at_once = cluster->setup->arrivals == HB_CLUSTER_AT_ONCE;
	int rc = 0;
	for (uint32_t i = 0; i < pods->n && !rc; i++) {
		cluster->states[i] = (struct pod_state){.left_s = pods->pods[i].run_s, .start_s = -1, .gpu = NONE};
		if (cluster->setup->visits)
			cluster->setup->visits[i] = (struct hb_cluster_visit){.start_s = -1, .end_s = -1, .gpu = NONE};
		if (pods->pods[i].run_s < 0 && !at_once) {
			cluster->sum.skipped++;
			continue;
		}
		cluster->sum.pods++;
		cluster->sum.high += pods->pods[i].class == HB_POD_HIGH;
		cluster->sum.low += pods->pods[i].class == HB_POD_LOW;
		rc = hb_event_push(&cluster->events,
				   (struct hb_cluster_event){.time_s = at_once ? 0 : pods->pods[i].created_s,
							     .kind = POD_ARRIVES,
							     .subject = i});
	}
	return rc;
}

static int run_events(struct cluster *cluster, double *waits, double *completions)
{
	struct hb_cluster_event event;
	uint32_t n_waits = 0, n_completions = 0;
	int rc = push_arrivals(cluster);
	while (!rc && hb_event_pop(&cluster->events, &event)) {
		if (event.kind == LOW_ENDS && event.version != cluster->gpus[event.subject].version)
			continue;
		cluster->now_s = event.time_s;
		if (event.kind == POD_ARRIVES) {
			rc = arrive(cluster, event.subject);
			continue;
		}
		if (event.kind == LOW_ENDS)
			end_low(cluster, event.subject, waits, completions, &n_completions, &n_waits);
		rc = event.kind == LOW_ENDS ? leave_gpu(cluster, event.subject, true) : end_pod(cluster, event.subject);
		rc = rc ? rc : serve_queues(cluster);
	}
	if (!rc)
		sum_up(cluster, waits, n_waits, completions, n_completions);
	return rc;
}

int hb_cluster_run(const struct hb_cluster_setup *setup, struct hb_cluster_result *result, struct hb_error *error)
{
	struct cluster *cluster = calloc(1, sizeof *cluster);
	size_t n = setup->pods->n;
	double *waits = calloc(2 * n + 1, sizeof *waits);
	int rc = cluster && waits ? 0 : -ENOMEM;
	if (!rc) {
		cluster->setup = setup;
		cluster->n_milli = 1;
		if (setup->rule->fits_shares)
			rc = hb_pods_list_shares(setup->pods, cluster->milli, MILLI_KINDS_MAX, &cluster->n_milli);
	}
	if (!rc) {
		hb_pair_choices_make(&cluster->choices, setup);
		cluster->n_buckets = cluster->n_milli * (PROGRAMS + HB_PAIR_LOWS) + 1;
		cluster->heads = malloc(cluster->n_buckets * sizeof *cluster->heads);
		cluster->states = calloc(n + 1, sizeof *cluster->states);
		rc = cluster->heads && cluster->states ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; !rc && i < cluster->n_buckets; i++)
		cluster->heads[i] = NONE;
	rc = rc ? rc : run_events(cluster, waits, waits + n);
	if (!rc)
		*result = cluster->sum;
	else
		hb_error_format(error,
				rc == -E2BIG ? "pods ask for more than %u different shares of a GPU"
					     : "out of memory for the pods and GPUs (%u different shares)",
				MILLI_KINDS_MAX);
	if (cluster) {
		hb_event_heap_fini(&cluster->events);
		free(cluster->heads);
		free(cluster->states);
		free(cluster->gpus);
		free(cluster->whole_gpus);
		hb_waiting_fini(&cluster->low_queue);
		hb_waiting_fini(&cluster->high_queue);
	}
	free(cluster);
	free(waits);
	return rc;
}
