/* SPDX-License-Identifier: Apache-2.0 */
/* Computes demands from run times; see demand.h. */
#include "server/scheduler/demand.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

static double limit_share(double share)
{
	return share < 0 ? 0 : share > 1 ? 1 : share;
}

static bool is_positive(double value)
{
	return value > 0 && isfinite(value);
}

int hb_demand_infer(const struct hb_demand_times *times, double *sm, double *memory)
{
	if (!is_positive(times->alone) || !is_positive(times->limited) || !is_positive(times->beside) ||
	    !is_positive(times->beside_memory) || !is_positive(times->sm_part))
		return -EINVAL;
	*sm = limit_share(times->sm_part * times->limited / times->alone);
	*memory = sqrt(limit_share(times->beside_memory / times->beside - 1));
	return 0;
}

double hb_demand_infer_transfer(const struct hb_demand_link *link, const double ns[2], unsigned items,
				double tensor_bytes)
{
	double item_ns = items > 1 ? (ns[1] - ns[0]) / (items - 1) : ns[0] - link->latency_ns;
	double bytes = item_ns * link->bytes_per_ns;
	return isfinite(bytes) && bytes > tensor_bytes ? bytes : tensor_bytes;
}
