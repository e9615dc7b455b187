/* SPDX-License-Identifier: Apache-2.0 */
/* See slo_budget.h. */
#include "decide/slo_budget.h"

/* A budget needs a slack of an eighth of the time alone; the margin is an eighth of the slack. */
#define WORTH_SHIFT 3
#define MARGIN_SHIFT 3
#define HALF_SHIFT 1

int64_t hb_slo_budget_ns(int64_t slo_ns, int64_t alone_ns)
{
	if (slo_ns <= 0 || alone_ns <= 0 || slo_ns - alone_ns < alone_ns >> WORTH_SHIFT)
		return 0;
	return slo_ns - alone_ns;
}

int64_t hb_slo_budget_terms_ns(int64_t slo_ns, int64_t alone_ns)
{
	return hb_slo_budget_ns(slo_ns, alone_ns) >> HALF_SHIFT;
}

/* The request took longer than the bound, and would not have without LP. */
static bool is_over(int64_t bound_ns, int64_t took_ns, int64_t excess_ns)
{
	return took_ns > bound_ns && took_ns - excess_ns <= bound_ns;
}

enum hb_slo_zone hb_slo_budget_zone(int64_t slo_ns, int64_t alone_ns, int64_t took_ns, int64_t excess_ns)
{
	int64_t slack_ns = hb_slo_budget_ns(slo_ns, alone_ns);
	if (!slack_ns)
		return HB_SLO_NONE;
	if (is_over(slo_ns, took_ns, excess_ns))
		return HB_SLO_MISSED;
	if (is_over(slo_ns - (slack_ns >> MARGIN_SHIFT), took_ns, excess_ns))
		return HB_SLO_NEAR;
	/* Late also without LP, which says nothing about a request that is not. */
	bool late = took_ns > slo_ns - (slack_ns >> HALF_SHIFT);
	return late && excess_ns > slack_ns >> MARGIN_SHIFT ? HB_SLO_MIDDLE : HB_SLO_CALM;
}
