/* SPDX-License-Identifier: Apache-2.0 */
/* LP's guaranteed minimum in the spatial engine; see spatial_least.h. */
#include "decide/spatial_least.h"

#include "decide/defaults.h"

/* A process that does not ask for this long wants nothing: its host works. A waiting one asks much more often. */
#define ASKS_WITHIN_NS INT64_C(10000000)
/* Delay that LP may cause a request while it is owed something: more than any launch. */
#define ALLOW_NS INT64_C(2000000000)
/* LP waits until it is owed this part of a second's minimum. */
#define START_PARTS 4

static int64_t bound(int64_t value_ns, int64_t most_ns)
{
	return value_ns > most_ns ? most_ns : value_ns < -most_ns ? -most_ns : value_ns;
}

/* The minimum of a second. */
static int64_t window_ns(const struct hb_spatial_least *least)
{
	return (int64_t)HB_DEFAULT_LOW_MINIMUM_WINDOW_NS * least->ppm / HB_SPATIAL_PPM;
}

void hb_spatial_least_relax(struct hb_spatial_least *least, const struct hb_spatial_stream *stream, uint32_t sms,
			    int64_t now_ns, struct hb_spatial_view *view)
{
	int64_t passed_ns = now_ns - least->seen_ns;
	int64_t most_ns = window_ns(least);
	uint32_t floor = sms - (uint32_t)((uint64_t)sms * least->ppm / HB_SPATIAL_PPM);
	if (!least->ppm)
		return;
	least->seen_ns = now_ns;
	passed_ns = passed_ns < 0 ? 0 : passed_ns < ASKS_WITHIN_NS ? passed_ns : ASKS_WITHIN_NS;
	/* The mark that the GPU has not reached shows that LP ran since the last look. */
	int64_t had_ppm = stream->marked != stream->done ? least->share_ppm : 0;
	least->owed_ns = bound(least->owed_ns + passed_ns * (least->ppm - had_ppm) / HB_SPATIAL_PPM, most_ns);
	least->pays = least->owed_ns > (least->pays ? 0 : most_ns / START_PARTS);
	if (!least->pays)
		return;
	view->granted = true;
	if (view->allow_ns < ALLOW_NS)
		view->allow_ns = ALLOW_NS;
	if (view->reserve > floor)
		view->reserve = floor;
}

void hb_spatial_least_note(struct hb_spatial_least *least, uint32_t sms, const struct hb_spatial_answer *answer)
{
	uint32_t used = answer->sms && answer->sms < sms ? answer->sms : sms;
	least->share_ppm = (uint32_t)((uint64_t)used * HB_SPATIAL_PPM / sms);
}
