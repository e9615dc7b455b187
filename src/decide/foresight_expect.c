/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight in the spatial engine: nothing is taken over there, but LP masks the launches that would run into the next
 * request. What a mask costs takes the place of what a takeover costs; everything else is learned as foresight.h says.
 *
 * A context switch becomes the time for which a running block of LP keeps its SM. LP loses only the masked share of its
 * time, so a mask in vain weighs less. The plan's takeover from s to e covers launches from s + ready to e, and that
 * is what HP announces: LP knows its own durations, and masks as early as these need.
 */
#include "decide/defaults.h"
#include "decide/foresight.h"

#define PPM 1000000
/* A request may begin this much before the time that a hint names, until the source of the hint is known. */
#define HINT_EARLY_NS 100000

void hb_foresight_mask_costs_init(struct hb_foresight_costs *costs)
{
	hb_foresight_costs_init(costs);
	costs->switch_ns = HB_DEFAULT_EXPECT_HOLD_NS;
	costs->ready_ns = 2 * (int64_t)HB_DEFAULT_EXPECT_HOLD_NS;
	costs->lead_ns = costs->ready_ns + HINT_EARLY_NS;
	costs->soon_ns = 0;
	costs->weight_ppm = (uint32_t)((uint64_t)HB_DEFAULT_TAKEOVER_WEIGHT_PPM * HB_DEFAULT_RESERVE_PPM / PPM);
	costs->kept_weight_ppm = costs->weight_ppm;
}

bool hb_foresight_expects(const struct hb_foresight *foresight, int64_t now_ns, struct hb_foresight_expected *expected)
{
	bool found = false;
	for (uint64_t left = foresight->busy ? 0 : foresight->pending; left; left &= left - 1) {
		const struct hb_foresight_sign *sign = &foresight->signs[__builtin_ctzll(left)];
		int64_t from_ns = sign->base_ns + sign->plan.start_ns + foresight->costs.ready_ns;
		if (sign->end_ns <= now_ns || (found && from_ns >= expected->from_ns))
			continue;
		/* The outcomes may be closer together than a mask has to be early. */
		*expected = (struct hb_foresight_expected){.from_ns = from_ns < sign->end_ns ? from_ns : sign->end_ns,
							   .until_ns = sign->end_ns};
		found = true;
	}
	return found;
}
