/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HP's side of slack (spatial.h): learns how long a request still takes, alone,
 * from each position in it (ordinal of the launch), tells LP by its beacon, and
 * measures what LP costs it.
 *
 * One struct a HP process and GPU; one caller at a time (the launching thread,
 * or under the lock of whoever marks requests). Fixed memory, integers only.
 *
 *	hb_spatial_high_begin     before the request's first launch
 *	hb_spatial_high_launch    after each launch, or each few
 *	hb_spatial_high_wait      before it waits for its results
 *	hb_spatial_high_end       when its results were waited for
 *
 * Cost: begin and end some 100 ns; launch 2 ns, and one published update in
 * HB_SPATIAL_STRIDE launches.
 *
 * Closed windows. The first HB_SPATIAL_FIRST_CLOSED requests, and later
 * HB_SPATIAL_CLOSED_RUN in a row of HB_SPATIAL_CLOSED_EVERY (from the 16th, 32nd, 64th and
 * 128th on, too, for the first ones warm up), allow LP nothing: how long such a request
 * takes is the time alone, but for the first of a row, which still meets what LP had in
 * flight. Of the newest such times the lower quartile counts: slow ones are the host's.
 * What others take beyond it is LP's harm (`excess_ns`), by which LP's side learns
 * prices, this side its reserve, and policy_slack its terms. What the next request
 * allows is told when one ends.
 *
 * Excess. A request's time is its process's as much as the GPU's, and on a shared
 * host that part changes by half from one second to the next. Of LP only what the
 * GPU is late for counts, and that shows where the process waits for it, between
 * hb_spatial_high_wait and end: one that launches more slowly than the GPU works waits
 * for the last few kernels only, however long it took to launch them.
 *	waits alone less than an   excess = wait - wait alone
 *	eighth of its time
 *	else                       the same, but no more than time - time alone: where the
 *	                           process has become faster it waits longer for the same
 *	told of no wait            excess = time - time alone
 *
 * Guard. What LP may do beside requests follows what it has cost them. Requests are
 * judged in batches of HB_SPATIAL_BATCH; a batch whose excess in all is more than half
 * of the terms says that HP suffers, as soon as that is certain.
 *	no batch suffers for    LP may do more between requests, in steps (HB_SPATIAL_GAPS_SHIFT)
 *	`gaps_patience`
 *	suffers                 a step back there (all of them where it suffers much), and the next try after twice as many; where there
 *	                        is none to take back the reserve grows by a sixteenth of the GPU, up
 *	                        to half of it (a mask that leaves less may never start a cluster)
 *	even with the largest   plain gating for HB_SPATIAL_PAUSE requests, then the largest again;
 *	                        twice as long each time until it went well for long
 *	below an eighth of the  the reserve shrinks by a sixteenth, from HB_DEFAULT_RESERVE_PPM at first to
 *	terms for `patience`    HB_DEFAULT_RESERVE_LEAST_PPM; where that was wrong, the next try after twice as many
 * This needs no SLO: it is the promise that holds without one (docs/decisions/0014).
 */
#ifndef HB_CORE_SLACK_HIGH_H
#define HB_CORE_SLACK_HIGH_H

#include "decide/spatial.h"

#define HB_SPATIAL_STRIDE 16     /* launches of one position */
#define HB_SPATIAL_POSITIONS 128 /* later launches share the last one */
#define HB_SPATIAL_LENGTHS 64    /* requests are told apart by their number of launches */
#define HB_SPATIAL_CLOSED_EVERY 256
#define HB_SPATIAL_CLOSED_RUN 4
#define HB_SPATIAL_FIRST_CLOSED 8
#define HB_SPATIAL_SAMPLES 8
#define HB_SPATIAL_BATCH 64
#define HB_SPATIAL_PATIENCE 256 /* requests; at first */
#define HB_SPATIAL_PAUSE 256    /* the same */

/* Requests of about the same number of launches. */
struct hb_spatial_length {
	uint32_t launches; /* 0 = unused */
	uint32_t used;     /* last, by request number */
	uint32_t closed;   /* samples so far */
	int64_t alone_ns;  /* lower quartile of the newest HB_SPATIAL_SAMPLES in closed windows */
	int64_t wait_ns;   /* the same of what it waits of that */
	int64_t all_of_ns[HB_SPATIAL_SAMPLES], wait_of_ns[HB_SPATIAL_SAMPLES];
};

