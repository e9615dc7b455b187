/* SPDX-License-Identifier: Apache-2.0 */
/* See spatial_kind.h. */
#include "decide/spatial_kind.h"

#include <string.h>

/* A moving quantile: 9 steps up when exceeded, 1 step down when not, so one request in ten exceeds it. */
#define QUANTILE_UP 9
#define QUANTILE_STEP_SHIFT 7
/* Moving means: weight 1/8 for each sample; less for gaps, which vary more. */
#define MEAN_SHIFT 3
#define GAP_SHIFT 5
/*
 * One pause says little about the gaps that follow, so it counts as at most this many mean gaps. The mean of a Poisson process
 * loses 2 % by that.
 */
#define GAP_MOST 4
#define PAUSE_LEAST_NS INT64_C(1000000)
/* The first gap of a kind may be a pause: among the first gaps, one far below the mean replaces it. */
#define FIRST_GAPS 8
#define SHORT_SHIFT 4
/* Requests have the same length if their launches differ by less than an eighth. */
#define LENGTH_SHIFT 3
/* The reserve follows the launches down to LEAST_SMS, and only where that frees WORTH_SMS. */
#define LEAST_SMS 8
#define WORTH_SMS 4

static void begin_kind(struct hb_spatial_kind *kind, uint32_t launches, uint32_t sms)
{
	memset(kind, 0, sizeof *kind);
	kind->launches = launches;
	hb_spatial_guard_init(&kind->guard, sms);
}

/* The first kind gets its number of launches from the first request. */
void hb_spatial_kinds_init(struct hb_spatial_kinds *kinds, uint32_t sms)
{
	memset(kinds, 0, sizeof *kinds);
	kinds->last = &kinds->of[0];
	begin_kind(kinds->last, 0, sms);
}

static bool same_length(uint32_t a, uint32_t b)
{
	uint32_t apart = a > b ? a - b : b - a;
	return apart <= a >> LENGTH_SHIFT;
}

/* Finds the kind; a new one replaces an unused one, or the one not seen for longest. */
static struct hb_spatial_kind *find_kind(struct hb_spatial_kinds *kinds, uint32_t launches, bool *found)
{
	struct hb_spatial_kind *oldest = &kinds->of[0];
	*found = true;
	for (uint32_t i = 0; i < HB_SPATIAL_KINDS; i++) {
		struct hb_spatial_kind *kind = &kinds->of[i];
		if (kind->launches && same_length(kind->launches, launches))
			return kind;
		if (!kind->launches ? oldest->launches : oldest->launches && kind->seen_ns < oldest->seen_ns)
			oldest = kind;
	}
	*found = false;
	return oldest;
}

bool hb_spatial_kinds_note(struct hb_spatial_kinds *kinds, uint32_t launches, int64_t now_ns)
{
	struct hb_spatial_kind *before = kinds->last;
	uint32_t sms = before->guard.sms;
	bool found;
	launches = launches ? launches : 1;
	if (!before->launches)
		before->launches = launches;
	kinds->last = find_kind(kinds, launches, &found);
	if (!found)
		begin_kind(kinds->last, launches, sms);
	else if (kinds->last != before && now_ns - kinds->last->seen_ns > HB_SPATIAL_ABSENT_NS)
		hb_spatial_guard_return(&kinds->last->guard);
	kinds->last->seen_ns = now_ns;
	return kinds->last != before || !found;
}

void hb_spatial_kinds_return(struct hb_spatial_kinds *kinds)
{
	for (uint32_t i = 0; i < HB_SPATIAL_KINDS; i++)
		if (kinds->of[i].launches)
			hb_spatial_guard_return(&kinds->of[i].guard);
}

