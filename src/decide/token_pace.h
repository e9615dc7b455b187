/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pace of a service that makes tokens: the mean time of its last HB_PACE_TOKENS
 * requests. Pure; fixed memory; one caller at a time.
 *
 * A language model makes one token for each running text in every step, and a step that
 * also reads a part of a prompt takes several times as long as the others. The user of
 * such a service sees the mean time per token. So an objective applies to the pace there,
 * and not to each step: otherwise the long steps miss it also without LP, and no slack is
 * found (docs/decisions/0035).
 *
 * A service makes tokens from the moment when seven of eight requests begin within
 * HB_PACE_GAP_NS of the end of the one before, until fewer than three of four do. The time
 * of such a request counts from the end of the one before. Other services reach seven of
 * eight at about 450 requests/s with requests present for half of the time, or with fewer
 * requests at fixed intervals. Many of these are recognised by their objective: it is shorter
 * than the best pace of the service, so it is meant for single requests.
 *
 * Example. Steps take 1.4 ms, one in eight 10 ms. The objective is 6 ms. The pace is
 * 2.5 ms alone, so LP may make the mean 2.4 times as long; with the margin of a sixteenth (token_credit.h), 2.25 times.
 *
 * Bad at: services with more than 450 requests/s that make no tokens, because the
 * objective then applies to the mean of 16 of them; short texts. A text of four tokens, of which two fell on long steps, is slower than
 * the pace.
 */
#ifndef HB_DECIDE_TOKEN_PACE_H
#define HB_DECIDE_TOKEN_PACE_H

#include "decide/token_credit.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_PACE_TOKENS 16
/* Servers written in Python take 0.3 to 3 ms between two steps, on shared processors. */
#define HB_PACE_GAP_NS INT64_C(3000000)

/* The times of a request in ns, or their means. */
struct hb_token_times {
	int64_t took_ns;
	int64_t alone_ns;  /* without LP */
	int64_t excess_ns; /* caused by LP */
};

enum hb_pace {
	HB_PACE_NONE, /* judge the request by its own times: no tokens, less than 16 of them, or an SLO below their pace */
	HB_PACE_BETWEEN, /* do not judge this request; the next window of HB_PACE_TOKENS has not ended */
	HB_PACE_WINDOW,  /* judge the means */
};

/* All zeros at first; then the caller may set credit_slos. */
struct hb_token_pace {
	struct hb_token_times last[HB_PACE_TOKENS];
	uint32_t n;           /* requests since the service has made tokens */
	uint32_t of;          /* requests that chained_ppm is a mean of; at most HB_CHAIN_OF */
	uint32_t chained_ppm; /* share of requests that followed the one before */
	bool tokens;
	int64_t best_ns;      /* least mean of a window without LP's part; rises slowly; 0 = not known */
	int64_t ended_ns;     /* end of the last request; 0 = there was none */
	uint32_t credit_slos; /* most credit, in SLOs; 0 counts as 1 */
	struct hb_token_credit
		credit; /* while the service makes tokens and has an objective that is not shorter than its pace */
};

/*
 * A request with this objective (0 = none) has ended. `times` are its own, from begin_ns to end_ns. If the service makes tokens, `times` become the means
 * of the last HB_PACE_TOKENS requests. One of HB_PACE_TOKENS requests ends a window: one long step would otherwise count as
 * 16 misses.
 */
enum hb_pace hb_token_pace_note(struct hb_token_pace *pace, int64_t slo_ns, int64_t begin_ns, int64_t end_ns,
				struct hb_token_times *times);
/* The time of the last token, from the end of the one before. Only if hb_token_pace_note() did not return HB_PACE_NONE. */
int64_t hb_token_pace_last_ns(const struct hb_token_pace *pace);

#endif
