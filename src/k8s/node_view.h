/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hb-k8s knows about its node: the GPUs, whether the daemon answers, and the specification that `hb cdi generate`
 * wrote. Reading may take long when a driver or a disk has a problem, so it happens on a thread of its own.
 */
#ifndef HB_K8S_NODE_VIEW_H
#define HB_K8S_NODE_VIEW_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HB_K8S_GPUS_MAX 64
#define HB_K8S_CDI_KIND "hummingbird.dev/tenant"

struct hb_node_view {
	uint32_t n_gpus;
	unsigned char uuids[HB_K8S_GPUS_MAX][16];
	bool daemon_answers;
	json_t *cdi;           /* NULL: there is no valid specification */
	struct hb_error error; /* what is wrong first of all; "" = nothing */
};

/* Reads everything anew; on any thread. Free the content with hb_node_view_fini(). */
void hb_node_view_read(struct hb_node_view *view, const char *cdi_file, bool simulated);
void hb_node_view_fini(struct hb_node_view *view);
/* Returns the changes for containers that get this device, a borrowed reference; NULL: there is no such device. */
json_t *hb_node_view_device(const struct hb_node_view *view, const char *name);
/* Returns the index of the GPU with this UUID, or -1. */
int hb_node_view_gpu(const struct hb_node_view *view, const unsigned char uuid[16]);

#endif
