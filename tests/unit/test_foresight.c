/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of foresight for any signs: signs with few outcomes cause no takeover, wrong
 * takeovers stay within their budget over every interval, plans cost no more than the best
 * of a search over many others, and each kind of sign leads to takeovers that hide the
 * switch. HB_SEED=N repeats a random run.
 */
#include "base/rng.h"
#include "decide/foresight_plan.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

static uint64_t seed_of(uint64_t fallback)
{
	const char *text = getenv("HB_SEED");
	return text ? strtoull(text, NULL, 10) : fallback;
}

struct rig {
	struct hb_foresight_costs costs;
	struct hb_foresight_budget budget;
	struct hb_foresight foresight;
	int64_t now_ns;
};

/* A process that sees the end of its work at once and takes over without a thread. */
static void init_prompt_costs(struct hb_foresight_costs *costs)
{
	hb_foresight_costs_init(costs);
	costs->ready_ns = 260 * US;
	costs->idle_seen_ns = costs->soon_ns = 0;
	costs->kept_weight_ppm = costs->weight_ppm;
}

static void rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof *rig);
	init_prompt_costs(&rig->costs);
	hb_foresight_init(&rig->foresight, &rig->costs, &rig->budget);
	hb_foresight_allow(&rig->foresight, 0, true, true);
}

/* Lets time pass and carries out what is due meanwhile. */
static void pass(struct rig *rig, int64_t until_ns)
{
	int64_t next_ns;
	while ((next_ns = hb_foresight_next_ns(&rig->foresight)) <= until_ns) {
		rig->now_ns = next_ns > rig->now_ns ? next_ns : rig->now_ns;
		hb_foresight_step(&rig->foresight, rig->now_ns);
	}
	rig->now_ns = until_ns;
}

/* A request: the sign now, the launch after ahead_ns, work for 1 ms, and nothing until `rest_ns` after it. */
static void request(struct rig *rig, uint64_t source, int64_t ahead_ns, int64_t rest_ns)
{
	hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_SOCKET, source, 0, 0);
	pass(rig, rig->now_ns + ahead_ns);
	hb_foresight_busy(&rig->foresight, rig->now_ns);
	pass(rig, rig->now_ns + 1 * MS);
	hb_foresight_idle(&rig->foresight, rig->now_ns);
	pass(rig, rig->now_ns + rest_ns);
}

/* --- plans --- */

static void random_outcomes(struct hb_rng *rng, int32_t *outcomes_ns, uint32_t n, bool negative)
{
	uint64_t spread = UINT64_C(1) << (10 + hb_rng_below(rng, 18)), none = hb_rng_below(rng, 100);
	int64_t center = (int64_t)hb_rng_below(rng, 4 * MS) - (negative ? 2 * MS : 0);
	for (uint32_t i = 0; i < n; i++) {
		bool nothing = hb_rng_below(rng, 100) < none;
		outcomes_ns[i] = nothing ? HB_FORESIGHT_NONE : (int32_t)(center + (int64_t)hb_rng_below(rng, spread));
	}
}

/* The cost of the plan is within 15 % of the best plan of a dense search, and never above that of no takeover. */
static void test_plan_is_near_the_best(void **state)
{
	(void)state;
	struct hb_foresight_costs costs;
	struct hb_rng rng;
	init_prompt_costs(&costs);
	hb_rng_init(&rng, seed_of(1), 1);
	for (int round = 0; round < 300; round++) {
		int32_t outcomes[HB_FORESIGHT_WINDOW];
		enum hb_foresight_shape shape = (enum hb_foresight_shape)hb_rng_below(&rng, 3);
		uint32_t n = 16 + (uint32_t)hb_rng_below(&rng, HB_FORESIGHT_WINDOW - 15);
		random_outcomes(&rng, outcomes, n, shape == HB_SHAPE_TIME);
		struct hb_foresight_plan plan = hb_foresight_plan_make(&costs, shape, outcomes, n);
		int64_t chosen = hb_foresight_plan_cost(&costs, shape, outcomes, n, plan.start_ns, plan.end_ns);
		int64_t best = hb_foresight_plan_cost(&costs, shape, outcomes, n, 0, 0);
		assert_true(chosen <= best);
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = 0; j < n; j++) {
				int64_t start = shape == HB_SHAPE_IDLE ? 0 : (int64_t)outcomes[i] - costs.ready_ns;
				if (shape == HB_SHAPE_SIGN && start < 0)
					start = 0;
				int64_t end = (int64_t)outcomes[j] + costs.switch_ns / 4;
				uint32_t hits = 0;
				for (uint32_t k = 0; k < n; k++)
					hits += outcomes[k] >= start && outcomes[k] <= end;
				if (hits < 4 || outcomes[i] == HB_FORESIGHT_NONE || outcomes[j] == HB_FORESIGHT_NONE ||
				    end <= start || end - start > HB_FORESIGHT_TAKEOVER_MAX_NS)
					continue;
				int64_t cost = hb_foresight_plan_cost(&costs, shape, outcomes, n, start, end);
				best = cost < best ? cost : best;
			}
		if (chosen > best + best / 100 * 15)
			fail_msg("HB_SEED=%llu round %d shape %d: %lld, best %lld", (unsigned long long)seed_of(1),
				 round, (int)shape, (long long)chosen, (long long)best);
	}
}

