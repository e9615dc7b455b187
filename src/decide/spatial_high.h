/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HP's side of the spatial engine (spatial.h): learns how long a request still takes
 * without LP at each position (number of launches so far), publishes it in the beacon,
 * and measures the delay that LP causes.
 *
 * One struct for each HP process and GPU. One caller at a time. Fixed memory, integers
 * only.
 *
 *	hb_spatial_high_begin     before the request's first launch
 *	hb_spatial_high_launch    after each launch
 *	hb_spatial_high_wait      before the process waits for its results
 *	hb_spatial_high_end       when the wait is over
 *
 * Cost: begin and end some 100 ns; launch 2 ns, and one update of the beacon in
 * HB_SPATIAL_STRIDE launches.
 *
 * Time alone. Some requests allow LP nothing, to measure the time alone: the first
 * HB_SPATIAL_FIRST_CLOSED, and later HB_SPATIAL_CLOSED_RUN in a row of every
 * HB_SPATIAL_CLOSED_EVERY (also from the 16th, 32nd, 64th and 128th on, because the first
 * ones warm up). The first of a row does not count, because it still meets LP's work in
 * flight. The time alone is the lower quartile of the newest such times: slow ones are
 * the host's.
 *
 * Excess: the delay of a request caused by LP. A large part of a request's time belongs to
 * its process, and on a shared host that part changes by half from one second to the
 * next. A late GPU shows only where the process waits for it, between hb_spatial_high_wait
 * and _end.
 *
 *	alone, the process waits for less   excess = wait - wait alone
 *	than an eighth of its time
 *	else                                the same, but at most time - time alone: a
 *	                                    process that became faster waits longer for
 *	                                    the same work
 *	no wait was reported                excess = time - time alone
 *
 * LP's side learns its kernels' harm from the excess, this side its reserve, and the
 * policy its allowance. The allowance of the next request is published when one ends.
 *
 * Everything that is learned belongs to a kind of request (spatial_kind.h). Each kind has a
 * guard, which limits LP by the delay that it caused (spatial_guard.h), and with an SLO a
 * budget (slo_budget.h). The SLO of a service that makes tokens applies to their mean time
 * (token_pace.h). When the SLO changes, the guards forget their back-off.
 */
#ifndef HB_DECIDE_SPATIAL_HIGH_H
#define HB_DECIDE_SPATIAL_HIGH_H

#include "decide/spatial_kind.h"
#include "decide/token_pace.h"

#define HB_SPATIAL_CLOSED_EVERY 256
#define HB_SPATIAL_CLOSED_RUN 4
#define HB_SPATIAL_FIRST_CLOSED 8

/* Requests that followed each other at once, up to now. The next one may have waited for all of them. */
struct hb_spatial_queue {
	int64_t waited_ns, excess_ns; /* their time, and the part that LP caused */
	bool chained;                 /* the request followed another one */
};

/* What tokens beside LP without a limit show. If they take too long, LP has its limits for a pause. */
struct hb_spatial_free_tokens {
	int64_t mean_ns; /* of the last of them */
	uint32_t n;      /* since the last pause */
	uint32_t pause;  /* length of the last pause in requests, and what is left of it */
	uint32_t left;
};

struct hb_spatial_high {
	struct hb_spatial_beacon *beacon;
	int64_t slo_ns;         /* 0 = none */
	uint32_t allowance_ppm; /* delay that LP may cause, in ppm of the time alone; 0 = LP waits. Set by the caller */
	/* the request */
	int64_t begin_ns, last_end_ns;
	int64_t wait_since_ns; /* -1 = the process does not wait */
	uint32_t launches, position;
	bool serving, closed;
	bool own_deadline;                       /* the application named the deadline of this request */
	bool free;                               /* LP may delay this token without a limit (HB_SPATIAL_ALLOW_ALL) */
	bool was_closed, was_free;               /* `closed` and `free` of the request before */
	bool foreseen;                           /* the request began when one was expected */
	int64_t expect_from_ns, expect_until_ns; /* the next request is expected between these times */
	int64_t passed_ns[HB_SPATIAL_POSITIONS]; /* when this request reached each position */
	uint16_t need
		[HB_SPATIAL_POSITIONS]; /* most SMs that one of its launches fills, at each position; 0 = not known */
	/* learned */
	struct hb_spatial_queue queue;
	struct hb_token_pace pace;
	struct hb_token_times tokens; /* means of the last tokens, unless of_tokens is HB_PACE_NONE */
	enum hb_pace of_tokens;
	struct hb_spatial_free_tokens free_tokens;
	uint32_t n_overdrawn; /* tokens since the credit is so far below 0 that LP waits */
	uint32_t requests;
	uint32_t new_left; /* requests that may still be closed because their kind is new */
	struct hb_spatial_kinds kinds;
	int64_t alone_ns; /* mean time alone of the last requests of the last kind; 0 = not known */
	int64_t harm_ns;  /* delay of the last request caused by LP; -1 = not known */
};

/* Starts without knowledge. The beacon may be NULL: then nothing is published. */
void hb_spatial_high_init(struct hb_spatial_high *high, struct hb_spatial_beacon *beacon, uint32_t sms);
/* Publishes the state between requests in a new beacon. */
void hb_spatial_high_tell(struct hb_spatial_high *high);
/* Starts with what an earlier run of the same service learned: SMs in reserve and steps between requests. */
void hb_spatial_high_set_learned(struct hb_spatial_high *high, uint32_t reserve_sms, uint32_t gaps);
/* 0 = no SLO: then only the allowance limits LP. Before each request. */
void hb_spatial_high_set_slo(struct hb_spatial_high *high, int64_t slo_ns);
/*
 * deadline_ns is absolute; 0 = by the SLO, and by the credit of tokens. Does nothing while a request is served (requests at
 * the same time count as one).
 */
void hb_spatial_high_begin(struct hb_spatial_high *high, int64_t now_ns, int64_t deadline_ns);
/* The next request is expected to begin between these times; until_ns 0 = none is. */
void hb_spatial_high_expect(struct hb_spatial_high *high, int64_t from_ns, int64_t until_ns);
/* Before hb_spatial_high_launch() or _count(): SMs that the launch fills; 0 = not known, so the whole reserve is left free. */
void hb_spatial_high_need(struct hb_spatial_high *high, uint32_t sms);
void hb_spatial_high_launch(struct hb_spatial_high *high, int64_t now_ns);
/* hb_spatial_high_launch() in two steps, which saves reading the clock: true = a position is reached, so call _pass(). */
bool hb_spatial_high_count(struct hb_spatial_high *high);
void hb_spatial_high_pass(struct hb_spatial_high *high, int64_t now_ns);
/* The process waits for its work from now on. A later launch cancels this. */
void hb_spatial_high_wait(struct hb_spatial_high *high, int64_t now_ns);
void hb_spatial_high_end(struct hb_spatial_high *high, int64_t now_ns);
/* Time left of the request without LP; 0 = not known, or no request is served. */
int64_t hb_spatial_high_left_ns(const struct hb_spatial_high *high);
/* Delay of the last request caused by LP, 0 or more; -1 = not known. */
int64_t hb_spatial_high_harm_ns(const struct hb_spatial_high *high);
/* Kind of the last request (hb_spatial_kind_class). */
uint32_t hb_spatial_high_kind(const struct hb_spatial_high *high);

#endif
