/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pair model says under one rule, once for all placements: how each service shares with each kind of job, and which
 * service is the best partner. Pure. Caller: cluster_sim.c.
 */
#ifndef HB_CLUSTER_PAIR_CHOICES_H
#define HB_CLUSTER_PAIR_CHOICES_H

#include "cluster/cluster_sim.h"

#define HB_CLUSTER_PROGRAMS (HB_PAIR_SERVICES * HB_DUTY_STEPS) /* services that differ in what the model predicts */

struct hb_pair_choice {
	double loss, speed; /* predicted, with the fastest allowed way of sharing; speed 0 = the pair is not allowed */
};

struct hb_pair_choices {
	struct hb_pair_choice pairs[HB_CLUSTER_PROGRAMS][HB_PAIR_LOWS];
	uint32_t order[HB_PAIR_LOWS][HB_CLUSTER_PROGRAMS]; /* programs, best partner first */
};

/* The program of a service: an index of `pairs`. */
uint32_t hb_pair_program(const struct hb_pod *pod);
void hb_pair_choices_make(struct hb_pair_choices *choices, const struct hb_cluster_setup *setup);

#endif