/* --- signs --- */

static void test_hides_the_switch_after_learning(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < HB_FORESIGHT_LEAST; i++)
		request(&rig, 7, 350 * US + i * US, (10 + i % 7) * MS);
	assert_int_equal(rig.foresight.counts.takeovers, 0);
	for (int i = 0; i < 100; i++)
		request(&rig, 7, 350 * US + i % 16 * US, (10 + i % 7) * MS);
	assert_int_equal(rig.foresight.counts.hidden, 100);
	assert_int_equal(rig.foresight.counts.wrong, 0);
}

static void test_period_is_a_sign(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < 100; i++) {
		pass(&rig, (i + 1) * 20 * MS + i % 5 * 10 * US);
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + 2 * MS);
		hb_foresight_idle(&rig.foresight, rig.now_ns);
	}
	/* The first interval ends with the second launch, and the plan is from idle to launch. */
	assert_int_equal(rig.foresight.counts.hidden, 100 - 1 - HB_FORESIGHT_LEAST);
	assert_int_equal(rig.foresight.counts.wrong, 0);
}

static void test_false_signs_cost_nothing(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < 100000; i++) {
		hb_foresight_sign(&rig.foresight, rig.now_ns, HB_SIGN_SOCKET, 9, 0, 0);
		pass(&rig, rig.now_ns + 100 * US);
	}
	assert_int_equal(rig.foresight.counts.takeovers, 0);
}

static void test_survives_a_change_of_load(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < 100; i++)
		request(&rig, 7, 300 * US, (10 + i % 7) * MS);
	for (int i = 0; i < HB_FORESIGHT_WINDOW; i++)
		request(&rig, 7, 1500 * US, (10 + i % 7) * MS);
	uint64_t hidden = rig.foresight.counts.hidden, wrong = rig.foresight.counts.wrong;
	for (int i = 0; i < 50; i++)
		request(&rig, 7, 1500 * US, (10 + i % 7) * MS);
	assert_int_equal(rig.foresight.counts.hidden - hidden, 50);
	assert_int_equal(rig.foresight.counts.wrong - wrong, 0);
}

static void test_lingers_where_the_next_launch_is_near(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < 200; i++) {
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + 50 * US);
		hb_foresight_idle(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + (i % 20 == 19 ? (15 + i % 9) * MS : 30 * US));
	}
	assert_true(rig.foresight.counts.lingers > 150);
	assert_true(rig.foresight.counts.hidden > 150);
	/* One wrong takeover in each request, each shorter than a switch. */
	assert_true(rig.foresight.counts.wrong_ns <= rig.foresight.counts.wrong * 190 * US);
}

/*
 * If the end of work is seen only after the GPU was given away, there is no takeover for a
 * launch that follows at once, and one for a later launch begins as for any other sign.
 */
static void test_idle_seen_late_is_a_sign_like_others(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig);
	rig.foresight.costs.idle_seen_ns = 20 * US;
	for (int i = 0; i < 60; i++) {
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + i % 9 * 100 * US);
		hb_foresight_idle(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + 360 * US);
	}
	assert_int_equal(rig.foresight.counts.lingers, 0);
	/* The first end of work after a start is learned separately. */
	assert_int_equal(rig.foresight.counts.hidden, 58 - HB_FORESIGHT_LEAST);
	assert_int_equal(rig.foresight.signs[HB_FORESIGHT_LATER_IDLE].plan.start_ns, 100 * US);
}

