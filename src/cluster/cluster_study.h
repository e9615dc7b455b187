/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All runs that `hb sim-cluster` compares: each rule of cluster_sim.h, without and with a bound on the loss of attainment, for
 * each kind of arrivals; then the rule "ours" with another truth and other duties. Writes them as a table or as JSON
 * (docs/cluster.md). Functions that return int return 0, or a negative errno with *error set.
 */
#ifndef HB_CLUSTER_STUDY_H
#define HB_CLUSTER_STUDY_H

#include "cluster/cluster_sim.h"

#include <jansson.h>
#include <stdio.h>

#define HB_CLUSTER_ROWS_MAX 128

enum hb_cluster_bound {
	HB_CLUSTER_ANY_PAIR,  /* any pair is allowed */
	HB_CLUSTER_FLEET,     /* the mean loss of all services stays within study->within */
	HB_CLUSTER_EACH_PAIR, /* the predicted loss of every pair stays within study->within */
	HB_CLUSTER_BOUNDS
};

struct hb_cluster_row {
	const struct hb_cluster_rule *rule;
	enum hb_cluster_arrivals arrivals;
	enum hb_cluster_bound bound;
	double most_loss, higher_loss, truth, duty_factor; /* as in the setup */
	uint32_t n_higher;
	double gpus_saved; /* of the GPUs of "one GPU each", under the same arrivals */
	struct hb_cluster_result result;
};

struct hb_cluster_study {
	const struct hb_pods *pods;
	const double *duty;
	const struct hb_pair_model *model;
	uint32_t rules;                 /* bits: which of hb_cluster_rules */
	uint32_t n_gpus;                /* of the limited cluster; 0 = what the pods that are not LP need, filled in */
	double within;                  /* bound on the loss of attainment, such as 0.01 */
	double duty_factor;             /* of every service's duty */
	uint32_t n_rows, n_sensitivity; /* rows, and those after them that show the sensitivity */
	struct hb_cluster_row rows[HB_CLUSTER_ROWS_MAX];
};

int hb_cluster_study_run(struct hb_cluster_study *study, struct hb_error *error);
/*
 * Runs the last of the rules on the limited cluster, where any pair may share, and writes when and where each pod ran, as CSV.
 * After hb_cluster_study_run(), which fills in the number of GPUs.
 */
int hb_cluster_schedule_write(FILE *out, const struct hb_cluster_study *study, struct hb_error *error);
void hb_cluster_study_write(FILE *out, const struct hb_cluster_study *study);
/* The caller releases *root. */
int hb_cluster_study_pack(const struct hb_cluster_study *study, json_t **root, struct hb_error *error);

#endif
