/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard of one kind of request (spatial_kind.h): limits LP by the delay that it
 * caused such requests. HP's side of the spatial engine asks it (spatial_high.h).
 * Integers only, no clock.
 *
 * Requests are judged in batches of HB_SPATIAL_BATCH. Without an objective
 * (docs/decisions/0014), or where the objective leaves little slack, a batch *suffers*
 * if its excess is more than half of what it allowed (with the largest reserve: more
 * than twice); that is noted as soon as it is certain. With an objective a batch suffers as soon as two of its requests nearly
 * missed it because of LP (slo_budget.h), provided that the excess is too much also without
 * an objective. Tokens are judged by the mean of 16, so one such mean is enough.
 *
 *	no batch suffers for     LP may do more between requests, one step (`gaps`)
 *	`gaps_patience` requests
 *	a batch suffers          one step back (all of them if it suffers much); the next try
 *	                         after twice as many requests. Without a step to take back
 *	                         the reserve grows by a sixteenth of the GPU, up to half of it
 *	                         (behind a smaller mask a cluster may never start)
 *	a batch suffers, and     an allowance of 0 for HB_SPATIAL_PAUSE requests instead of a larger
 *	requests are served for  reserve: LP waits during requests, and is free of masks between them
 *	a smaller share of the   (docs/decisions/0044)
 *	time than the reserve
 *	has of the SMs
 *	a batch suffers with     the reserve no longer follows the next launches of a request
 *	the largest reserve      (spatial_kind.h). If it does not,
 *	                         an allowance of 0 for HB_SPATIAL_PAUSE requests, then the
 *	                         largest reserve again; twice as long each time, up to
 *	                         HB_SPATIAL_PAUSE_MOST
 *	below an eighth for      the reserve shrinks by a sixteenth, from HB_DEFAULT_RESERVE_PPM
 *	`patience` requests      to HB_DEFAULT_RESERVE_LEAST_PPM; if that was wrong, the next try
 *	                         comes after twice as many requests
 *
 * If nearly all requests of a batch were foreseen (spatial_high.h), `gaps_patience` counts
 * four times as fast: LP is masked before such requests, whatever it does between them.
 *
 * With an objective `patience` counts four times as fast, a batch is calm if no request
 * used half of its slack, and the reserve may shrink to one TPC.
 */
#ifndef HB_DECIDE_SPATIAL_GUARD_H
#define HB_DECIDE_SPATIAL_GUARD_H

#include "decide/slo_budget.h"
#include "decide/spatial.h"

#define HB_SPATIAL_BATCH 64
#define HB_SPATIAL_PATIENCE 256 /* requests; initial value */
#define HB_SPATIAL_PATIENCE_MOST 65536
#define HB_SPATIAL_PAUSE 256 /* requests; initial value */
#define HB_SPATIAL_PAUSE_MOST 4096

struct hb_spatial_guard {
	uint32_t sms;                   /* of the GPU */
	uint32_t reserve;               /* SMs to leave free */
	uint32_t judged;                /* requests in this batch so far */
	int64_t excess_ns;              /* sum of their excess */
	int64_t terms_ns;               /* sum of what they allowed */
	uint32_t in_zone[HB_SLO_ZONES]; /* with an objective: requests by zone; a mean of tokens counts as 16 */
	uint32_t foreseen;              /* number of them that were foreseen */
	uint32_t calm;                  /* requests since a batch had more than little excess */
	uint32_t well;                  /* requests since a batch suffered last */
	uint32_t patience;              /* calm requests needed before the reserve shrinks */
	bool follows;                   /* the reserve in force may follow what the next launches need */
	bool followed;                  /* it did, for some launches of this kind */
	bool tries;                     /* the reserve is smaller than one known to be enough */
	uint32_t gaps;                  /* steps of LP between requests: 0 .. HB_SPATIAL_GAPS_MOST */
	uint32_t gaps_calm;             /* requests since a batch suffered */
	uint32_t gaps_patience;         /* such requests needed before the next step */
	uint32_t gated;                 /* remaining requests with an allowance of 0 */
	uint32_t pause;                 /* length of the next such pause, in requests */
};

/* Describes what one request showed. */
struct hb_spatial_lesson {
	int64_t excess_ns, terms_ns; /* its delay by LP, and what it allowed */
	enum hb_slo_zone zone;       /* HB_SLO_NONE: no objective, or one that leaves little slack */
	uint32_t zone_requests;      /* 16 if the zone is that of the mean of 16 tokens, else 1 */
	bool foreseen;               /* it began when it was expected, so LP was masked before it began */
	uint32_t present_ppm;        /* share of the time in which requests of this kind are served; 0 = not known */
};

void hb_spatial_guard_init(struct hb_spatial_guard *guard, uint32_t sms);
/* Starts with what an earlier run learned. */
void hb_spatial_guard_set_learned(struct hb_spatial_guard *guard, uint32_t reserve, uint32_t gaps);
/* A request that LP could delay has ended. */
void hb_spatial_guard_note(struct hb_spatial_guard *guard, const struct hb_spatial_lesson *lesson);
/* Any request of the kind has ended. */
void hb_spatial_guard_pass(struct hb_spatial_guard *guard);
/* Requests of this kind return after others: forgets the back-off, keeps the reserve and the steps. */
void hb_spatial_guard_return(struct hb_spatial_guard *guard);
/* How far the limits are from the tightest: 0 with the largest reserve. */
uint32_t hb_spatial_guard_ease_ppm(const struct hb_spatial_guard *guard);
/* The reserve to publish. While the allowance is 0 a large one would only slow LP between requests. */
uint32_t hb_spatial_guard_reserve(const struct hb_spatial_guard *guard);

#endif