struct hb_spatial_guard {
	uint32_t reserve;       /* SMs, while LP is not gated */
	uint32_t judged;        /* requests of this batch */
	int64_t excess_ns;      /* theirs, in all */
	int64_t terms_ns;       /* what they allowed, in all */
	uint32_t calm;          /* requests of the batches in a row that cost HP little */
	uint32_t well;          /* requests since the last gating, or since HP suffered last */
	uint32_t patience;      /* so many calm ones before the reserve shrinks */
	bool tries;             /* the reserve is smaller than one that was enough */
	uint32_t gaps;          /* what LP may do between requests: 0 .. HB_SPATIAL_GAPS_MOST */
	uint32_t gaps_calm;     /* requests of the batches in a row that did not suffer */
	uint32_t gaps_patience; /* so many before that is tried */
	uint32_t gated;         /* requests more that allow nothing */
	uint32_t pause;         /* so many, the next time */
};

struct hb_spatial_high {
	struct hb_spatial_beacon *beacon;
	int64_t slo_ns; /* 0 = none */
	uint32_t sms;
	/* the request */
	int64_t begin_ns, last_end_ns, deadline_ns;
	int64_t wait_since_ns; /* -1 = it does not wait */
	uint32_t launches, position;
	bool serving, closed;
	bool was_closed;                         /* the request before */
	int64_t passed_ns[HB_SPATIAL_POSITIONS]; /* when each position was reached; of this request */
	/* learned */
	uint32_t requests;
	int64_t left_ns[HB_SPATIAL_POSITIONS]; /* nine of ten requests take no longer from there; 0 = not known */
	struct hb_spatial_length lengths[HB_SPATIAL_LENGTHS];
	int64_t alone_ns; /* of the last requests, the mean of their lengths' */
	int64_t gap_mean_ns;
	int64_t harm_ns; /* of the last request; -1 = not known */
	struct hb_spatial_guard guard;
};

/* Not serving, nothing known; the beacon may be NULL: then it learns but tells nobody. */
void hb_spatial_high_init(struct hb_spatial_high *high, struct hb_spatial_beacon *beacon, uint32_t sms);
/* The beacon is another one than before: what stands there between requests. */
void hb_spatial_high_tell(struct hb_spatial_high *high);
/* Starts with what an earlier run of the same service learned: SMs in reserve and steps between requests. */
void hb_spatial_high_set_learned(struct hb_spatial_high *high, uint32_t reserve_sms, uint32_t gaps);
/* 0 = none: then only the terms bound LP. */
void hb_spatial_high_set_slo(struct hb_spatial_high *high, int64_t slo_ns);
/* A sign that a request will begin before until_ns (0 takes it back): LP starts nothing long meanwhile. */
void hb_spatial_high_expect(struct hb_spatial_high *high, int64_t until_ns);
/* deadline_ns 0 = now + SLO. While one is being served: does nothing (several at once count as one). */
void hb_spatial_high_begin(struct hb_spatial_high *high, int64_t now_ns, int64_t deadline_ns);
void hb_spatial_high_launch(struct hb_spatial_high *high, int64_t now_ns);
/* The same in two steps, for who has to pay for looking at a clock: true = a position is reached, tell when. */
bool hb_spatial_high_count(struct hb_spatial_high *high);
void hb_spatial_high_pass(struct hb_spatial_high *high, int64_t now_ns);
/* From now on it waits for what it has launched, unless it does already; a launch after that takes it back. */
void hb_spatial_high_wait(struct hb_spatial_high *high, int64_t now_ns);
void hb_spatial_high_end(struct hb_spatial_high *high, int64_t now_ns);
/* What the request still takes, alone; 0 = not known, or none is being served. */
int64_t hb_spatial_high_left_ns(const struct hb_spatial_high *high);
/* What LP cost the last request, 0 or more; -1 = not known. */
int64_t hb_spatial_high_harm_ns(const struct hb_spatial_high *high);

#endif
