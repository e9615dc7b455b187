/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of memory for LP tenants; see gpu_memory.h. */
#include "daemon/gpu_memory.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_processes.h"
#include "daemon/mps_server.h"
#include "gpu/provider.h"

#include <errno.h>

/* A lease that was just granted is not shared out again for so long: its process is about to claim it. */
#define GRANT_NS (200 * HB_NS_PER_MS)
/* A process claims memory before the driver allocates it, so a single sample with less than reported proves nothing. */
#define SLACK_BYTES (UINT64_C(64) << 20)
/* The first answer may have been on its way when the tenant asked; two others show that a report is false. */
#define JUDGING_SAMPLES 3
/* After a longer pause a question of a tenant is a new one. */
#define ASK_PAUSE_NS (HB_NS_PER_S / 2)
#define DISBELIEF_NS (60 * HB_NS_PER_S)
/* A report counts at most as so much if the GPU's memory is unknown. Sums of all tenants' reports do not overflow. */
#define BYTES_MOST (UINT64_C(1) << 50)

/* --- what a tenant uses --------------------------------------------------------------- */

static struct hb_tenancy *find_low(const struct hb_gpu *gpu, uint32_t index)
{
	struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, index);
	return tenancy && hb_tenancy_is_low(tenancy) ? tenancy : NULL;
}

static uint64_t subtract(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

static struct hb_page_gpu *page_of(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	return &tenancy->page->gpus[gpu->tenants[tenancy->index].gpu_index];
}

uint64_t hb_gpu_memory_total(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	uint64_t total = gpu->page->total_bytes ? gpu->page->total_bytes : tenancy->totals[gpu_index];
	return total < BYTES_MOST ? total : BYTES_MOST;
}

/* Returns how much all LP tenants together may use, by the total that counts for this tenant; UINT64_MAX = no limit. */
static uint64_t limit_for(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	uint64_t total = hb_gpu_memory_total(gpu, tenancy, gpu->tenants[tenancy->index].gpu_index);
	uint64_t reserve = gpu->daemon->config.reserve_bytes;
	if (!total)
		return UINT64_MAX;
	return total > reserve ? total - reserve : 0;
}

static uint64_t read_used(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	uint64_t used = atomic_load(&page_of(gpu, tenancy)->used_bytes);
	uint64_t most = gpu->page->total_bytes ? gpu->page->total_bytes : BYTES_MOST;
	return used < most ? used : most;
}

/* Reads what all LP tenants report. All sums are computed from the same reading. */
static void read_reports(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_low(gpu, i))
			gpu->leases[i].reported_bytes = read_used(gpu, find_low(gpu, i));
}

static uint64_t reported(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	return gpu->leases[tenancy->index].reported_bytes;
}

/* Returns the bytes that the tenant reports as used, but that it has moved away: the driver does not see them on this GPU. */
static uint64_t count_away(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	return hb_elastic_count(tenancy, gpu->tenants[tenancy->index].gpu_index).away;
}

/*
 * The driver gives no figures for clients of an MPS server. The tenant uses at most what is left of the GPU's used memory
 * without that of other processes and what the other LP tenants report.
 */
static uint64_t read_rest(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	uint64_t rest = gpu->use->used_bytes;
	for (uint32_t i = 0; i < gpu->use->n_users; i++) {
		const struct hb_gpu_user *user = &gpu->use->users[i];
		bool counts = user->bytes != HB_GPU_BYTES_UNKNOWN && user->pid != hb_mps_server_pid(gpu->daemon->mps) &&
			      !hb_gpu_process_is_low(gpu->daemon, user->pid);
		rest -= !counts ? 0 : user->bytes < rest ? user->bytes : rest;
	}
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *other = find_low(gpu, i);
		uint64_t used = other && other != tenancy ? subtract(reported(gpu, other), count_away(gpu, other)) : 0;
		rest -= used < rest ? used : rest;
	}
	return rest;
}

/* Memory of the tenant's processes in the driver's last answer. False: the answer does not tell. */
static bool read_driver(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t *bytes)
{
	*bytes = count_away(gpu, tenancy);
	if (!gpu->use || !gpu->use->total_bytes || gpu->use->why[0])
		return false;
	for (uint32_t i = 0; i < gpu->use->n_users; i++) {
		if (!hb_tenancy_has_process(tenancy, gpu->use->users[i].pid))
			continue;
		if (gpu->use->users[i].bytes == HB_GPU_BYTES_UNKNOWN) {
			*bytes += read_rest(gpu, tenancy);
			return true;
		}
		*bytes += gpu->use->users[i].bytes;
	}
	return true;
}

/* Returns the memory that the tenant reports, limited to what the driver sees. */
static uint64_t count_seen(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	uint64_t used = reported(gpu, tenancy), seen;
	if (!read_driver(gpu, tenancy, &seen))
		return used;
	return used < seen ? used : seen;
}

