/* SPDX-License-Identifier: Apache-2.0 */
/* What bounds LP in the spatial engine, in numbers; see spatial_low.h. Compiled into the core and the shim. */
#include "decide/spatial_low.h"

void hb_spatial_limits_init(struct hb_spatial_limits *limits, uint32_t sms)
{
	*limits = (struct hb_spatial_limits){
		.sms = sms,
		.window_ns = 100000,
		.open_ns = 100000,
		.ahead_ns = 200000,
		.light_ns = 20000,
		.beside_ns = 60000,
		.steady_ns = 400000,
		.tight_ns = 60000,
		.close_ns = 6000000,
		.mark_ns = 30000,
		.slice_ns = 100000,
		.tick_ns = 60000,
		.weight = 8,
		.masks = true,
	};
}

void hb_spatial_limits_set_window(struct hb_spatial_limits *limits, uint32_t window_ns)
{
	limits->window_ns = limits->beside_ns = limits->ahead_ns = window_ns;
	limits->open_ns = window_ns / 2;
	limits->steady_ns = window_ns * 4;
	limits->tight_ns = window_ns / 8;
	limits->mark_ns = window_ns / 8;
}
