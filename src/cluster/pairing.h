/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which jobs to put together on the GPUs of a cluster: each GPU takes at most one job of high and one of low priority. Jobs of
 * high priority get GPUs in the order in which they are given; jobs of low priority then get those with which the most of them
 * run, and the sum of their predicted speeds is the greatest, among the pairs in which the other job keeps its attainment.
 * docs/placing.md describes the rules, the input and the answer. Pure: the same arguments give the same result. One thread at a time.
 * Caller: `hb place`.
 */
#ifndef HB_CLUSTER_PAIRING_H
#define HB_CLUSTER_PAIRING_H

#include "cluster/pair_model.h"

#include <jansson.h>

#define HB_PAIRING_GPUS_MAX 8192u
#define HB_PAIRING_NODES_MAX 8192u
#define HB_PAIRING_JOBS_MAX 1024u
#define HB_PAIRING_NONE UINT32_MAX
#define HB_PAIRING_NAME_MAX 128

struct hb_pairing_job {
	char name[HB_PAIRING_NAME_MAX];
	bool is_high;
	uint32_t program;      /* enum hb_pair_service or enum hb_pair_low, or HB_PAIR_OTHER_... */
	double duty;           /* HP: share of the time in which its requests run; below 0 = as the daemon measured */
	double most_loss;      /* HP: attainment that it may lose; below 0 = not given */
	double least_speed;    /* LP: it does not want to run slower, of alone */
	uint64_t memory_bytes; /* 0 = not known */
	uint32_t only_node;    /* HB_PAIRING_NONE = any */
	bool runs;             /* it runs on its GPU already */
	uint32_t gpu;          /* index of pairing->gpus; HB_PAIRING_NONE = it waits */
	char why[256];         /* why it waits; "" = it does not */
};

struct hb_pairing_gpu {
	uint32_t node, number;              /* number: within the node */
	char uuid[64];                      /* "" = not known */
	uint32_t sharings;                  /* bits of enum hb_pair_sharing that its engine may use */
	uint64_t free_bytes, reserve_bytes; /* UINT64_MAX = not known; LP leaves the reserve free */
	uint32_t high, low;                 /* jobs; HB_PAIRING_NONE = none */
	/* What the daemon measured in the last minute. */
	bool is_measured, is_lost;
	uint32_t n_high, n_low;         /* tenants */
	double high_share, other_share; /* of the time: requests of HP; processes that are not managed */
	bool low_was_beside;            /* LP had the GPU, so the attainment is one beside LP */
	bool has_attainment;            /* HP has an objective, and enough requests were seen */
	double attainment, asked;       /* of the HP tenant that is nearest to missing its objective */
};

struct hb_pairing {
	uint32_t n_nodes, n_gpus, n_jobs;
	char (*nodes)[HB_PAIRING_NAME_MAX];
	struct hb_pairing_gpu *gpus; /* in the order of the nodes */
	struct hb_pairing_job *jobs;
	const struct hb_pair_model *model;
	double most_loss;     /* of HP that states none */
	bool prefers_sharing; /* a job of low priority gets a GPU of its own only if it may share none */
	uint32_t n_options;   /* nodes to list for each job of low priority */
};

/* What is predicted for two jobs on one GPU. */
struct hb_pairing_guess {
	double speed;      /* of LP, of alone; 0 = they may not share */
	double loss;       /* attainment that HP loses */
	double attainment; /* of HP */
	uint32_t sharing;  /* enum hb_pair_sharing */
	bool is_measured;  /* the attainment was measured beside LP */
};

/* Reads nodes and jobs. `origin` names the input in errors. 0 or a negative errno with *error set; fini in any case. */
int hb_pairing_read(struct hb_pairing *pairing, json_t *root, const char *origin, struct hb_error *error);
void hb_pairing_fini(struct hb_pairing *pairing);

/* Chooses a GPU for each job that waits, or says why there is none. 0, or -ENOMEM. */
int hb_pairing_choose(struct hb_pairing *pairing);
/* Predicts this job of low priority beside what of high priority the GPU has. */
struct hb_pairing_guess hb_pairing_predict(const struct hb_pairing *pairing, const struct hb_pairing_job *low,
					   const struct hb_pairing_gpu *gpu);
/* Whether something of high priority is on the GPU. */
bool hb_pairing_has_high(const struct hb_pairing_gpu *gpu);
/* The speed of this job on the GPU; 0 = it may not run there. As if no job of low priority had been placed there by hb_pairing_choose(). */
double hb_pairing_speed(const struct hb_pairing *pairing, const struct hb_pairing_job *low,
			const struct hb_pairing_gpu *gpu);

/* The answer of `hb place`. The caller releases *root. 0 or a negative errno. */
int hb_pairing_pack(const struct hb_pairing *pairing, json_t **root, struct hb_error *error);

#endif
