/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of one tenant, each with its own foresight: whatever signs they get and
 * whenever they start and end, their takeovers together cost LP no more than those of one
 * process may. The signs are the worst possible: each names a time, has a new source, and
 * no launch follows. HB_SEED=N repeats a random run.
 */
#include "base/rng.h"
#include "decide/defaults.h"
#include "decide/foresight_share.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)
#define STEP_NS (5 * MS)
#define TIME_NS (240 * S)

enum { PROCESSES = 8 };

struct world {
	struct process {
		struct hb_foresight_budget budget;
		struct hb_foresight foresight;
		struct hb_foresight_share share;
	} processes[PROCESSES];
	uint64_t activity[PROCESSES];
	uint64_t sources;
	bool alone; /* each process is a tenant of its own */
	int64_t now_ns;
};

static struct world *world_new(void)
{
	struct world *world = calloc(1, sizeof *world);
	struct hb_foresight_costs costs;
	assert_non_null(world);
	hb_foresight_costs_init(&costs);
	world->now_ns = 1000 * S;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		hb_foresight_init(&world->processes[i].foresight, &costs, &world->processes[i].budget);
		hb_foresight_allow(&world->processes[i].foresight, world->now_ns, true, true);
	}
	return world;
}

/* As in the shim: reads the others, handles the sign, and counts it. */
static void tell(struct world *world, uint32_t i)
{
	struct process *process = &world->processes[i];
	if (hb_foresight_share_is_due(&process->share, world->now_ns))
		hb_foresight_share_look(&process->share, &process->foresight, world->now_ns, world->activity,
					world->alone ? 0 : PROCESSES, i);
	hb_foresight_step(&process->foresight, world->now_ns);
	hb_foresight_sign(&process->foresight, world->now_ns, HB_SIGN_API, ++world->sources, 0,
			  world->now_ns + 100 * US);
	world->activity[i]++;
}

/* Cost of all takeovers that have ended; each was in vain. */
static int64_t cost_ns(const struct world *world)
{
	int64_t sum_ns = 0;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		const struct hb_foresight_counts *counts = &world->processes[i].foresight.counts;
		sum_ns += (int64_t)(counts->wrong_ns + counts->wrong * 2 * (uint64_t)HB_DEFAULT_SWITCH_NS);
	}
	return sum_ns;
}

static int64_t share_ns(void)
{
	return TIME_NS / 1000000 * HB_DEFAULT_TAKEOVER_BUDGET_PPM;
}

static void expect_cost(const struct world *world, int64_t least_percent)
{
	assert_in_range(cost_ns(world), share_ns() * least_percent / 100,
			share_ns() + HB_DEFAULT_TAKEOVER_BUDGET_CAP_NS);
}

/* Which processes run `since_ns` after the begin. */
typedef bool (*pattern)(uint32_t i, int64_t since_ns);

static void run(struct world *world, uint32_t n, pattern is_there)
{
	for (int64_t since_ns = 0; since_ns < TIME_NS; since_ns += STEP_NS) {
		for (uint32_t i = 0; i < n; i++)
			if (is_there(i, since_ns))
				tell(world, i);
		world->now_ns += STEP_NS;
	}
}

static bool always(uint32_t i, int64_t since_ns)
{
	return true;
}

static void test_one_process_has_all_of_it(void **state)
{
	struct world *world = world_new();
	run(world, 1, always);
	expect_cost(world, 95);
	free(world);
}

static void test_processes_together_stay_within_it(void **state)
{
	for (uint32_t n = 2; n <= PROCESSES; n *= 2) {
		struct world *world = world_new();
		run(world, n, always);
		expect_cost(world, 90);
		for (uint32_t i = 0; i < n; i++)
			assert_true(world->processes[i].foresight.counts.wrong > 0);
		free(world);
	}
}

/* Services that work at the same time, each of one process. */
static void test_tenants_together_stay_within_it(void **state)
{
	for (uint32_t n = 2; n <= PROCESSES; n *= 2) {
		struct world *world = world_new();
		for (uint32_t i = 0; i < n; i++)
			hb_foresight_share_tenants(&world->processes[i].share, &world->processes[i].foresight,
						   world->now_ns, n - 1);
		world->alone = true;
		run(world, n, always);
		/* Each began with a full bucket. */
		assert_in_range(cost_ns(world), share_ns() * 90 / 100,
				share_ns() + n * HB_DEFAULT_TAKEOVER_BUDGET_CAP_NS);
		free(world);
	}
}

