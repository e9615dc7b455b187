/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a ResourceClaim of Kubernetes says about the devices that it was given: which GPU, which priority, and the objective
 * and memory limit from its parameters. Pure: no file, no clock.
 *
 * A device of the driver hummingbird.dev is a priority on a GPU: gpu-UUID-high or gpu-UUID-low. So the device decides the
 * highest priority, and parameters can only lower it. The parameters of a device class come before those of the claim:
 *
 *   {"apiVersion": "hummingbird.dev/v1", "kind": "TenantParameters", "priority": "low", "slo": "p99<50ms", "memory": "40Gi"}
 */
#ifndef HB_K8S_CLAIM_TERMS_H
#define HB_K8S_CLAIM_TERMS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define HB_DRA_DRIVER "hummingbird.dev"
#define HB_DRA_DEVICE_SIZE 48 /* of a device's name, with its NUL */
#define HB_CLAIM_DEVICES_MAX 128

/* Writes the name of a device. Returns `name`. */
char *hb_dra_device_format(const unsigned char uuid[16], bool is_high, char name[static HB_DRA_DEVICE_SIZE]);
/* Reads the name of a device. 0, or -EINVAL. */
int hb_dra_device_parse(const char *name, unsigned char uuid[16], bool *is_high);

/* Reads a quantity of Kubernetes such as 40Gi, 1500M, 12e6 or 0. 0, or -EINVAL; it has no fractions of a byte. */
int hb_quantity_parse(const char *text, uint64_t *bytes);

/*
 * Returns a new array with an object for each device of this node that the claim was given from our driver:
 *   {request, pool, device, share ("" = none), priority, slo_ns, attainment_ppm, memory_bytes}
 * slo_ns: 0 = none, -1 = learned; attainment_ppm and memory_bytes: 0 = not given. NULL with *error, which names claim, request
 * and parameter.
 */
json_t *hb_claim_terms_read(const json_t *claim, const char *node, struct hb_error *error);

#endif