/* Returns how much memory the tenant counts as using. */
static uint64_t count_used(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	bool believed = now_ns >= gpu->leases[tenancy->index].disbelieved_until;
	return believed ? reported(gpu, tenancy) : count_seen(gpu, tenancy);
}

/* --- the driver's answers ---------------------------------------------------------------- */

void hb_gpu_memory_begin_sample(struct hb_gpu *gpu, int64_t now_ns)
{
	hb_gpu_elastic_begin_sample(gpu, now_ns);
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = find_low(gpu, i);
		if (tenancy)
			gpu->leases[i].sampled_bytes = read_used(gpu, tenancy);
	}
}

static void judge_report(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_memory_lease *lease = &gpu->leases[tenancy->index];
	uint64_t used = reported(gpu, tenancy), seen;
	if (lease->sampled_bytes < used)
		used = lease->sampled_bytes;
	if (!read_driver(gpu, tenancy, &seen) || used <= seen + SLACK_BYTES)
		return;
	bool again = lease->overstated_ns && now_ns - lease->overstated_ns < DISBELIEF_NS;
	lease->overstated_ns = now_ns;
	if (!again)
		return;
	if (now_ns >= lease->disbelieved_until)
		hb_user_log(tenancy->user, now_ns, HB_LOG_INFO,
			    "tenant %u reports %llu bytes of GPU memory, the driver sees %llu: the rest does not count",
			    tenancy->number, (unsigned long long)used, (unsigned long long)seen);
	lease->disbelieved_until = now_ns + DISBELIEF_NS;
}

void hb_gpu_memory_end_sample(struct hb_gpu *gpu, int64_t now_ns)
{
	if (gpu->use->total_bytes && gpu->use->total_bytes != gpu->page->total_bytes) {
		gpu->page->total_bytes = gpu->use->total_bytes;
		for (uint32_t i = 0; i < gpu->tenants_end; i++)
			if (hb_gpu_tenancy(gpu, i))
				page_of(gpu, hb_gpu_tenancy(gpu, i))->total_bytes = gpu->use->total_bytes;
	}
	gpu->samples++;
	read_reports(gpu);
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_low(gpu, i))
			judge_report(gpu, find_low(gpu, i), now_ns);
	hb_gpu_memory_share(gpu, now_ns);
	hb_gpu_elastic_end_sample(gpu, now_ns);
}

/* --- leases -------------------------------------------------------------------------------- */

static void write_lease(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t bytes)
{
	gpu->leases[tenancy->index].bytes = bytes;
	/* Sequentially consistent, as the claims are: the second of both sees the first. Written even if unchanged. */
	atomic_store(&page_of(gpu, tenancy)->low_lease_bytes, bytes);
}

/* Takes back what the tenant's lease has beyond its use and `spare`. */
static void lower_lease(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t spare)
{
	uint64_t bytes = gpu->leases[tenancy->index].bytes, most = read_used(gpu, tenancy);
	most = spare < UINT64_MAX - most ? most + spare : UINT64_MAX;
	write_lease(gpu, tenancy, bytes < most ? bytes : most);
}

static bool is_just_granted(const struct hb_gpu *gpu, uint32_t index, int64_t now_ns)
{
	return gpu->leases[index].granted_ns && now_ns - gpu->leases[index].granted_ns < GRANT_NS;
}

/* Returns how much memory the tenant counts as using, with the unused part of its lease. */
static uint64_t count_committed(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	uint64_t used = reported(gpu, tenancy), lease = gpu->leases[tenancy->index].bytes;
	uint64_t unused = lease != UINT64_MAX && lease > used ? lease - used : 0;
	return count_used(gpu, tenancy, now_ns) + (unused < BYTES_MOST ? unused : BYTES_MOST);
}

/* By how much less the others would count if no report were believed and all their unused memory were taken back. */
static uint64_t sum_doubtful(const struct hb_gpu *gpu, uint32_t except, int64_t now_ns)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (i != except && find_low(gpu, i))
			sum += subtract(count_committed(gpu, find_low(gpu, i), now_ns),
					count_seen(gpu, find_low(gpu, i)));
	return sum;
}

static uint64_t sum_committed(const struct hb_gpu *gpu, int64_t now_ns)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_low(gpu, i))
			sum += count_committed(gpu, find_low(gpu, i), now_ns);
	return sum;
}

static uint64_t sum_used(const struct hb_gpu *gpu, int64_t now_ns, uint32_t *n)
{
	uint64_t sum = *n = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		if (!find_low(gpu, i))
			continue;
		sum += count_used(gpu, find_low(gpu, i), now_ns);
		++*n;
	}
	return sum;
}

