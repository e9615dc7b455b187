/* SPDX-License-Identifier: Apache-2.0 */
/* See foresight_share.h. */
#include "decide/foresight_share.h"

#include "decide/defaults.h"

bool hb_foresight_share_is_due(const struct hb_foresight_share *share, int64_t now_ns)
{
	return now_ns >= share->again_ns;
}

/* A change counts from when it is noticed; when it happened is not known. */
static bool was_active(struct hb_foresight_share *share, uint32_t i, uint64_t activity, int64_t now_ns)
{
	if (activity && activity != share->activity[i])
		share->active_ns[i] = now_ns;
	share->activity[i] = activity;
	return activity && share->active_ns[i] && now_ns - share->active_ns[i] <= HB_FORESIGHT_AWAY_NS;
}

static void set_rate(const struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns)
{
	uint32_t ppm = HB_DEFAULT_TAKEOVER_BUDGET_PPM / (share->other_processes + 1) / (share->other_tenants + 1);
	hb_foresight_set_budget(foresight, now_ns, share->unnoticed ? 0 : ppm);
}

void hb_foresight_share_look(struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns,
			     const uint64_t *activity, uint32_t n, uint32_t self)
{
	bool away = !share->looked_ns || now_ns - share->looked_ns >= HB_FORESIGHT_AWAY_NS;
	share->other_processes = 0;
	for (uint32_t i = 0; i < n && i < HB_FORESIGHT_SHARERS; i++)
		if (i != self)
			share->other_processes += was_active(share, i, activity[i], now_ns);
	share->looked_ns = now_ns;
	share->again_ns = now_ns + HB_FORESIGHT_SHARE_EVERY_NS;
	share->unnoticed = away && share->other_processes;
	if (share->unnoticed) { /* the time until now was the others' */
		foresight->budget->begun = true;
		foresight->budget->since_ns = now_ns;
	}
	set_rate(share, foresight, now_ns);
}

void hb_foresight_share_tenants(struct hb_foresight_share *share, struct hb_foresight *foresight, int64_t now_ns,
				uint32_t others)
{
	share->other_tenants = others;
	set_rate(share, foresight, now_ns);
}
