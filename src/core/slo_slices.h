/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time slices that let LP use the slack of HP's objective. For policies that set slices;
 * the spatial engine uses the slack by masks (decide/slo_budget.h). Pure.
 *
 * An objective D leaves a request that takes the time A without LP the slack D - A, if
 * that is at least an eighth of A. LP gets a share of 7/8 of the slack:
 *
 *	HP's slice  H = A, at least 1 ms
 *	LP's slice  L = share (D - A) 7/8 - 2 S      S: a context switch, 0.19 ms
 *
 * Below L = 0.5 ms the slack is not used: LP has its smallest slices (1 us), as without an
 * objective. A request without gaps waits for at most one slice of LP: before it begins, or,
 * if requests follow each other without a pause, once in H of HP's work. So it ends within A + L + 2 S. LP gets
 * L / (L + H + 2 S) of the time in which a request is present (has begun and not ended).
 * Example. A token takes 2.4 ms. With D = 8 ms L is at most 4.5 ms. While the credit is open LP then has
 * up to 62 % of a GPU on which a token is always being made. With D = 4.8 ms: 1.7 ms, 38 %.
 *
 * Tokens (decide/token_pace.h): the share is 1 while their credit is open, and else 0 (decide/token_credit.h). A step of
 * a language model that also reads a prompt takes longer than A, and several slices of LP make it late. The next tokens
 * then make up for it.
 *
 * Other requests: an eager request has gaps, and may wait for LP in each. So the share is not computed but
 * found. It begins at a sixteenth. After a batch of 64 requests of which none came near
 * the objective (the last eighth of the slack) it grows by a sixteenth. When two of a batch
 * are near or miss the objective it is halved, and twice as many batches as before (at
 * most 64) without a near request must pass before it grows again.
 *
 * A is the second longest of 64 requests while LP has the smallest slices, so it contains
 * a switch. It is learned again after 4096 requests. For tokens A is the shortest sliding mean of 16
 * tokens, over 64 tokens: while many prompts are read a token takes several times as long as usual, which says nothing
 * about the slack of the others. If A leaves no slack, it is learned again at once.
 *
 * Requests that wait in the application are not seen. Half of the time since a chain of
 * requests began (decide/request_chain.h) is added to a request's time. The share is also
 * halved if requests are present for more than 70 % of the time, because queues grow fast
 * then. Neither rule applies to tokens.
 *
 * Bad at: a service with requests of very different length that are not tokens, because the long ones decide;
 * a service whose requests (no tokens) are present for more than 70 % of the time with
 * LP's slices, because its slack stays unused.
 */
#ifndef HB_CORE_SLO_SLICES_H
#define HB_CORE_SLO_SLICES_H

#include "core/tenant.h"

/* State of an HP tenant. All zeros at first. */
struct hb_slo_slices {
	int64_t slo_ns;                /* the objective of the last request */
	bool paced;                    /* the last time was a mean of tokens */
	bool credit_open;              /* of tokens (decide/token_credit.h) */
	bool learned;                  /* alone_ns is known, and LP may use the slack */
	int64_t alone_ns;              /* A; 0 = not known */
	int64_t longest_ns, second_ns; /* while alone_ns is learned */
	int64_t shortest_ns;           /* while alone_ns is learned */
	uint32_t seen;                 /* requests since alone_ns was learned, or since learning began */
	uint32_t in_batch, near;       /* requests of this batch; those near the objective or beyond it */
	int64_t present_ns, batch_ns;  /* time of the requests of this batch; when it began */
	uint32_t share;                /* of the slack, in sixteenths; not for tokens */
	uint32_t calm, patience;       /* batches since the share changed; those needed until it grows, 0 at first */
	int64_t ended_ns, chain_ns;    /* end of the last request; begin of the chain that it belongs to */
	uint32_t chained_ppm, of;      /* share of requests in chains, and of how many; smoothed from 128 on */
};

/* A request of a tenant with this objective (0 = none) has ended. True: the slices may have changed. */
bool hb_slo_slices_note(struct hb_slo_slices *slices, int64_t slo_ns, const struct hb_request *request);
/* The slices to set. False: there is no slack to use. */
bool hb_slo_slices_get(const struct hb_slo_slices *slices, int64_t slo_ns, int64_t switch_ns, int64_t *low_ns,
		       int64_t *high_ns);

#endif
