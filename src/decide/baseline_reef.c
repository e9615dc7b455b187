/* SPDX-License-Identifier: Apache-2.0 */
/* See baseline_reef.h. */
#include "decide/baseline_reef.h"

void hb_reef_update(struct hb_reef *reef, bool high_present, bool low_in_flight)
{
	reef->serving = high_present && (reef->serving || !low_in_flight);
}

bool hb_reef_high_may_start(const struct hb_reef *reef)
{
	return reef->serving;
}

bool hb_reef_low_may_start(bool high_present, uint64_t in_flight)
{
	return !high_present && in_flight < HB_REEF_DEPTH;
}