/* Raises the tenant's lease to its use and `spare`, as far as memory is free. Returns by how much. */
static uint64_t raise_lease(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t spare, uint64_t committed)
{
	uint64_t limit = limit_for(gpu, tenancy), lease = gpu->leases[tenancy->index].bytes;
	if (limit == UINT64_MAX) {
		write_lease(gpu, tenancy, UINT64_MAX);
		return 0;
	}
	uint64_t more = subtract(reported(gpu, tenancy) + spare, lease), free = subtract(limit, committed);
	more = more < free ? more : free;
	write_lease(gpu, tenancy, lease + more);
	return more;
}

/* Writes what tenants only show or use for figures. */
static void publish_sums(struct hb_gpu *gpu, uint64_t used, int64_t now_ns)
{
	gpu->page->low_used_bytes = used;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (!tenancy)
			continue;
		bool low = hb_tenancy_is_low(tenancy);
		page_of(gpu, tenancy)->low_others_bytes = low ? subtract(used, count_used(gpu, tenancy, now_ns)) : 0;
		if (!low)
			write_lease(gpu, tenancy, UINT64_MAX);
	}
}

/*
 * While HP is about to take memory that LP has made free, LP gets none of it. Otherwise:
 * first takes back what exceeds an equal share of the unused memory, then gives what is certainly free: between the two steps
 * a process may have claimed memory of its old lease.
 */
void hb_gpu_memory_share(struct hb_gpu *gpu, int64_t now_ns)
{
	uint32_t n;
	read_reports(gpu);
	uint64_t used = sum_used(gpu, now_ns, &n);
	bool held = hb_gpu_elastic_holds(gpu, now_ns);
	gpu->memory_changed = false;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = find_low(gpu, i);
		if (tenancy && limit_for(gpu, tenancy) != UINT64_MAX && !is_just_granted(gpu, i, now_ns))
			lower_lease(gpu, tenancy, held ? 0 : subtract(limit_for(gpu, tenancy), used) / n);
	}
	read_reports(gpu);
	uint64_t committed = sum_committed(gpu, now_ns);
	for (uint32_t i = 0; !held && i < gpu->tenants_end; i++)
		if (find_low(gpu, i))
			committed += raise_lease(gpu, find_low(gpu, i),
						 subtract(limit_for(gpu, find_low(gpu, i)), used) / n, committed);
	publish_sums(gpu, used, now_ns);
}

/* Whether the driver has been asked often enough, since the tenant first asked, to know which reports are false. */
static bool has_been_judged(const struct hb_gpu *gpu, struct hb_memory_lease *lease, int64_t now_ns)
{
	if (!lease->refused_ns || now_ns - lease->refused_ns > ASK_PAUSE_NS)
		lease->refused_samples = gpu->samples;
	lease->refused_ns = now_ns;
	return gpu->samples - lease->refused_samples >= JUDGING_SAMPLES;
}

/* Without figures of the driver, what the others report leaves the tenant an equal part of the memory. */
static uint64_t equal_part(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	uint32_t n;
	if (gpu->use && gpu->use->total_bytes && !gpu->use->why[0])
		return 0;
	sum_used(gpu, now_ns, &n);
	return subtract(limit_for(gpu, tenancy) / n, reported(gpu, tenancy));
}

int hb_gpu_memory_ask(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint64_t bytes, int64_t now_ns)
{
	if (!gpu->tenants[tenancy->index].is_present)
		return -ENOENT;
	gpu->memory_changed = true; /* afterwards the others get their shares again */
	if (!hb_tenancy_is_low(tenancy) || limit_for(gpu, tenancy) == UINT64_MAX)
		return 0;
	if (hb_gpu_elastic_holds(gpu, now_ns))
		return -EAGAIN;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_low(gpu, i) && i != tenancy->index)
			lower_lease(gpu, find_low(gpu, i), 0);
	read_reports(gpu);
	struct hb_memory_lease *lease = &gpu->leases[tenancy->index];
	uint64_t others = subtract(sum_committed(gpu, now_ns), count_committed(gpu, tenancy, now_ns));
	uint64_t left = subtract(subtract(limit_for(gpu, tenancy), others), count_used(gpu, tenancy, now_ns));
	if (bytes <= left || bytes <= equal_part(gpu, tenancy, now_ns)) {
		uint64_t wanted = reported(gpu, tenancy) + bytes;
		if (wanted > lease->bytes)
			write_lease(gpu, tenancy, wanted);
		lease->granted_ns = now_ns;
		return 0;
	}
	if (bytes > left + others)
		return -ENOMEM;
	hb_gpu_processes_poll_recent(gpu->daemon->processes, now_ns);
	bool judged = has_been_judged(gpu, lease, now_ns);
	return !judged || left + sum_doubtful(gpu, tenancy->index, now_ns) >= bytes ? -EAGAIN : -ENOMEM;
}
