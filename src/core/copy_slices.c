/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy slices of LP, for the policies of the engines temporal and spatial. Each process has copy
 * groups of its own, also in an MPS server, and the slice of such a group is its weight
 * and HP's bound at once: all LP processes share COPY_ROUND by their PCIe weights, and a
 * single LP tenant gets the smallest slice, which costs it nothing.
 */
#include "core/policy.h"
#include "decide/defaults.h"

void hb_policy_slice_low(struct hb_policy *policy, int64_t compute_ns)
{
	int64_t least_ns = hb_policy_config(policy)->low_slice_ns, weights = 0;
	uint32_t id = HB_TENANT_NONE, n = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		weights += hb_policy_tenant(policy, id)->copy_weight;
		n++;
	}
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		int64_t turn_ns = HB_DEFAULT_COPY_ROUND_NS * hb_policy_tenant(policy, id)->copy_weight / weights;
		int64_t copy_ns = turn_ns - HB_DEFAULT_COPY_OVERRUN_NS;
		if (n == 1 || copy_ns < least_ns)
			copy_ns = least_ns;
		hb_policy_slice(policy, id, compute_ns, copy_ns);
	}
}
