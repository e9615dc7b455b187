/* SPDX-License-Identifier: Apache-2.0 */
/* The answers to Allocate and GetPreferredAllocation of a device plugin. Pure: no file, no clock. */
#ifndef HB_K8S_ALLOCATION_H
#define HB_K8S_ALLOCATION_H

#include "device_plugin.pb-c.h"
#include "k8s/device_plugin.h"

#define HB_UNIT_ID_SIZE 56 /* of a unit's ID, with its NUL */

struct hb_unit_rule {
	const struct hb_plugin_config *config;
	const struct hb_node_view *view;
	const char *resource; /* name of the resource and of the CDI device */
	uint32_t units;       /* on each GPU */
};

/* Writes the ID of a unit, "GPU-UUID-NUMBER". Returns `id`. */
char *hb_unit_format(const unsigned char uuid[16], uint32_t unit, char id[static HB_UNIT_ID_SIZE]);

/*
 * Fill an initialized answer with parts of message_parts.h. They return a status of gRPC, with *error unless it is 0; the
 * answer may be freed in any case.
 */
int hb_allocation_answer(const struct hb_unit_rule *rule, const V1beta1__AllocateRequest *request,
			 V1beta1__AllocateResponse *answer, struct hb_error *error);
/* Prefers units of different GPUs, because a container gains nothing from two units of one GPU; the emptiest GPU first. */
int hb_allocation_prefer(const struct hb_unit_rule *rule, const V1beta1__PreferredAllocationRequest *request,
			 V1beta1__PreferredAllocationResponse *answer, struct hb_error *error);

#endif
