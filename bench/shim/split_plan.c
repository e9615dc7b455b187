/* SPDX-License-Identifier: Apache-2.0 */
/* Decides into how many parts a launch is split; see split_plan.h. */
#include "split_plan.h"

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* GPU time that one more part costs. */
static int64_t part_cost_ns(const struct hb_split_question *question)
{
	uint64_t skip_ps = HB_SPLIT_SKIP_PS + (uint64_t)HB_SPLIT_SKIP_PS_PER_1024 * question->n_threads / 1024;
	return HB_SPLIT_BOUNDARY_NS + (int64_t)(question->n_blocks * skip_ps / 1000);
}

enum hb_split_reason hb_split_plan(const struct hb_split_question *question, struct hb_split_plan *plan)
{
	if (question->n_resident == 0 || question->n_blocks <= question->n_resident)
		return HB_SPLIT_resident;
	if (question->duration_ns <= question->allowed_ns)
		return HB_SPLIT_brief;
	uint64_t n_waves = divide_up(question->n_blocks, question->n_resident);
	int64_t wave_ns = question->duration_ns / (int64_t)n_waves;
	uint64_t waves_allowed = wave_ns > 0 && question->allowed_ns > wave_ns
					 ? (uint64_t)(question->allowed_ns / wave_ns)
					 : 1;
	uint64_t n_parts = divide_up(n_waves, waves_allowed);
	uint64_t n_paid = (uint64_t)(question->duration_ns * question->cost_percent / 100 / part_cost_ns(question));
	if (n_parts > n_paid)
		n_parts = n_paid;
	if (n_parts < 2)
		return HB_SPLIT_costly;
	uint64_t waves_each = divide_up(n_waves, n_parts);
	uint64_t n_blocks_each = waves_each * question->n_resident;
	if (n_blocks_each >= question->n_blocks)
		return HB_SPLIT_costly;
	plan->n_blocks_each = (uint32_t)n_blocks_each;
	plan->n_parts = (uint32_t)divide_up(question->n_blocks, n_blocks_each);
	plan->part_ns = wave_ns * (int64_t)waves_each;
	return HB_SPLIT_none;
}

int64_t hb_split_wait_ns(const struct hb_split_clock *clock, int64_t now_ns)
{
	int64_t due_ns = clock->drained_ns - HB_SPLIT_LEAD_NS;
	return due_ns > now_ns ? due_ns - now_ns : 0;
}

void hb_split_issued(struct hb_split_clock *clock, int64_t now_ns, int64_t part_ns)
{
	clock->drained_ns = (clock->drained_ns > now_ns ? clock->drained_ns : now_ns) + part_ns;
}