/* When another service begins to work, the time until then counts in full. */
static void test_the_rate_changes_from_now_on(void **state)
{
	struct world *world = world_new();
	struct process *process = &world->processes[0];
	tell(world, 0);
	process->budget.tokens_ns = 0;
	world->now_ns += 100 * MS;
	hb_foresight_share_tenants(&process->share, &process->foresight, world->now_ns, 1);
	assert_int_equal(process->budget.tokens_ns, 2 * MS);
	world->now_ns += 100 * MS;
	hb_foresight_share_tenants(&process->share, &process->foresight, world->now_ns, 0);
	assert_int_equal(process->budget.tokens_ns, 3 * MS);
	free(world);
}

static int64_t turn_ns;

static bool in_turns(uint32_t i, int64_t since_ns)
{
	return since_ns / turn_ns % 2 == i;
}

static void test_so_they_do_when_they_take_turns(void **state)
{
	static const int64_t turns_ms[] = {10, 500, 900, 1000, 1100, 2000, 5000, 9000, 11000, 20000, 60000};
	for (size_t i = 0; i < sizeof turns_ms / sizeof *turns_ms; i++) {
		struct world *world = world_new();
		turn_ns = turns_ms[i] * MS;
		run(world, 2, in_turns);
		expect_cost(world, 40);
		free(world);
	}
}

/* The first process always runs, the second at times: its absence belongs to the first. */
static bool now_and_then(uint32_t i, int64_t since_ns)
{
	return i == 0 || since_ns % turn_ns < 100 * MS;
}

static void test_so_they_do_beside_one_that_comes_now_and_then(void **state)
{
	for (turn_ns = S; turn_ns <= 32 * S; turn_ns *= 2) {
		struct world *world = world_new();
		run(world, 2, now_and_then);
		expect_cost(world, 40);
		free(world);
	}
}

static void test_so_they_do_whoever_comes_and_goes(void **state)
{
	const char *text = getenv("HB_SEED");
	uint64_t first = text ? strtoull(text, NULL, 10) : 1;
	for (uint64_t seed = first; seed < first + 6; seed++) {
		struct world *world = world_new();
		struct hb_rng rng;
		bool there[PROCESSES] = {true};
		hb_rng_init(&rng, seed, 1);
		uint64_t rest = 20 + hb_rng_below(&rng, 4000);
		for (int64_t since_ns = 0; since_ns < TIME_NS; since_ns += STEP_NS, world->now_ns += STEP_NS)
			for (uint32_t i = 0; i < PROCESSES; i++) {
				there[i] ^= hb_rng_below(&rng, rest) == 0;
				if (there[i])
					tell(world, i);
			}
		if (cost_ns(world) > share_ns() + HB_DEFAULT_TAKEOVER_BUDGET_CAP_NS)
			fail_msg("HB_SEED=%llu: %lld ns", (unsigned long long)seed, (long long)cost_ns(world));
		free(world);
	}
}

/* The part of a worker that dies goes to the others. */
static void test_who_is_gone_has_no_part(void **state)
{
	struct world *world = world_new();
	run(world, 2, always);
	world->activity[1] = 0;
	int64_t before_ns = cost_ns(world);
	run(world, 1, always);
	assert_true(cost_ns(world) - before_ns >= share_ns() * 95 / 100);
	free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_process_has_all_of_it),
		cmocka_unit_test(test_processes_together_stay_within_it),
		cmocka_unit_test(test_tenants_together_stay_within_it),
		cmocka_unit_test(test_the_rate_changes_from_now_on),
		cmocka_unit_test(test_so_they_do_when_they_take_turns),
		cmocka_unit_test(test_so_they_do_beside_one_that_comes_now_and_then),
		cmocka_unit_test(test_so_they_do_whoever_comes_and_goes),
		cmocka_unit_test(test_who_is_gone_has_no_part),
	};
	return cmocka_run_group_tests_name("foresight_share", tests, NULL, NULL);
}
