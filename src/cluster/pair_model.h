/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicts what happens when a service (HP) and a job (LP) share a GPU: the points of attainment that the service loses, and the
 * speed of the job, of alone. It uses rows that were measured or simulated (data/traces/h200-pairs.csv): the mean of
 * the rows of one way of sharing, weighted by how near they are. Pure, apart from reading the file. Callers: cluster_sim.c,
 * cluster_study.c and pairing.c. One thread at a time.
 */
#ifndef HB_CLUSTER_PAIR_MODEL_H
#define HB_CLUSTER_PAIR_MODEL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_PAIR_ROWS_MAX 1024

/* The ways of sharing that the file may name. */
enum hb_pair_sharing {
	HB_PAIR_TIMESLICE,
	HB_PAIR_MPS_PRIO,
	HB_PAIR_MPS_88,
	HB_PAIR_MPS_60,
	HB_PAIR_TEMPORAL,
	HB_PAIR_SPATIAL,
	HB_PAIR_SHARINGS
};
extern const char *const hb_pair_sharing_names[HB_PAIR_SHARINGS];

/* The services and jobs that the model knows. */
enum hb_pair_service { HB_PAIR_EAGER, HB_PAIR_GRAPH, HB_PAIR_DECODE, HB_PAIR_PREFILL, HB_PAIR_SERVICES };
enum hb_pair_low { HB_PAIR_TRAINING, HB_PAIR_LLM_TRAINING, HB_PAIR_TRANSCODE, HB_PAIR_STENCIL, HB_PAIR_LOWS };
/* A program that the model does not know: it predicts the mean of all, weighted by their duty. */
#define HB_PAIR_OTHER_SERVICE HB_PAIR_SERVICES
#define HB_PAIR_OTHER_LOW HB_PAIR_LOWS
extern const char *const hb_pair_service_names[HB_PAIR_SERVICES];
extern const char *const hb_pair_low_names[HB_PAIR_LOWS];
/* GPU-busy time of a request, of its time alone (data/traces/README.md); 1 where it was not measured. */
extern const double hb_pair_busy_share[HB_PAIR_SERVICES];

struct hb_pair_row {
	bool measured; /* else simulated by `hb sim` */
	uint32_t sharing, service, low;
	double duty;  /* share of the time in which requests of the service run, alone: 0 to 1 */
	double loss;  /* attainment alone minus attainment beside the job */
	double speed; /* of the job, of alone */
};

struct hb_pair_model {
	uint32_t n;
	struct hb_pair_row rows[HB_PAIR_ROWS_MAX];
};

struct hb_pair_prediction {
	double loss, speed; /* both 0 to 1 */
};

/* Mean absolute error for measured rows that the model had not seen (each row is left out once). */
struct hb_pair_error {
	uint32_t rows;
	double loss, speed;
};

/* Reads the file. Returns 0, or a negative errno with *error naming file, line and column. */
int hb_pair_model_read(struct hb_pair_model *model, const char *path, struct hb_error *error);
/* Predicts. `duty` as in a row. Service or job may be "other". A way of sharing without rows predicts a loss of 1 and a speed of 0. */
struct hb_pair_prediction hb_pair_predict(const struct hb_pair_model *model, enum hb_pair_sharing sharing,
					  uint32_t service, uint32_t low, double duty);
struct hb_pair_error hb_pair_hold_out(const struct hb_pair_model *model, enum hb_pair_sharing sharing);

#endif
