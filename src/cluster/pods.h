/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pods of a cluster's trace, and how much the services of a fleet use their GPUs. Reads data/traces/openb-2023-pods.csv.gz
 * and data/traces/genai-2026-duty.csv. Caller: `hb sim-cluster`.
 */
#ifndef HB_CLUSTER_PODS_H
#define HB_CLUSTER_PODS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_DUTY_STEPS 101
#define HB_PODS_MAX 20000000u

enum hb_pod_class { HB_POD_HIGH, HB_POD_LOW, HB_POD_WHOLE };

struct hb_pod {
	double created_s, run_s; /* run_s < 0: the trace does not say how long it ran */
	uint32_t number;         /* in the file, counted from 0, and on through the copies */
	uint16_t n_gpus, milli;  /* thousandths of one GPU that it asked for, where n_gpus is 1 */
	uint8_t class;           /* HB_POD_WHOLE: it shares its GPUs with no other pod */
	uint8_t service, low;    /* enum hb_pair_service of HP, enum hb_pair_low of LP: given by the pod's number */
	uint8_t duty;            /* HP: a step of the fleet's duty */
};

struct hb_pods {
	struct hb_pod *pods; /* in the order of created_s */
	uint32_t n, n_without_gpu;
};

/* Reads pods; those that ask for no GPU are only counted. 0 or a negative errno with *error set; fini in any case. */
int hb_pods_read(struct hb_pods *pods, const char *path, struct hb_error *error);
/* Repeats all pods, `copies` times in all; each copy is its own draw of services. `spread_s`: how much later the next one begins. */
int hb_pods_repeat(struct hb_pods *pods, uint32_t copies, double spread_s, struct hb_error *error);
/* Lists the different shares of a GPU that pods ask for, ascending. 0, or -E2BIG: more than `most`. */
int hb_pods_list_shares(const struct hb_pods *pods, uint16_t *shares, uint32_t most, uint32_t *n);
void hb_pods_fini(struct hb_pods *pods);

/* Reads the share of the time in which a GPU of the fleet works, in HB_DUTY_STEPS equal steps of the fleet. */
int hb_duty_read(double duty[static HB_DUTY_STEPS], const char *path, struct hb_error *error);

#endif
