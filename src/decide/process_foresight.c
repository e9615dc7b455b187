/* SPDX-License-Identifier: Apache-2.0 */
/* See process_foresight.h. */
#include "decide/process_foresight.h"

#include "decide/defaults.h"

#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)

/*
 * The daemon counts a tenant as at work for a second after its last launch, and looks every 100 ms. A process counts itself for
 * this long after its last work. So both can differ by 0.2 s, in which other tenants are not seen or seen too long.
 */
#define WORK_SHOWS_NS (1200 * MS)
#define FACTS_EVERY_NS (10 * MS)

static void init_with_costs(struct hb_process_foresight *process, void (*init_costs)(struct hb_foresight_costs *))
{
	struct hb_foresight_costs costs;
	memset(process, 0, sizeof *process);
	init_costs(&costs);
	hb_foresight_init(&process->foresight, &costs, &process->budget);
}

void hb_process_foresight_init(struct hb_process_foresight *process)
{
	init_with_costs(process, hb_foresight_costs_init);
}

void hb_process_foresight_init_masks(struct hb_process_foresight *process)
{
	init_with_costs(process, hb_foresight_mask_costs_init);
}

bool hb_process_foresight_wants_facts(const struct hb_process_foresight *process, int64_t now_ns)
{
	return now_ns >= process->facts_again_ns;
}

static bool counts_as_working(const struct hb_process_foresight *process, int64_t now_ns)
{
	return process->foresight.busy || (process->worked_ns && now_ns - process->worked_ns < WORK_SHOWS_NS);
}

void hb_process_foresight_note_gpus(struct hb_process_foresight *process, int64_t now_ns,
				    const struct hb_gpu_facts *gpus, uint32_t n_gpus)
{
	bool allowed = false;
	uint32_t own = counts_as_working(process, now_ns), others = 0;
	for (uint32_t i = 0; i < n_gpus; i++) {
		if (!gpus[i].low_present)
			continue;
		uint32_t beside = gpus[i].high_at_work > own ? gpus[i].high_at_work - own : 0;
		allowed |= own || !beside;
		others = beside > others ? beside : others;
	}
	process->facts_again_ns = now_ns + FACTS_EVERY_NS;
	/* The tenants that work divide the budget of a GPU. The time in which this one might not take the GPU over was theirs. */
	if (!allowed || !process->foresight.allowed)
		process->budget.since_ns = now_ns;
	hb_foresight_share_tenants(&process->share, &process->foresight, now_ns, others);
	hb_foresight_allow(&process->foresight, now_ns, allowed, !others);
}

bool hb_process_foresight_wants_activity(const struct hb_process_foresight *process, int64_t now_ns)
{
	return hb_foresight_share_is_due(&process->share, now_ns);
}

void hb_process_foresight_note_activity(struct hb_process_foresight *process, int64_t now_ns, const uint64_t *activity,
					uint32_t n, uint32_t self)
{
	hb_foresight_share_look(&process->share, &process->foresight, now_ns, activity, n, self);
}

/*
 * An idle CPU loses its caches and its clock: after 1 ms without work an HTTP server takes 0.8 ms from a request's bytes
 * to its first launch, after 20 ms 1.3 ms, each within a third. So bytes are learned separately for four lengths of idleness.
 */
static uint64_t add_idle_class(const struct hb_process_foresight *process, uint64_t source, int64_t now_ns)
{
	static const int64_t bounds_ns[] = {1500 * US, 5 * MS, 15 * MS};
	uint64_t class = 0;
	for (size_t i = 0; i < sizeof bounds_ns / sizeof *bounds_ns; i++)
		class += now_ns - process->worked_ns >= bounds_ns[i];
	return source + class * UINT64_C(0x1000000000001);
}

