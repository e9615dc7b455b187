/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ResourceSlice of this node: what the cluster's scheduler knows about its GPUs. Each GPU is two devices, one for each
 * priority, that several claims can share. Publishing waits for the API server: call it on a thread that may wait, one at a
 * time.
 */
#ifndef HB_K8S_SLICE_H
#define HB_K8S_SLICE_H

#include "k8s/api_client.h"
#include "k8s/node_view.h"

#define HB_NODE_NAME_MAX 237 /* characters; the name of the slice has at most 253 */
#define HB_GPU_TENANTS_MAX 1000

struct hb_slice_gpu {
	unsigned char uuid[16];
	char name[96];         /* "" = not known */
	uint64_t memory_bytes; /* 0 = not known */
	uint32_t
		idle_percent; /* of the last minute, in which neither high priority nor a process without tenant had it */
};

struct hb_slice_config {
	const char *node;
	struct hb_api_server server;
	uint32_t high, low; /* tenants of each priority that a GPU may have; 0 = the priority is not offered */
	int64_t idle_period_ns;
};

struct hb_slice_publisher {
	const struct hb_slice_config *config;
	uint32_t n_gpus;
	struct hb_slice_gpu gpus[HB_K8S_GPUS_MAX];
	json_t *published; /* devices; NULL = none */
	int64_t idle_ns, checked_ns, tried_ns;
	char node_uid[64];
	bool has_warned;
};

/*
 * Reads what the view does not have about its GPUs. The idle shares are read from the daemon's status at most once in the
 * idle period, and change only if they differ by at least 5 points.
 */
void hb_slice_read_gpus(struct hb_slice_publisher *publisher, const struct hb_node_view *view, bool simulated,
			int64_t now_ns);
/* Returns the devices of the slice; none while the daemon or the CDI file is missing. */
json_t *hb_slice_devices(const struct hb_slice_publisher *publisher, const struct hb_node_view *view);
/*
 * Writes the slice if its devices have changed, or if it has disappeared, which is checked once a minute; tries it at most
 * every 2 s. 0, or a negative errno with *error; call it again then.
 */
int hb_slice_publish(struct hb_slice_publisher *publisher, const struct hb_node_view *view, int64_t now_ns,
		     struct hb_error *error);
void hb_slice_fini(struct hb_slice_publisher *publisher);

/* The share of the last minute in percent that a GPU of the daemon's status was idle. Pure. */
uint32_t hb_slice_idle_percent(const json_t *status, const char *uuid);

#endif
