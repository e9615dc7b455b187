/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writers of metrics.c share this: the labels of a daemon, user, GPU or tenant, and a walk over all of each kind. All
 * samples of one metric must be written together, so each metric is one walk. Called from the event loop only.
 */
#ifndef HB_DAEMON_METRICS_SCENE_H
#define HB_DAEMON_METRICS_SCENE_H

#include "daemon/daemon.h"

#include <stdio.h>

#define HB_METRICS_LABELS 640 /* bytes of all labels of a sample; a label that does not fit is left out */

/* Input of a writer. Only the members that its subject has are set. */
struct hb_metrics_scene {
	FILE *out;
	struct hb_daemon *daemon;
	int64_t now_ns;
	const char *name; /* of the metric being written */
	const struct hb_user *user;
	const struct hb_gpu *gpu;
	struct hb_tenancy *tenancy;
	uint32_t gpu_index; /* of the GPU on the tenant page */
	size_t row;         /* of the counter table being written */
	char *labels;       /* of the subject */
	char host[256];
	char (*gpu_labels)[HB_METRICS_LABELS];
};

typedef void hb_metrics_writer(struct hb_metrics_scene *scene);

/* Appends a label. */
void hb_metrics_label(char labels[HB_METRICS_LABELS], const char *name, const char *value);
/* Sets the labels of a GPU: the names that DCGM's exporter uses, so that its metrics and these can be joined. */
void hb_metrics_label_gpu(const struct hb_metrics_scene *scene, const struct hb_gpu *gpu,
			  char labels[HB_METRICS_LABELS]);
/* Appends the labels of a tenant. */
void hb_metrics_label_tenant(const struct hb_tenancy *tenancy, char labels[HB_METRICS_LABELS]);
/* Returns `labels`: those of the subject with one more. */
const char *hb_metrics_own_label(const struct hb_metrics_scene *scene, const char *name, const char *value,
				 char labels[HB_METRICS_LABELS]);

/* Calls `write` for each subject, with its labels in scene->labels; `uses` means each tenant on each of its GPUs. */
void hb_metrics_walk_daemon(struct hb_metrics_scene *scene, hb_metrics_writer *write);
void hb_metrics_walk_users(struct hb_metrics_scene *scene, hb_metrics_writer *write);
void hb_metrics_walk_gpus(struct hb_metrics_scene *scene, hb_metrics_writer *write);
void hb_metrics_walk_tenants(struct hb_metrics_scene *scene, hb_metrics_writer *write);
void hb_metrics_walk_uses(struct hb_metrics_scene *scene, hb_metrics_writer *write);

#endif
