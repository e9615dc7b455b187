/* SPDX-License-Identifier: Apache-2.0 */
/* See token_pace.h. */
#include "decide/token_pace.h"

#include "decide/request_chain.h"

/* The best pace rises by this part of the difference in each window. */
#define BEST_SHIFT 6

static struct hb_token_times mean_of(const struct hb_token_pace *pace)
{
	struct hb_token_times sum = {0};
	for (uint32_t i = 0; i < HB_PACE_TOKENS; i++) {
		sum.took_ns += pace->last[i].took_ns / HB_PACE_TOKENS;
		sum.alone_ns += pace->last[i].alone_ns / HB_PACE_TOKENS;
		sum.excess_ns += pace->last[i].excess_ns / HB_PACE_TOKENS;
	}
	return sum;
}

static void learn_best(struct hb_token_pace *pace, const struct hb_token_times *mean)
{
	int64_t own_ns = mean->took_ns - mean->excess_ns, more_ns = own_ns - pace->best_ns;
	pace->best_ns += pace->best_ns && more_ns > 0 ? more_ns >> BEST_SHIFT : more_ns;
}

enum hb_pace hb_token_pace_note(struct hb_token_pace *pace, int64_t slo_ns, int64_t begin_ns, int64_t end_ns,
				struct hb_token_times *times)
{
	int64_t gap_ns = begin_ns - pace->ended_ns;
	bool chained = pace->ended_ns && gap_ns < HB_PACE_GAP_NS;
	pace->of += pace->of < HB_CHAIN_OF;
	hb_chain_learn(&pace->chained_ppm, chained, pace->of);
	pace->ended_ns = end_ns;
	uint32_t least_ppm = pace->tokens ? HB_CHAIN_PPM / 4 * 3 : HB_CHAIN_PPM / 8 * 7;
	pace->tokens = pace->chained_ppm >= least_ppm;
	if (!pace->tokens) {
		pace->n = 0;
		pace->best_ns = 0;
		pace->credit = (struct hb_token_credit){0};
		return HB_PACE_NONE;
	}
	struct hb_token_times *own = &pace->last[pace->n++ % HB_PACE_TOKENS];
	*own = *times;
	if (chained && gap_ns > 0) {
		own->took_ns += gap_ns;
		own->alone_ns += gap_ns;
	}
	if (pace->n < HB_PACE_TOKENS)
		return HB_PACE_NONE;
	struct hb_token_times mean = mean_of(pace);
	if (pace->n == 2 * HB_PACE_TOKENS)
		pace->n = HB_PACE_TOKENS;
	if (pace->n == HB_PACE_TOKENS)
		learn_best(pace, &mean);
	if (slo_ns && pace->best_ns > slo_ns) {
		pace->credit = (struct hb_token_credit){0};
		return HB_PACE_NONE;
	}
	if (slo_ns)
		hb_token_credit_note(&pace->credit, slo_ns, own->took_ns, pace->credit_slos ? pace->credit_slos : 1);
	*times = mean;
	return pace->n == HB_PACE_TOKENS ? HB_PACE_WINDOW : HB_PACE_BETWEEN;
}

int64_t hb_token_pace_last_ns(const struct hb_token_pace *pace)
{
	return pace->last[(pace->n - 1) % HB_PACE_TOKENS].took_ns;
}
