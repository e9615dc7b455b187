/* SPDX-License-Identifier: Apache-2.0 */
/* The rules, and what the pair model says under one of them; see pair_choices.h. */
#include "cluster/pair_choices.h"

#include "base/rng.h"

#define BIT(sharing) (1u << (sharing))

const struct hb_cluster_rule hb_cluster_rules[HB_CLUSTER_RULES] = {
	{"exclusive", "one GPU each", 0, false, false},
	{"timeslice", "2 replicas by the driver's time slices", BIT(HB_PAIR_TIMESLICE), false, false},
	{"mps", "half a GPU each by MPS (LP may use 60 % of the SMs)", BIT(HB_PAIR_MPS_60), false, false},
	{"fgd", "best fit of the shares asked for, time slices", BIT(HB_PAIR_TIMESLICE), true, false},
	{"matching", "matching by predicted speed, MPS without preemption",
	 BIT(HB_PAIR_MPS_PRIO) | BIT(HB_PAIR_MPS_88) | BIT(HB_PAIR_MPS_60), false, true},
	{"ours", "matching by predicted speed, temporal or spatial engine",
	 BIT(HB_PAIR_TEMPORAL) | BIT(HB_PAIR_SPATIAL), false, true},
};

uint32_t hb_pair_program(const struct hb_pod *pod)
{
	return (uint32_t)pod->service * HB_DUTY_STEPS + pod->duty;
}

/* Spreads the programs with the higher bound evenly over services and duties: RANK_STEP has no common factor with their number. */
#define RANK_STEP 211u
_Static_assert(HB_CLUSTER_PROGRAMS == 404, "choose RANK_STEP again");

static double bound_of(const struct hb_cluster_setup *setup, uint32_t program)
{
	return program * RANK_STEP % HB_CLUSTER_PROGRAMS < setup->n_higher ? setup->higher_loss : setup->most_loss;
}

static struct hb_pair_choice choose_sharing(const struct hb_cluster_setup *setup, uint32_t program, uint32_t low)
{
	struct hb_pair_choice best = {0};
	enum hb_pair_service service = program / HB_DUTY_STEPS;
	double duty = setup->duty[program % HB_DUTY_STEPS] * setup->duty_factor / hb_pair_busy_share[service];
	for (uint32_t sharing = 0; sharing < HB_PAIR_SHARINGS; sharing++) {
		if (!(setup->rule->sharings & BIT(sharing)))
			continue;
		struct hb_pair_prediction p = hb_pair_predict(setup->model, sharing, service, low, duty < 1 ? duty : 1);
		if (p.loss <= bound_of(setup, program) && p.speed > best.speed)
			best = (struct hb_pair_choice){.loss = p.loss, .speed = p.speed};
	}
	return best;
}

static void sort_programs(struct hb_pair_choices *choices, const struct hb_cluster_setup *setup, uint32_t low)
{
	uint32_t *order = choices->order[low];
	struct hb_rng rng;
	hb_rng_init(&rng, low, 21);
	for (uint32_t i = 0; i < HB_CLUSTER_PROGRAMS; i++) { /* in no order that could favour anybody */
		uint32_t other = (uint32_t)hb_rng_below(&rng, i + 1);
		order[i] = order[other];
		order[other] = i;
	}
	if (!setup->rule->chooses)
		return;
	for (uint32_t i = 1; i < HB_CLUSTER_PROGRAMS; i++) {
		uint32_t program = order[i], at = i;
		for (; at && choices->pairs[order[at - 1]][low].speed < choices->pairs[program][low].speed; at--)
			order[at] = order[at - 1];
		order[at] = program;
	}
}

void hb_pair_choices_make(struct hb_pair_choices *choices, const struct hb_cluster_setup *setup)
{
	for (uint32_t low = 0; low < HB_PAIR_LOWS; low++) {
		for (uint32_t program = 0; program < HB_CLUSTER_PROGRAMS; program++)
			choices->pairs[program][low] = choose_sharing(setup, program, low);
		sort_programs(choices, setup, low);
	}
}