/* Work of one kind is followed by more after 0.4 ms, work of the other by nothing for 20 ms: only the first keeps the GPU. */
static void test_the_ends_of_each_kind_of_work_are_learned_apart(void **state)
{
	(void)state;
	struct rig rig;
	int64_t keep_ns[2] = {0};
	rig_init(&rig);
	for (int i = 0; i < 120; i++) {
		uint32_t kind = (uint32_t)i % 2;
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		hb_foresight_work(&rig.foresight, kind);
		pass(&rig, rig.now_ns + 1 * MS);
		keep_ns[kind] = hb_foresight_keep_ns(&rig.foresight, rig.now_ns);
		hb_foresight_idle_kept(&rig.foresight, rig.now_ns, keep_ns[kind]);
		pass(&rig, rig.now_ns + (kind ? 20 * MS : 400 * US));
	}
	assert_in_range(keep_ns[0], 400 * US, 500 * US);
	assert_int_equal(keep_ns[1], 0);
}

/* --- requests that wait --- */

enum { SOURCE = 7 };

static void hear_from(struct rig *rig, uint32_t who)
{
	hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_SOCKET, SOURCE, who, 0);
	pass(rig, rig->now_ns + 10 * US);
}

static void work(struct rig *rig)
{
	hb_foresight_busy(&rig->foresight, rig->now_ns);
	pass(rig, rig->now_ns + 1 * MS);
	hb_foresight_idle(&rig->foresight, rig->now_ns);
}

/* Whether the last end of work was taken for one with another request waiting. */
static bool is_queued(const struct rig *rig)
{
	return rig->foresight.pending >> HB_FORESIGHT_QUEUED & 1;
}

static void learn_source(struct rig *rig)
{
	rig_init(rig);
	for (int i = 0; i < 40; i++) {
		hear_from(rig, 1);
		pass(rig, rig->now_ns + 400 * US);
		work(rig);
		pass(rig, rig->now_ns + (30 + i % 7) * MS);
	}
	assert_true(rig->foresight.counts.hidden > 0);
}

/* Bytes of three connections arrive before the first is served: two requests wait after it, one after the second, none after the third. */
static void test_each_start_serves_one_connection(void **state)
{
	(void)state;
	struct rig rig;
	learn_source(&rig);
	for (uint32_t who = 1; who <= 3; who++)
		hear_from(&rig, who);
	for (int served = 1; served <= 3; served++) {
		pass(&rig, rig.now_ns + 600 * US);
		work(&rig);
		assert_int_equal(is_queued(&rig), served < 3);
	}
	/* A request whose bytes arrive while another is served waits as well. */
	pass(&rig, rig.now_ns + 600 * US);
	hb_foresight_busy(&rig.foresight, rig.now_ns);
	hear_from(&rig, 2);
	hb_foresight_idle(&rig.foresight, rig.now_ns);
	assert_true(is_queued(&rig));
}

static void test_a_connection_heard_often_is_one(void **state)
{
	(void)state;
	struct rig rig;
	learn_source(&rig);
	for (int i = 0; i < 5; i++)
		hear_from(&rig, 1);
	pass(&rig, rig.now_ns + 400 * US);
	work(&rig);
	assert_false(is_queued(&rig));
}

static void test_who_waits_for_too_long_came_for_something_else(void **state)
{
	(void)state;
	struct rig rig;
	learn_source(&rig);
	for (uint32_t who = 1; who <= 3; who++)
		hear_from(&rig, who);
	work(&rig);
	pass(&rig, rig.now_ns + 30 * MS);
	work(&rig);
	assert_false(is_queued(&rig));
}

/* --- keeping the GPU after the end of work --- */

