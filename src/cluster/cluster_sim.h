/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays pods on a cluster of equal GPUs in virtual time, under one rule of who shares a GPU with whom. A service (HP) and a
 * job (LP) that each ask for one GPU may share it; two services never do, and neither do two jobs. Pods on several GPUs, and
 * pods of other classes, have their GPUs to themselves. docs/cluster.md states all assumptions. Pure: the same arguments give
 * the same result. One thread at a time. Caller: `hb sim-cluster`.
 */
#ifndef HB_CLUSTER_SIM_H
#define HB_CLUSTER_SIM_H

#include "cluster/pair_model.h"
#include "cluster/pods.h"

/* A way to place pods. The rules are rows of hb_cluster_rules. */
struct hb_cluster_rule {
	const char *name, *about;
	uint32_t
		sharings; /* bits of enum hb_pair_sharing; the pair gets the fastest one that is allowed. 0 = no pods share */
	bool fits_shares; /* the shares that the pods asked for fit on the GPU, and the fullest GPU is preferred (FGD) */
	bool chooses;     /* prefers the pair whose job is fastest; else any pair is as good */
};
extern const struct hb_cluster_rule hb_cluster_rules[];
#define HB_CLUSTER_RULES 6u

enum hb_cluster_arrivals {
	HB_CLUSTER_RECORDED, /* pods come and go as in the trace; there is always another GPU */
	HB_CLUSTER_AT_ONCE,  /* pods come in the trace's order and stay; there is always another GPU */
	HB_CLUSTER_LIMITED,  /* as recorded, on n_gpus: LP waits, and is evicted where a service needs its GPU */
};

/* When and where a pod ran; an evicted job: at last. */
struct hb_cluster_visit {
	double start_s, end_s; /* start_s: its first start; both below 0 = it did not start, or did not end */
	uint32_t gpu;
};

struct hb_cluster_setup {
	const struct hb_pods *pods;
	const double *duty; /* HB_DUTY_STEPS */
	const struct hb_pair_model *model;
	const struct hb_cluster_rule *rule;
	enum hb_cluster_arrivals arrivals;
	uint32_t n_gpus;    /* with HB_CLUSTER_LIMITED */
	double most_loss;   /* a pair is allowed when the predicted loss of attainment is at most this; 1 = any pair */
	double higher_loss; /* the same for n_higher of the HB_CLUSTER_PROGRAMS; most_loss applies to the others */
	uint32_t n_higher;
	double duty_factor;              /* of every service's duty */
	double truth;                    /* what really happens: loss and slowdown are this times the predicted ones */
	struct hb_cluster_visit *visits; /* NULL, or one for each pod, to be filled */
};

struct hb_cluster_result {
	uint32_t pods, skipped; /* skipped: the trace does not say how long they ran */
	uint32_t high, low;     /* pods that may share */
	uint32_t gpus;          /* the most that were in use at the same time */
	double gpu_hours;       /* in which a GPU was in use */
	uint32_t shared_high;   /* services that ever shared */
	double loss;            /* attainment that a service lost, of its whole time; mean over the services */
	double worst_loss;
	double harvested_hours;         /* GPU-hours of work that LP did beside services */
	double low_hours;               /* of all work that LP did and that was not lost */
	double lost_hours;              /* of work that evictions lost */
	uint32_t evictions, unfinished; /* unfinished: LP that never ended */
	double wait_mean_s, wait_p99_s; /* of LP, from its creation to its first start */
	double completion_mean, completion_p99,
		completion_most; /* of LP of at least a minute: completion time, of its run time */
	uint32_t high_waited;    /* services that did not start at once */
};

/* 0, -ENOMEM. *result is written only on success. */
int hb_cluster_run(const struct hb_cluster_setup *setup, struct hb_cluster_result *result, struct hb_error *error);

/*
 * The largest predicted loss per pair with which the mean loss of all services stays within `loss`, found by bisection. Many
 * services have the same prediction, so the mean jumps there: a second bisection finds how many programs may have the next higher
 * bound. Overwrites most_loss, higher_loss and n_higher of the setup, and writes their result. 0 or a negative errno.
 */
int hb_cluster_fit(struct hb_cluster_setup *setup, double loss, struct hb_cluster_result *result,
		   struct hb_error *error);

#endif
