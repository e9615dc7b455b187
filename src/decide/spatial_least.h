/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's guaranteed minimum in the spatial engine (`low_minimum`). Each LP process keeps an
 * account: the minimum of the time in which it wants to launch, minus the time in which
 * its launches run, in proportion to the SMs that their masks leave them. When a process
 * is owed a quarter of a second's minimum, HP's terms are relaxed for it until nothing is
 * owed: LP need not wait for a request, and the reserve leaves it the minimum's share of
 * the SMs. All LP processes leave the same SMs to HP, so together they take no more than
 * that share of the SMs in this way. A launch that cannot be masked takes the GPU for its
 * own length.
 *
 * It is paid in one go, not launch by launch: between these times HP still finds requests
 * without LP, from which it learns its time alone (spatial_high.h).
 *
 * The account forgets what is more than a second old, and time in which the process
 * launches nothing. One struct for each LP process and GPU, all zeros at first; one caller
 * at a time, as spatial_low.h. Pure.
 */
#ifndef HB_DECIDE_SPATIAL_LEAST_H
#define HB_DECIDE_SPATIAL_LEAST_H

#include "decide/spatial_low.h"

struct hb_spatial_least {
	uint32_t ppm;       /* the minimum; 0 = none */
	uint32_t share_ppm; /* of the SMs, that the last launch may use */
	int64_t seen_ns, owed_ns;
	bool pays; /* the terms are relaxed until nothing is owed */
};

/* Before hb_spatial_ask(): relaxes the view if LP is owed something. */
void hb_spatial_least_relax(struct hb_spatial_least *least, const struct hb_spatial_stream *stream, uint32_t sms,
			    int64_t now_ns, struct hb_spatial_view *view);
/* The launch was made. */
void hb_spatial_least_note(struct hb_spatial_least *least, uint32_t sms, const struct hb_spatial_answer *answer);

#endif
