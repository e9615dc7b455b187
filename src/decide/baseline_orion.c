/* SPDX-License-Identifier: Apache-2.0 */
/* See baseline_orion.h. */
#include "decide/baseline_orion.h"

#define PPM 1000000

int64_t hb_orion_budget_ns(int64_t alone_ns)
{
	return alone_ns > 0 ? alone_ns / PPM * HB_ORION_BUDGET_PPM + alone_ns % PPM * HB_ORION_BUDGET_PPM / PPM
			    : HB_ORION_BUDGET_NS;
}

bool hb_orion_fits(const struct hb_orion_launch *launch, uint32_t limit_sms, int64_t left_ns, enum hb_class high)
{
	bool same = launch->class != HB_CLASS_UNKNOWN && launch->class == high;
	return launch->sms && launch->sms <= limit_sms && launch->duration_ns && launch->duration_ns <= left_ns &&
	       !same;
}

bool hb_orion_may_start(int64_t *used_ns, const struct hb_orion_high *high, const struct hb_orion_launch *launch,
			uint32_t limit_sms)
{
	if (!high->present) {
		*used_ns = 0;
		return true;
	}
	int64_t left_ns = high->measures_alone ? 0 : hb_orion_budget_ns(high->alone_ns) - *used_ns;
	if (!hb_orion_fits(launch, limit_sms, left_ns, high->class))
		return false;
	*used_ns += launch->duration_ns;
	return true;
}