void hb_process_foresight_sign(struct hb_process_foresight *process, int64_t now_ns, enum hb_sign kind, uint64_t source,
			       uint32_t who, int64_t expected_ns)
{
	if (kind == HB_SIGN_SOCKET)
		source = add_idle_class(process, source, now_ns);
	hb_foresight_sign(&process->foresight, now_ns, kind, source, who, expected_ns);
}

void hb_process_foresight_launch(struct hb_process_foresight *process, int64_t now_ns)
{
	hb_foresight_busy(&process->foresight, now_ns);
	process->request_since_ns = now_ns;
}

static uint32_t kind_of_work(const struct hb_process_foresight *process, uint64_t kernels, uint64_t graphs)
{
	kernels -= process->kernels_before;
	graphs -= process->graphs_before;
	return (uint32_t)((graphs < 3 ? graphs : 3) * 16 + (kernels < 15 ? kernels : 15));
}

/* For the gap that follows: work without graphs, with few or many kernels; with graphs, and few or many kernels. */
static void note_work(struct hb_process_foresight *process, uint32_t kind)
{
	hb_foresight_work(&process->foresight, (kind >= 16) * 2 + (kind % 16 == 15));
}

int64_t hb_process_foresight_wait(struct hb_process_foresight *process, int64_t now_ns, uint64_t kernels,
				  uint64_t graphs, bool reads, struct hb_process_wait *wait)
{
	uint32_t work = kind_of_work(process, kernels, graphs), kind = work + (reads ? HB_WAIT_KINDS / 2 : 0);
	note_work(process, work);
	*wait = (struct hb_process_wait){.since_ns = now_ns, .kind = kind, .kernels = kernels, .graphs = graphs};
	if (reads && kernels + graphs == process->launches_read) {
		wait->since_ns = 0;
		return 0;
	}
	int64_t keep_ns = hb_foresight_keep_ns(&process->foresight, now_ns);
	if (process->shortest_wait_ns[wait->kind] >= HB_DEFAULT_KEEP_LEAST_NS)
		return keep_ns;
	wait->keep_later = reads && keep_ns > 0;
	return 0;
}

/* The shortest wait of a kind is what counts; it rises slowly, so that a change is noticed. */
static void learn_duration(struct hb_process_foresight *process, int64_t now_ns, const struct hb_process_wait *wait)
{
	int64_t lasted_ns = now_ns - wait->since_ns, *shortest_ns = &process->shortest_wait_ns[wait->kind];
	*shortest_ns = lasted_ns < *shortest_ns ? lasted_ns : *shortest_ns + (lasted_ns - *shortest_ns) / 8;
}

void hb_process_foresight_learn_read(struct hb_process_foresight *process, int64_t now_ns,
				     const struct hb_process_wait *wait)
{
	if (wait->since_ns)
		learn_duration(process, now_ns, wait);
	process->launches_read = wait->kernels + wait->graphs;
}

void hb_process_foresight_learn_wait(struct hb_process_foresight *process, int64_t now_ns, uint64_t kernels,
				     uint64_t graphs, const struct hb_process_wait *wait)
{
	if (wait->since_ns)
		learn_duration(process, now_ns, wait);
	process->kernels_before = kernels;
	process->graphs_before = graphs;
}

void hb_process_foresight_idle(struct hb_process_foresight *process, int64_t now_ns, int64_t keep_ns)
{
	hb_foresight_idle_kept(&process->foresight, now_ns, keep_ns);
	process->request_since_ns = 0;
	process->worked_ns = now_ns;
}

void hb_process_foresight_step(struct hb_process_foresight *process, int64_t now_ns)
{
	hb_foresight_step(&process->foresight, now_ns);
}

struct hb_takeover_plan hb_process_foresight_plan(const struct hb_process_foresight *process)
{
	return (struct hb_takeover_plan){
		.since_ns = process->foresight.takeover_since_ns,
		.until_ns = hb_foresight_takeover_until_ns(&process->foresight),
		.next_ns = hb_foresight_next_ns(&process->foresight),
	};
}
