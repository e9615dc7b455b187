/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share of a GPU's time that the operator guarantees to LP (`low_minimum: 20%`), by
 * time slices. For policies that set slices; the spatial engine keeps the minimum itself
 * (decide/spatial_least.h).
 *
 * How it is kept. Between two slices of LP, of length L, the n HP tenants have at most
 * one slice H each, and each change of context costs a switch S. So LP gets at least
 *
 *	L / (L + n H + (n + 1) S)
 *
 * of the time in which it wants the GPU, whatever HP does. hb_low_minimum_slices()
 * chooses L and H for which this is the minimum. HP pays for it: a request waits for a
 * slice of LP at first, and for another one after each H of its own work.
 *
 * When it is kept. While requests leave LP more than the minimum, these slices would
 * delay HP for nothing. A balance grows with the time in which no request was present,
 * and shrinks by the minimum; both over at most a second. LP gets its slices while the
 * balance is negative. The owner reports what LP gets then (event `progress`); if it does not,
 * LP counts as getting the minimum. So LP has its minimum in any period that is long
 * against a second, and without progress more of it: LP's slices also fill the gaps in
 * HP's requests.
 *
 * Example. 20 %, one HP tenant with an SLO of 40 ms: L = 2 ms, H = 7.62 ms, S = 0.19 ms.
 * HP has 76 % of the GPU while it is always present; a request of 10 ms takes up to 14.6.
 */
#ifndef HB_CORE_LOW_MINIMUM_H
#define HB_CORE_LOW_MINIMUM_H

#include "core/policy.h"

#define HB_LOW_MINIMUM_MOST_PPM 900000

struct hb_low_minimum_slices {
	int64_t low_ns, high_ns;
	uint32_t high_ppm; /* what all HP tenants keep while LP has its slices */
};

/* For n_high > 0 HP tenants, the strictest of which has this SLO (0 = none is known). */
void hb_low_minimum_slices(int64_t minimum_ppm, uint32_t n_high, int64_t slo_ns, int64_t switch_ns,
			   struct hb_low_minimum_slices *slices);
/* The longest that a request takes while LP has its slices, if it takes alone_ns alone. */
int64_t hb_low_minimum_latency_ns(const struct hb_low_minimum_slices *slices, uint32_t n_high, int64_t alone_ns,
				  int64_t switch_ns);

/* State of a policy that keeps the minimum, and of each of its HP tenants. All zeros at first. */
struct hb_low_minimum {
	int64_t balance_ns;
	int64_t counted_ns; /* end of the last interval */
	uint64_t work_ns;   /* LP's progress at that time */
	bool active;        /* LP has its slices */
};
struct hb_low_minimum_high {
	int64_t present_ns; /* time of ended requests that was not counted yet */
	int64_t covered_ns; /* requests count from here on: what was before has been counted */
};

/* A request of an HP tenant has ended. */
void hb_low_minimum_request(struct hb_low_minimum_high *high, const struct hb_request *request);
/*
 * Counts the interval since the last call; `high_of` finds the state of an HP tenant. Call it every
 * HB_DEFAULT_LOW_MINIMUM_EVERY_NS while there are tenants of both priorities. Returns whether `active` has changed.
 */
bool hb_low_minimum_count(struct hb_policy *policy, struct hb_low_minimum *minimum,
			  struct hb_low_minimum_high *(*high_of)(struct hb_policy *policy, uint32_t tenant));

/* Says what the minimum means for a tenant of the core; used in messages. */
struct hb_low_minimum_view {
	bool applies; /* HP with an SLO and a known latency alone */
	bool kept;    /* the SLO can be kept while LP has its slices */
	struct hb_low_minimum_slices slices;
	int64_t alone_ns, latency_ns;
};
void hb_low_minimum_look(const struct hb_core *core, uint32_t tenant, struct hb_low_minimum_view *view);

#endif