/* Work, more work `next_ns` later, and a long rest: keeping the GPU pays after the first end of work. */
static int64_t work_twice(struct rig *rig, int i, int64_t next_ns)
{
	hb_foresight_busy(&rig->foresight, rig->now_ns);
	pass(rig, rig->now_ns + 800 * US);
	int64_t keep_ns = hb_foresight_keep_ns(&rig->foresight, rig->now_ns);
	hb_foresight_idle_kept(&rig->foresight, rig->now_ns, keep_ns);
	assert_int_equal(hb_foresight_takeover_until_ns(&rig->foresight), keep_ns ? rig->now_ns + keep_ns : 0);
	pass(rig, rig->now_ns + next_ns + i % 5 * US);
	uint64_t hidden = rig->foresight.counts.hidden;
	hb_foresight_busy(&rig->foresight, rig->now_ns);
	assert_true(!keep_ns || rig->foresight.counts.hidden == hidden + 1);
	pass(rig, rig->now_ns + 20 * US);
	assert_int_equal(hb_foresight_keep_ns(&rig->foresight, rig->now_ns), 0);
	hb_foresight_idle(&rig->foresight, rig->now_ns);
	pass(rig, rig->now_ns + (10 + i * 7 % 13) * MS);
	return keep_ns;
}

static void rig_init_late(struct rig *rig)
{
	rig_init(rig);
	rig->foresight.costs.idle_seen_ns = 20 * US;
}

static void test_keeps_for_what_is_due_at_once(void **state)
{
	(void)state;
	struct rig rig;
	rig_init_late(&rig);
	int64_t keep_ns = 0;
	for (int i = 0; i < 100; i++)
		keep_ns = work_twice(&rig, i, 30 * US);
	assert_in_range(keep_ns, 34 * US, 100 * US);
	assert_true(rig.foresight.counts.lingers >= 100 - HB_FORESIGHT_LEAST - 4);
	assert_true(rig.budget.tokens_ns >
		    rig.costs.budget_cap_ns * 9 / 10); /* two switches are saved, so it costs LP nothing */
}

/*
 * Tokens of a language model: 1.1 ms of work, then the host needs 0.48 ms, which is longer than two switches. LP would get a
 * fifth of each gap, and each token would wait for a switch.
 */
static void test_keeps_between_tokens_without_an_end(void **state)
{
	(void)state;
	struct rig rig;
	rig_init_late(&rig);
	for (int i = 0; i < 1000; i++) {
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + 1100 * US);
		hb_foresight_idle_kept(&rig.foresight, rig.now_ns, hb_foresight_keep_ns(&rig.foresight, rig.now_ns));
		pass(&rig, rig.now_ns + (460 + i * 7 % 41) * US);
	}
	assert_true(rig.foresight.counts.hidden >= 950);
	assert_int_equal(rig.foresight.counts.throttled, 0);
}

/*
 * Tokens of a language model that is always present: 1.1 ms of work, then a gap of about 0.13 ms; every 16th gap lasts 1.5 ms, and
 * the GPU is kept in vain. The bucket fills only while HP is idle, which is too little to pay for that.
 */
static void test_keeps_for_a_service_that_is_always_present(void **state)
{
	(void)state;
	struct rig rig;
	uint64_t kept = 0, ends = 0;
	rig_init_late(&rig);
	for (int i = 0; i < 5000; i++) {
		hb_foresight_busy(&rig.foresight, rig.now_ns);
		pass(&rig, rig.now_ns + 1100 * US);
		int64_t keep_ns = hb_foresight_keep_ns(&rig.foresight, rig.now_ns);
		kept += i >= 1000 && keep_ns > 0;
		ends += i >= 1000;
		hb_foresight_idle_kept(&rig.foresight, rig.now_ns, keep_ns);
		pass(&rig, rig.now_ns + (i % 16 == 7 ? 1500 : 100 + i * 7 % 61) * US);
	}
	assert_true(kept * 20 >= ends * 19);
}

/* Negative controls: much later work, no LP, no budget. */
static void test_keeps_only_where_it_pays(void **state)
{
	(void)state;
	struct rig rig;
	rig_init_late(&rig);
	for (int i = 0; i < 100; i++)
		assert_int_equal(work_twice(&rig, i, (20 + i * 7 % 13) * MS), 0);
	rig_init_late(&rig);
	for (int i = 0; i < 100; i++)
		work_twice(&rig, i, 30 * US);
	rig.budget.tokens_ns = 0;
	rig.foresight.costs.budget_ppm = 0;
	assert_int_equal(work_twice(&rig, 0, 30 * US), 0);
	rig.budget.tokens_ns = rig.costs.budget_cap_ns;
	assert_true(work_twice(&rig, 0, 30 * US) > 0);
	hb_foresight_allow(&rig.foresight, rig.now_ns, true, false); /* other services would wait */
	assert_int_equal(work_twice(&rig, 0, 30 * US), 0);
	hb_foresight_allow(&rig.foresight, rig.now_ns, false, false);
	assert_int_equal(work_twice(&rig, 0, 30 * US), 0);
}

