/* SPDX-License-Identifier: Apache-2.0 */
/* See token_credit.h. */
#include "decide/token_credit.h"

#include "decide/token_pace.h"

static int64_t share_of(int64_t slo_ns)
{
	return slo_ns - slo_ns / 16;
}

int64_t hb_token_credit_most_ns(const struct hb_token_credit *credit, int64_t slo_ns)
{
	return share_of(slo_ns) + credit->credit_ns;
}

void hb_token_credit_note(struct hb_token_credit *credit, int64_t slo_ns, int64_t took_ns, uint32_t most_slos)
{
	int64_t least_ns = -HB_PACE_TOKENS * slo_ns, most_ns = most_slos * slo_ns;
	credit->credit_ns += share_of(slo_ns) - took_ns;
	if (credit->credit_ns > most_ns)
		credit->credit_ns = most_ns;
	else if (credit->credit_ns < least_ns)
		credit->credit_ns = least_ns;
	credit->is_open = credit->credit_ns > (credit->is_open ? slo_ns / 2 : slo_ns / 4 * 3);
}
