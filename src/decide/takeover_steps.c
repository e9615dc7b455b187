/* SPDX-License-Identifier: Apache-2.0 */
/* See takeover_steps.h. */
#include "decide/takeover_steps.h"

#include "decide/defaults.h"

/* While the GPU is held the thread checks this often whether a call waits for the takeover kernels. */
#define CHECK_NS INT64_C(100000)
/* While a context cannot be prepared yet. */
#define RETRY_NS INT64_C(100000000)

struct hb_takeover_change hb_takeover_compare(const struct hb_takeover_plan *before,
					      const struct hb_takeover_plan *after)
{
	struct hb_takeover_change change = {.release = after->until_ns == 0, .call_for_ns = after->next_ns};
	bool begins = after->since_ns != before->since_ns || before->until_ns == 0;
	if (!change.release && begins && after->since_ns < change.call_for_ns)
		change.call_for_ns = after->since_ns;
	return change;
}

enum hb_takeover_step hb_takeover_next_step(const struct hb_takeover_plan *plan, int64_t now_ns, bool acted,
					    bool lingering, bool doubtful)
{
	if (plan->until_ns > now_ns && !acted)
		return HB_TAKEOVER_TAKE;
	/* After a launch has ended the plan, lingering decides when to let the GPU go. */
	if ((plan->until_ns <= now_ns && !lingering) || doubtful)
		return HB_TAKEOVER_LET_GO;
	return HB_TAKEOVER_LEAVE;
}

int64_t hb_takeover_wake_ns(const struct hb_takeover_plan *plan, int64_t now_ns, bool held, bool prepared)
{
	int64_t next_ns = plan->next_ns;
	int64_t check_ns = held ? now_ns + CHECK_NS : prepared ? INT64_MAX : now_ns + RETRY_NS;
	if (plan->until_ns > now_ns && plan->until_ns < next_ns)
		next_ns = plan->until_ns;
	return check_ns < next_ns ? check_ns : next_ns;
}

bool hb_takeover_wakes_exactly(const struct hb_takeover_plan *plan, int64_t wake_ns)
{
	return plan->until_ns == 0 && wake_ns == plan->next_ns;
}

void hb_takeover_note_begin(struct hb_takeover_apart *apart, bool non_blocking, int64_t now_ns)
{
	int64_t none_ns = 0;
	if (non_blocking)
		atomic_store(&apart->blocking_since_ns, 0);
	else
		atomic_compare_exchange_strong(&apart->blocking_since_ns, &none_ns, now_ns);
	atomic_store(&apart->known, true);
}

enum hb_takeover_where hb_takeover_choose_where(const struct hb_takeover_apart *apart, int64_t now_ns)
{
	int64_t since_ns = atomic_load(&apart->blocking_since_ns);
	if (!atomic_load(&apart->known))
		return HB_TAKEOVER_NOWHERE;
	if (!since_ns)
		return HB_TAKEOVER_ON_LEGACY;
	return now_ns - since_ns >= HB_DEFAULT_TAKEOVER_STEADY_NS ? HB_TAKEOVER_ON_OWN : HB_TAKEOVER_NOWHERE;
}

enum hb_takeover_note hb_takeover_linger_note(struct hb_takeover_linger *linger, int64_t now_ns)
{
	int64_t first_ns = 0;
	bool first = atomic_compare_exchange_strong(&linger->first_ns, &first_ns, now_ns);
	if (!first && now_ns - first_ns > HB_DEFAULT_TAKEOVER_LINGER_MOST_NS)
		return HB_TAKEOVER_NOT_RENEWED;
	atomic_store(&linger->last_ns, now_ns);
	return first ? HB_TAKEOVER_FIRST_RENEWED : HB_TAKEOVER_RENEWED;
}

bool hb_takeover_linger_runs(const struct hb_takeover_linger *linger, int64_t now_ns)
{
	int64_t last_ns = atomic_load(&linger->last_ns);
	return last_ns && now_ns - last_ns < HB_DEFAULT_TAKEOVER_LINGER_NS;
}

void hb_takeover_linger_reset(struct hb_takeover_linger *linger)
{
	atomic_store(&linger->first_ns, 0);
	atomic_store(&linger->last_ns, 0);
}
