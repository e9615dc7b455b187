/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of requests. A request that begins within 1 ms of the end of the one before is in a chain. Either it was caused by
 * the one before, as tokens are, or it waited for it in the application, where nobody sees it; on average for half of the
 * time since the chain began. A service of which seven of eight requests are in chains makes tokens: no service that meets
 * an objective has such a queue. Whether an objective applies to a mean of tokens is decided by token_pace.h, with gaps of
 * up to 3 ms.
 */
#ifndef HB_DECIDE_REQUEST_CHAIN_H
#define HB_DECIDE_REQUEST_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#define HB_CHAIN_GAP_NS INT64_C(1000000)
#define HB_CHAIN_PPM 1000000
/* Requests that the share of chained ones is a mean of, so that bursts do not look like tokens. */
#define HB_CHAIN_OF 128

static inline bool hb_chain_follows(int64_t gap_ns)
{
	return gap_ns < HB_CHAIN_GAP_NS;
}

/* Adds a request to the share of chained ones, with a weight of 1 / of. */
static inline void hb_chain_learn(uint32_t *share_ppm, bool chained, uint32_t of)
{
	int32_t more_ppm = (chained ? HB_CHAIN_PPM : 0) - (int32_t)*share_ppm;
	*share_ppm = (uint32_t)((int32_t)*share_ppm + more_ppm / (int32_t)of);
}

/* Whether requests may have waited for those before them: they are not tokens. */
static inline bool hb_chain_may_wait(uint32_t share_ppm)
{
	return share_ppm < HB_CHAIN_PPM / 8 * 7;
}

#endif
