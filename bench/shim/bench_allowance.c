/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixes the allowance of the spatial engine: HB_BENCH_ALLOWANCE_PERCENT in the
 * environment of an HP program is the delay that LP may cause to each of its
 * requests, in percent of the request's time alone. Orion's rule has a budget of
 * its own; with it the allowance is 100 %, so that HP still learns its time alone.
 *
 * The daemon writes the same field once a tick, so the end of a request, which
 * reads it, may now and then see the daemon's value.
 */
#include "bench_levers.h"

#include <stdlib.h>

static uint32_t read_setting(void)
{
	const char *text = getenv("HB_BENCH_ALLOWANCE_PERCENT");
	if (hb_bench_orion_is_on())
		return HB_SPATIAL_PPM;
	return text ? (uint32_t)strtoul(text, NULL, 10) * (HB_SPATIAL_PPM / 100) : UINT32_MAX;
}

void hb_bench_fix_allowance(struct hb_spatial_high *high)
{
	static _Atomic(uint32_t) setting; /* 0 = not read yet; else the setting + 1, where 0 = none */
	uint32_t known = atomic_load(&setting);
	if (!known) {
		uint32_t allowance_ppm = read_setting();
		known = allowance_ppm == UINT32_MAX ? 1 : allowance_ppm + 2;
		atomic_store(&setting, known);
	}
	if (known > 1)
		high->allowance_ppm = known - 2;
}
