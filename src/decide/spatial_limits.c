/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of LP in the spatial engine; see spatial_low.h. Used by the shim and the simulator. */
#include "decide/defaults.h"
#include "decide/spatial_low.h"

uint32_t hb_spatial_standing_reserve(uint32_t sms)
{
	return (uint32_t)((uint64_t)sms * HB_DEFAULT_RESERVE_LEAST_PPM / HB_SPATIAL_PPM);
}

void hb_spatial_limits_init(struct hb_spatial_limits *limits, uint32_t sms)
{
	*limits = (struct hb_spatial_limits){
		.light_ns = HB_DEFAULT_LIGHT_NS,
		.close_ns = HB_DEFAULT_CLOSE_NS,
		.split_ns = HB_DEFAULT_SPLIT_NS,
		.tick_ns = HB_DEFAULT_SPLIT_NEXT_NS,
		.weight = HB_DEFAULT_MASK_WEIGHT,
		.masks = true,
	};
	hb_spatial_limits_set_sms(limits, sms);
	hb_spatial_limits_set_window(limits, HB_DEFAULT_WINDOW_NS);
}

void hb_spatial_limits_set_sms(struct hb_spatial_limits *limits, uint32_t sms)
{
	limits->sms = sms;
	limits->standing_sms = (sms - hb_spatial_standing_reserve(sms)) & ~UINT32_C(1);
}

void hb_spatial_limits_set_window(struct hb_spatial_limits *limits, uint32_t window_ns)
{
	limits->window_ns = limits->beside_ns = limits->ahead_ns = window_ns;
	limits->open_ns = window_ns / 2;
	limits->standing_ns = window_ns;
	limits->steady_ns = window_ns * 4;
	limits->tight_ns = window_ns / 16;
	limits->mark_ns = window_ns / 8;
}