/* Launches come 0.3 to 2.2 ms after their sign, or always 0.35 ms. Beside other services only the latter has short takeovers. */
static void test_no_long_takeover_beside_other_services(void **state)
{
	(void)state;
	for (int wide = 0; wide <= 1; wide++)
		for (int beside = 0; beside <= 1; beside++) {
			struct rig rig;
			rig_init(&rig);
			for (int i = 0; i < 2 * HB_FORESIGHT_WINDOW; i++)
				request(&rig, 1, (wide ? 300 + i * 37 % 20 * 100 : 350) * US, (40 + i % 17) * MS);
			uint64_t takeovers = rig.foresight.counts.takeovers;
			rig.budget.tokens_ns = rig.costs.budget_cap_ns;
			hb_foresight_allow(&rig.foresight, rig.now_ns, true, !beside);
			request(&rig, 1, 350 * US, 40 * MS);
			assert_int_equal(rig.foresight.counts.takeovers - takeovers, !wide || !beside);
		}
}

/* --- the budget between signs --- */

/* Two signs, of which one misses in half of the cases: with a nearly empty bucket only the other causes takeovers. */
static void test_the_worst_sign_is_throttled_first(void **state)
{
	(void)state;
	enum { GOOD = 1, BAD = 2 };
	struct rig rig;
	rig_init(&rig);
	for (int i = 0; i < 3 * HB_FORESIGHT_WINDOW; i++) {
		request(&rig, GOOD, 350 * US + i % 16 * US, (40 + i % 17) * MS);
		if (i % 2)
			request(&rig, BAD, 350 * US + i % 16 * US, (40 + i % 17) * MS);
		else
			hb_foresight_sign(&rig.foresight, rig.now_ns, HB_SIGN_SOCKET, BAD, 0, 0);
		pass(&rig, rig.now_ns + (40 + i % 17) * MS);
	}
	for (int full = 0; full <= 1; full++)
		for (uint64_t source = GOOD; source <= BAD; source++) {
			uint64_t hidden = rig.foresight.counts.hidden, throttled = rig.foresight.counts.throttled;
			rig.budget.tokens_ns = full ? rig.costs.budget_cap_ns : rig.costs.budget_cap_ns / 4;
			request(&rig, source, 350 * US, 40 * MS);
			bool held = full || source == GOOD;
			assert_int_equal(rig.foresight.counts.hidden - hidden, held);
			assert_int_equal(rig.foresight.counts.throttled - throttled, !held);
		}
}

/* --- random runs --- */

#define WINDOWS 4096

struct spend {
	int64_t at_ns, cost_ns;
};

/* In every interval the wrong takeovers that ended in it cost at most the full bucket plus the share. */
static void check_windows(const struct rig *rig, const struct spend *spends, uint32_t n, uint64_t seed)
{
	for (uint32_t first = 0; first < n; first++) {
		int64_t sum_ns = 0;
		for (uint32_t i = first; i < n; i++) {
			sum_ns += spends[i].cost_ns;
			int64_t window_ns = spends[i].at_ns - spends[first].at_ns + HB_FORESIGHT_TAKEOVER_MAX_NS;
			int64_t allowed_ns = rig->costs.budget_cap_ns +
					     window_ns / 1000000 * (int64_t)rig->costs.budget_ppm;
			if (sum_ns > allowed_ns)
				fail_msg("HB_SEED=%llu: %lld ns of wrong takeovers within %lld ns",
					 (unsigned long long)seed, (long long)sum_ns, (long long)window_ns);
		}
	}
}

static void random_call(struct rig *rig, struct hb_rng *rng)
{
	bool allowed;
	switch (hb_rng_below(rng, 6)) {
	case 0:
		hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_SOCKET, hb_rng_below(rng, 100),
				  (uint32_t)hb_rng_below(rng, 5), 0);
		break;
	case 1:
		hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_CALL, 5, 0, 0);
		break;
	case 2:
		hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_API, 1, 0,
				  rig->now_ns + (int64_t)hb_rng_below(rng, 2 * MS));
		break;
	case 3:
		allowed = hb_rng_below(rng, 10) != 0;
		hb_foresight_allow(&rig->foresight, rig->now_ns, allowed, hb_rng_below(rng, 10) != 0);
		break;
	case 4:
		hb_foresight_busy(&rig->foresight, rig->now_ns);
		break;
	default:
		hb_foresight_idle(&rig->foresight, rig->now_ns);
	}
}

