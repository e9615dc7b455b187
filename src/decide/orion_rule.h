/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of Orion (Strati et al., EuroSys 2024): may this LP launch run beside
 * HP's work? One rule, two users: policy_orion.c, which asks for each launch in
 * the core (simulator, scenarios), and the shim's shim_orion.c, which asks in
 * LP's process. Pure; a baseline, not an engine of ours.
 */
#ifndef HB_CORE_ORION_RULE_H
#define HB_CORE_ORION_RULE_H

#include "core/core.h"

/* Until HP's time alone is known; and then, of that: Orion's own setting. */
#define HB_ORION_BUDGET_NS INT64_C(100000)
#define HB_ORION_BUDGET_PPM 25000

struct hb_orion_launch {
	uint32_t sms;        /* that it needs; 0 = not known */
	int64_t duration_ns; /* 0 = not known */
	enum hb_class class;
};

/* LP time that may go beside HP until HP is idle again. */
int64_t hb_orion_budget_ns(int64_t alone_ns);
/*
 * At most `limit_sms` SMs, within what is left of the budget, and of another kind than what HP runs (`high`; where one
 * of the two is not known they count as different). What is not known of size or duration waits.
 */
bool hb_orion_fits(const struct hb_orion_launch *launch, uint32_t limit_sms, int64_t left_ns, enum hb_class high);

#endif
