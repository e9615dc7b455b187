/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the serving scheduler costs: CPU time a request of everything under the
 * dispatcher's lock that is src/serve's, for some loads and numbers of models.
 * A GPU that is only an event list stands behind it: a batch copies in, runs and
 * copies out, n that run beside each other are each slower by 0.8 (n - 1), so
 * nearly all the time is the scheduler's. The digest is of every decision and
 * its time: the same before and after a change that decides nothing else.
 *
 * usage: serve-cost [POLICY]    (ours)
 * `meson test --benchmark serve_cost`; nothing is asserted.
 */
#include "base/rng.h"
#include "server/scheduler/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define US 1e3
#define MS 1e6
#define BESIDE 0.8
#define COPY_NS (60 * US)
#define MODELS_MOST 64
/* 0.95 of what one at a time gets through is 100 %: batches gain, company costs. */
#define WHOLE 0.95

struct flight {
	bool used;
	enum hb_scheduler_stage stage;
	double left_ns;
};

struct scene {
	const char *name;
	uint32_t models; /* half of them for high priority */
	double load, seconds;
	double deadline[HB_SCHEDULER_PRIORITIES]; /* times the model's time alone */
};

struct world {
	struct hb_scheduler *scheduler;
	const struct scene *scene;
	struct hb_rng rng;
	double now_ns, arrival_ns, gap_ns;
	double run_ns[MODELS_MOST];
	struct flight flights[HB_SCHEDULER_FLIGHTS_MAX];
	uint64_t requests, steps, digest;
};

static const struct scene scenes[] = {
	{"12 models, 60 %", 12, 0.6, 30, {4, 8}},
	{"12 models, 100 %", 12, 1.0, 30, {4, 8}},
	{"12 models, 110 %, wider deadlines", 12, 1.1, 30, {8, 60}},
	{"12 models, 150 %, LP waits 1 s and more", 12, 1.5, 20, {4, 400}},
	{"40 models, 100 %", 40, 1.0, 20, {4, 8}},
	{"40 models, 150 %, LP waits 1 s and more", 40, 1.5, 10, {4, 400}},
};

static void note(struct world *world, uint64_t value)
{
	world->digest = (world->digest ^ value) * UINT64_C(1099511628211);
}

/* Of everything that runs. */
static double rate(const struct world *world)
{
	uint32_t running = 0;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		running += world->flights[i].used && world->flights[i].stage == HB_STAGE_RUN;
	return running ? 1 / (1 + BESIDE * (running - 1)) : 1;
}

static double next_end_ns(const struct world *world)
{
	double next = INFINITY, running = rate(world);
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++) {
		const struct flight *flight = &world->flights[i];
		if (!flight->used)
			continue;
		double end = world->now_ns + flight->left_ns / (flight->stage == HB_STAGE_RUN ? running : 1);
		next = end < next ? end : next;
	}
	return next;
}

static double stage_time(const struct world *world, uint32_t model, uint32_t items, enum hb_scheduler_stage stage)
{
	return stage == HB_STAGE_RUN ? world->run_ns[model] * (0.6 + 0.4 * items) : COPY_NS * items;
}

/* Advances everything that runs, and reports the stages that end. */
static void pass(struct world *world, double to_ns)
{
	double running = rate(world), took_ns = to_ns - world->now_ns;
	world->now_ns = to_ns;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++) {
		struct flight *flight = &world->flights[i];
		flight->left_ns -= took_ns * (flight->stage == HB_STAGE_RUN ? running : 1);
		if (!flight->used || flight->left_ns > 1)
			continue;
		if (flight->stage == HB_STAGE_OUT) {
			flight->used = false;
			hb_scheduler_end(world->scheduler, (int64_t)to_ns, i, true);
			continue;
		}
		const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(world->scheduler, i);
		flight->stage++;
		flight->left_ns = stage_time(world, batch->model, batch->items, flight->stage);
		hb_scheduler_stage(world->scheduler, (int64_t)to_ns, i, flight->stage);
	}
}