/* Signs that are mostly true in even phases and mostly false in odd phases; some are random. */
static void random_step(struct rig *rig, struct hb_rng *rng, uint64_t phase)
{
	uint64_t what = hb_rng_below(rng, 20), source = hb_rng_below(rng, 3);
	int64_t rest_ns = (int64_t)(hb_rng_exponential(rng, 1.0) * (double)(MS << phase % 4));
	if (what == 0) {
		random_call(rig, rng);
		pass(rig, rig->now_ns + rest_ns);
	} else if (what % 10 < 9 - 8 * (phase % 2)) {
		request(rig, source, 300 * US + (int64_t)hb_rng_below(rng, 100 * US), rest_ns);
	} else {
		hb_foresight_sign(&rig->foresight, rig->now_ns, HB_SIGN_SOCKET, source, 0, 0);
		pass(rig, rig->now_ns + rest_ns);
	}
}

static void test_random(void **state)
{
	(void)state;
	static struct spend spends[WINDOWS];
	for (uint64_t seed = seed_of(1); seed < seed_of(1) + 12; seed++) {
		struct rig rig;
		struct hb_rng rng;
		uint32_t n = 0;
		hb_rng_init(&rng, seed, 1);
		rig_init(&rig);
		for (uint64_t step = 0; step < 20000; step++) {
			uint64_t wrong = rig.foresight.counts.wrong, wrong_ns = rig.foresight.counts.wrong_ns;
			uint64_t lingers = rig.foresight.counts.lingers;
			random_step(&rig, &rng, step / 2000);
			assert_true(rig.foresight.may_keep || !rig.foresight.lingering ||
				    !rig.foresight.takeover_until_ns);
			bool knows = false;
			for (uint32_t slot = 0; slot < rig.foresight.n_signs; slot++)
				knows |= rig.foresight.signs[slot].timed ||
					 rig.foresight.signs[slot].seen >= HB_FORESIGHT_LEAST;
			if (!knows)
				assert_int_equal(rig.foresight.counts.takeovers, 0);
			assert_true(!rig.foresight.busy || !rig.foresight.takeover_until_ns);
			assert_true(rig.foresight.allowed || !rig.foresight.takeover_until_ns);
			assert_in_range(rig.budget.tokens_ns, 0, rig.costs.budget_cap_ns);
			if (rig.foresight.counts.wrong == wrong || n == WINDOWS)
				continue;
			int64_t held_ns = (int64_t)(rig.foresight.counts.wrong_ns - wrong_ns);
			int64_t switches = rig.foresight.counts.lingers == lingers ? 2 : 0;
			spends[n++] = (struct spend){rig.now_ns, held_ns + switches * rig.costs.switch_ns};
		}
		assert_true(n > 20);
		check_windows(&rig, spends, n < 600 ? n : 600, seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan_is_near_the_best),
		cmocka_unit_test(test_hides_the_switch_after_learning),
		cmocka_unit_test(test_period_is_a_sign),
		cmocka_unit_test(test_false_signs_cost_nothing),
		cmocka_unit_test(test_survives_a_change_of_load),
		cmocka_unit_test(test_lingers_where_the_next_launch_is_near),
		cmocka_unit_test(test_idle_seen_late_is_a_sign_like_others),
		cmocka_unit_test(test_the_ends_of_each_kind_of_work_are_learned_apart),
		cmocka_unit_test(test_each_start_serves_one_connection),
		cmocka_unit_test(test_a_connection_heard_often_is_one),
		cmocka_unit_test(test_who_waits_for_too_long_came_for_something_else),
		cmocka_unit_test(test_keeps_for_what_is_due_at_once),
		cmocka_unit_test(test_keeps_between_tokens_without_an_end),
		cmocka_unit_test(test_keeps_for_a_service_that_is_always_present),
		cmocka_unit_test(test_keeps_only_where_it_pays),
		cmocka_unit_test(test_no_long_takeover_beside_other_services),
		cmocka_unit_test(test_the_worst_sign_is_throttled_first),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests_name("foresight", tests, NULL, NULL);
}