static int64_t lower_quartile(const int64_t *values, uint32_t n)
{
	int64_t sorted[HB_SPATIAL_SAMPLES];
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;
		for (; at > 0 && sorted[at - 1] > values[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = values[i];
	}
	return sorted[n / 4];
}

void hb_spatial_kind_learn_alone(struct hb_spatial_kind *kind, int64_t all_ns, int64_t wait_ns)
{
	uint32_t at = kind->closed++ % HB_SPATIAL_SAMPLES;
	uint32_t n = kind->closed < HB_SPATIAL_SAMPLES ? kind->closed : HB_SPATIAL_SAMPLES;
	kind->all_of_ns[at] = all_ns;
	kind->wait_of_ns[at] = wait_ns;
	kind->alone_ns = lower_quartile(kind->all_of_ns, n);
	kind->wait_ns = lower_quartile(kind->wait_of_ns, n);
}

void hb_spatial_kind_learn_left(struct hb_spatial_kind *kind, uint32_t position, int64_t took_ns)
{
	int64_t *left_ns = &kind->left_ns[position], step_ns = (*left_ns >> QUANTILE_STEP_SHIFT) + 1;
	if (!*left_ns)
		*left_ns = took_ns > 0 ? took_ns : 1;
	else if (took_ns > *left_ns)
		*left_ns += QUANTILE_UP * step_ns;
	else if (*left_ns > step_ns)
		*left_ns -= step_ns;
}

/* Follows a larger need at once, and a smaller one by a quarter for each request. */
void hb_spatial_kind_learn_need(struct hb_spatial_kind *kind, uint32_t position, uint32_t sms)
{
	uint16_t *need = &kind->need[position];
	if (sms > UINT16_MAX)
		sms = UINT16_MAX;
	*need = (uint16_t)(sms >= *need ? sms : *need - (*need - sms + 3) / 4);
}

static uint32_t last_position(const struct hb_spatial_kind *kind)
{
	uint32_t last = kind->launches / HB_SPATIAL_STRIDE;
	return last < HB_SPATIAL_POSITIONS ? last : HB_SPATIAL_POSITIONS - 1;
}

uint32_t hb_spatial_kind_next_need(const struct hb_spatial_kind *kind, uint32_t position, uint32_t reserve,
				   int64_t *for_ns)
{
	uint32_t last = last_position(kind), end = position;
	*for_ns = 0;
	if (position + 1 >= last || !kind->need[position] || !kind->need[position + 1])
		return 0; /* what follows the request is not known */
	uint32_t next = kind->need[position] > kind->need[position + 1] ? kind->need[position]
									: kind->need[position + 1];
	uint32_t sms = next > LEAST_SMS ? next : LEAST_SMS;
	if (sms + WORTH_SMS > reserve)
		return 0;
	while (end < last && kind->need[end] && kind->need[end] <= next)
		end++;
	/* One position earlier, because LP sees a launch before the GPU runs it. */
	*for_ns = kind->left_ns[position] - kind->left_ns[end - 1];
	return *for_ns > 0 ? sms : 0;
}

void hb_spatial_kind_learn_gap(struct hb_spatial_kind *kind, int64_t gap_ns)
{
	int64_t *mean_ns = &kind->gap_mean_ns, most_ns = GAP_MOST * *mean_ns;
	most_ns = most_ns > PAUSE_LEAST_NS ? most_ns : PAUSE_LEAST_NS;
	bool first = kind->gaps < FIRST_GAPS;
	if (gap_ns < 0)
		gap_ns = 0;
	if (!kind->gaps || (first && gap_ns < *mean_ns >> SHORT_SHIFT))
		*mean_ns = gap_ns;
	else if (gap_ns > most_ns)
		gap_ns = most_ns;
	*mean_ns += (gap_ns - *mean_ns) >> GAP_SHIFT;
	if (*mean_ns < 1)
		*mean_ns = 1;
	kind->gaps += first;
}

uint32_t hb_spatial_kind_present_ppm(const struct hb_spatial_kind *kind)
{
	int64_t cycle_ns = kind->mean_alone_ns + kind->gap_mean_ns;
	if (!kind->mean_alone_ns || !kind->gap_mean_ns)
		return 0;
	return (uint32_t)((__int128)kind->mean_alone_ns * HB_SPATIAL_PPM / cycle_ns);
}