static void arrive(struct world *world)
{
	uint32_t models = world->scene->models, model = (uint32_t)hb_rng_below(&world->rng, models);
	bool low = model >= models / 2;
	double allowed_ns = world->scene->deadline[low] * (world->run_ns[model] + 2 * COPY_NS);
	hb_scheduler_submit(world->scheduler, (int64_t)world->now_ns,
			    &(struct hb_scheduler_request){.cookie = world->requests++,
							   .model = model,
							   .items = 1,
							   .priority = low ? HB_SCHEDULER_LOW : HB_SCHEDULER_HIGH,
							   .deadline_ns = (int64_t)(world->now_ns + allowed_ns)});
	world->arrival_ns = world->now_ns + hb_rng_exponential(&world->rng, world->gap_ns);
}

static void decide(struct world *world)
{
	struct hb_scheduler_action action;
	world->steps++;
	while (hb_scheduler_step(world->scheduler, (int64_t)world->now_ns, &action)) {
		note(world, (uint64_t)world->now_ns);
		note(world, (uint64_t)action.kind << 32 | action.slot);
		note(world, (uint64_t)action.finish_ns);
		if (action.kind != HB_SCHEDULER_START)
			continue;
		const struct hb_scheduler_batch *batch = hb_scheduler_batch_get(world->scheduler, action.slot);
		note(world, (uint64_t)batch->model << 32 | batch->items);
		world->flights[action.slot] = (struct flight){
			.used = true,
			.stage = HB_STAGE_IN,
			.left_ns = stage_time(world, batch->model, batch->items, HB_STAGE_IN)};
	}
}

/* The median model takes 2 ms, the longest ten times the shortest. */
static void models_open(struct world *world)
{
	double sum = 0;
	for (uint32_t i = 0; i < world->scene->models; i++) {
		struct hb_scheduler_model model = {.max_items = 8,
						   .in_bytes = 1e6,
						   .out_bytes = 1e6,
						   .sm_demand = {0.5, 1},
						   .memory_demand = {0.3, 0.5}};
		world->run_ns[i] = (0.6 + 5.4 * (i * 7 % world->scene->models) / world->scene->models) * MS;
		model.run_guess_ns = world->run_ns[i];
		hb_scheduler_add_model(world->scheduler, &model, NULL);
		for (uint32_t items = 1; items <= 8; items *= 2) {
			double stage_ns[HB_STAGES];
			for (int stage = 0; stage < HB_STAGES; stage++)
				stage_ns[stage] = stage_time(world, i, items, stage);
			hb_scheduler_profiled(world->scheduler, i, items, stage_ns);
		}
		sum += world->run_ns[i];
	}
	world->gap_ns = sum / world->scene->models / (WHOLE * world->scene->load);
}

static double cpu_ns(void)
{
	struct timespec at;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return 1e9 * (double)at.tv_sec + (double)at.tv_nsec;
}

static int measure(const struct scene *scene, const char *policy)
{
	struct hb_scheduler_config config;
	struct hb_error error;
	struct world world = {.scene = scene, .digest = UINT64_C(14695981039346656037)};
	hb_scheduler_config_init(&config);
	config.policy = policy;
	if (hb_scheduler_new(&config, &world.scheduler, &error)) {
		fprintf(stderr, "serve-cost: %s\n", error.text);
		return 1;
	}
	hb_rng_init(&world.rng, 1, 0);
	models_open(&world);
	double begun_ns = cpu_ns();
	while (world.now_ns < scene->seconds * 1e9) {
		double end_ns = next_end_ns(&world), wake_ns = (double)hb_scheduler_next_wake_ns(world.scheduler);
		double next_ns = end_ns < world.arrival_ns ? end_ns : world.arrival_ns;
		next_ns = wake_ns < next_ns ? wake_ns : next_ns;
		pass(&world, next_ns > world.now_ns ? next_ns : world.now_ns);
		if (world.now_ns >= world.arrival_ns)
			arrive(&world);
		decide(&world);
	}
	double spent_ns = cpu_ns() - begun_ns;
	printf("%-42s %7.1f us a request, %6.2f us a decision, digest %016llx\n", scene->name,
	       spent_ns / US / (double)world.requests, spent_ns / US / (double)world.steps,
	       (unsigned long long)world.digest);
	hb_scheduler_free(world.scheduler);
	return 0;
}

int main(int argc, char **argv)
{
	int failed = 0;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		failed |= measure(&scenes[i], argc > 1 ? argv[1] : "ours");
	return failed;
}
