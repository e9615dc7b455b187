/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An objective is a budget: a request with an SLO may be delayed by LP as long as it
 * meets the SLO with a margin. Used by HP's side of the spatial engine. Pure.
 *
 * The slack of a kind of request is its SLO minus its time alone. Where it is at least an
 * eighth of the time alone, LP may use half of it for launches that have a price, and
 * the guard (spatial_guard.h) judges requests by how much of the slack LP used up, besides
 * the rule without an objective:
 *
 *	zone      time of the request             what the guard concludes
 *	calm      within 1/2 of the slack, or     a batch of these: LP may do more
 *	          LP used less than 1/8 of it
 *	middle    within 7/8                      nothing changes
 *	near      within the SLO                  two in a batch: LP has to do less
 *	missed    over it                         two in a batch: much less, at once
 *
 * A request counts as near or missed only if LP's delay made it so. Therefore
 * limits tighten on requests that nearly miss, before the share that may miss is used up:
 * one request in 64 in each batch where the limits are right. The next try comes after
 * twice as many requests each time.
 *
 * For tokens the mean of 16 is judged (token_pace.h). It counts as 16 requests.
 *
 * Example. A request takes 5.8 ms alone, the SLO is 7.3 ms: the slack is 1.5 ms. LP's masks
 * shrink until two of 64 requests take more than 7.1 ms because of LP, then grow by a step.
 *
 * Bad at: requests that queue in the application. Their wait is not in the time that the
 * shim sees; an SLO that includes it leaves more slack than there is (docs/spatial.md).
 */
#ifndef HB_DECIDE_SLO_BUDGET_H
#define HB_DECIDE_SLO_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum hb_slo_zone { HB_SLO_NONE, HB_SLO_CALM, HB_SLO_MIDDLE, HB_SLO_NEAR, HB_SLO_MISSED, HB_SLO_ZONES };

/* The slack if it is worth a budget; else 0. slo_ns 0 = no objective; alone_ns 0 = not known. */
int64_t hb_slo_budget_ns(int64_t slo_ns, int64_t alone_ns);
/* The delay that LP may cause a request, for launches that have a price. */
int64_t hb_slo_budget_terms_ns(int64_t slo_ns, int64_t alone_ns);
/* The zone of a request that took took_ns, of which LP caused excess_ns. */
enum hb_slo_zone hb_slo_budget_zone(int64_t slo_ns, int64_t alone_ns, int64_t took_ns, int64_t excess_ns);

#endif
