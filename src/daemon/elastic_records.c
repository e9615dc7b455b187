/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and grants elastic memory; see elastic_records.h. */
#include "daemon/elastic_records.h"

#include "base/units.h"
#include "daemon/daemon.h"

/* A report counts at most as so much, so that sums do not overflow. */
#define BYTES_MOST (UINT64_C(1) << 50)
#define PIECE_MOST (UINT64_C(64) << 20) /* processes move whole pieces: at most so much more than ordered */
#define GRANT_UNIT (UINT64_C(2) << 20)  /* the driver's granularity of device memory */

static uint64_t load_bytes(const hb_page_u64 *bytes)
{
	return hb_bytes_least(atomic_load_explicit(bytes, memory_order_relaxed), BYTES_MOST);
}

bool hb_tenancy_is_elastic(const struct hb_tenancy *tenancy)
{
	return tenancy->rights.elastic && hb_tenancy_is_low(tenancy);
}

static bool has_owner(const struct hb_tenancy *tenancy, const struct hb_page_elastic *record)
{
	uint64_t owner = atomic_load_explicit(&record->owner, memory_order_acquire);
	uint64_t slot = (owner & UINT32_MAX) - 1;
	if (slot >= HB_PAGE_PROCESSES || !tenancy->members[slot].watch)
		return false;
	return owner == HB_ELASTIC_OWNER(slot, tenancy->page->processes[slot].generation);
}

bool hb_elastic_owns(const struct hb_tenancy *tenancy, uint32_t index, uint32_t gpu_index)
{
	const struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	return has_owner(tenancy, record) && atomic_load_explicit(&record->gpu, memory_order_acquire) == gpu_index + 1;
}

uint64_t hb_elastic_on_peer(const struct hb_tenancy *tenancy, uint32_t index)
{
	return hb_bytes_least(load_bytes(&tenancy->page->elastic_gpus[index].peer_bytes), tenancy->peer_limits[index]);
}

void hb_elastic_order_to_peer(struct hb_tenancy *tenancy, uint32_t index, uint64_t bytes, uint64_t total_bytes)
{
	uint64_t limit = hb_bytes_least(tenancy->peer_limits[index] + bytes + PIECE_MOST, BYTES_MOST);
	tenancy->peer_limits[index] = hb_bytes_least(limit, total_bytes);
}

void hb_elastic_limit_peer(struct hb_tenancy *tenancy, uint32_t index, uint64_t total_bytes)
{
	tenancy->peer_limits[index] = hb_bytes_least(tenancy->peer_limits[index], total_bytes);
}

uint64_t hb_elastic_leaving(const struct hb_tenancy *tenancy, uint32_t index)
{
	return hb_bytes_least(hb_elastic_on_peer(tenancy, index),
			      load_bytes(&tenancy->page->elastic_gpus[index].spare_bytes));
}

uint64_t hb_elastic_movable(const struct hb_tenancy *tenancy, uint32_t index)
{
	const struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	uint64_t limit = tenancy->host_limits[index], host = load_bytes(&record->host_bytes);
	uint64_t room = hb_bytes_least(load_bytes(&record->spare_bytes), limit > host ? limit - host : 0);
	room -= hb_bytes_least(room, hb_elastic_on_peer(tenancy, index));
	return hb_bytes_least(load_bytes(&record->movable_bytes), room);
}

/* Memory of the host in which the record's granules are, as far as the daemon has granted it. */
static uint64_t count_host(const struct hb_tenancy *tenancy, uint32_t index)
{
	return hb_bytes_least(load_bytes(&tenancy->page->elastic_gpus[index].host_bytes), tenancy->host_limits[index]);
}

uint64_t hb_elastic_returning(const struct hb_tenancy *tenancy, uint32_t index)
{
	uint64_t host = count_host(tenancy, index), over = load_bytes(&tenancy->page->elastic_gpus[index].over_bytes);
	return host - hb_bytes_least(host, over);
}

static void add_record(const struct hb_tenancy *tenancy, uint32_t index, struct hb_elastic_bytes *sum)
{
	const struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	uint64_t movable = hb_elastic_movable(tenancy, index), all = load_bytes(&record->movable_bytes);
	sum->records++;
	sum->local += load_bytes(&record->local_bytes);
	sum->peer += load_bytes(&record->peer_bytes);
	sum->host += load_bytes(&record->host_bytes);
	sum->over += load_bytes(&record->over_bytes);
	sum->away += hb_elastic_on_peer(tenancy, index) + hb_elastic_returning(tenancy, index);
	sum->movable += movable;
	sum->held += all > movable ? all - movable : 0;
	sum->spare += load_bytes(&record->spare_bytes);
	sum->leaked += load_bytes(&record->leaked_bytes);
	sum->host_limit += tenancy->host_limits[index];
	sum->parked += record->parked != HB_PARKED_NOT;
	sum->waits += record->parked == HB_PARKED_WAITS;
	for (uint32_t i = 0; i < HB_N_PAGE_STAYS; i++)
		sum->stays[i] += load_bytes(&record->stays_bytes[i]);
}

struct hb_elastic_bytes hb_elastic_count(const struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	struct hb_elastic_bytes sum = {0};
	for (uint32_t i = 0; hb_tenancy_is_elastic(tenancy) && i < HB_PAGE_ELASTIC; i++)
		if (hb_elastic_owns(tenancy, i, gpu_index))
			add_record(tenancy, i, &sum);
	return sum;
}

bool hb_elastic_is_of(const struct hb_tenancy *tenancy, uint32_t index, uint32_t slot)
{
	return (tenancy->page->elastic_gpus[index].owner & UINT32_MAX) == slot + 1;
}

uint64_t hb_elastic_away(const struct hb_tenancy *tenancy, uint32_t slot, uint32_t gpu_index)
{
	uint64_t away = 0;
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++)
		if (hb_elastic_is_of(tenancy, i, slot) && hb_elastic_owns(tenancy, i, gpu_index))
			away += hb_elastic_on_peer(tenancy, i) + hb_elastic_returning(tenancy, i);
	return away;
}

static void clear_record(struct hb_tenancy *tenancy, uint32_t index)
{
	struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	tenancy->host_limits[index] = tenancy->peer_limits[index] = 0;
	record->gpu = 0;
	record->local_bytes = record->peer_bytes = record->host_bytes = record->movable_bytes = 0;
	record->spare_bytes = record->leaked_bytes = record->host_limit_bytes = record->over_bytes = 0;
	for (uint32_t i = 0; i < HB_PAGE_STAYS; i++)
		record->stays_bytes[i] = 0;
	record->parked = HB_PARKED_NOT;
	record->order_expires_ns = 0;
	record->result = record->order; /* the next process is given no order of the last one */
	atomic_store_explicit(&record->owner, 0, memory_order_release);
}

void hb_elastic_leave(struct hb_tenancy *tenancy, uint32_t slot)
{
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++)
		if (hb_elastic_is_of(tenancy, i, slot))
			clear_record(tenancy, i);
}

void hb_elastic_adopt(struct hb_tenancy *tenancy)
{
	uint64_t most = hb_bytes_least(tenancy->daemon->config.elastic_host_bytes, BYTES_MOST);
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++) {
		const struct hb_page_elastic *record = &tenancy->page->elastic_gpus[i];
		tenancy->host_limits[i] = hb_bytes_least(load_bytes(&record->host_limit_bytes), most);
		tenancy->peer_limits[i] = load_bytes(&record->peer_bytes);
	}
}

/* --- memory of the host ------------------------------------------------------------------ */

struct host_shares {
	uint64_t used;    /* by memory that has moved there, which cannot be taken back */
	uint64_t share;   /* most of each record, beyond what it uses */
	uint64_t given;   /* with this share, all records together */
	uint32_t wanting; /* records that want more than that */
	uint64_t granted;
};

/* Calls `visit` for all records in use. */
static void visit_records(const struct hb_daemon *daemon, struct host_shares *shares,
			  void (*visit)(struct host_shares *shares, struct hb_tenancy *tenancy, uint32_t index))
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = daemon->tenancies[i];
		for (uint32_t r = 0; tenancy && hb_tenancy_is_elastic(tenancy) && r < HB_PAGE_ELASTIC; r++)
			if (has_owner(tenancy, &tenancy->page->elastic_gpus[r]))
				visit(shares, tenancy, r);
	}
}

static void add_use(struct host_shares *shares, struct hb_tenancy *tenancy, uint32_t index)
{
	shares->used += count_host(tenancy, index);
}

/* A process needs no more than all its memory that can move, unless it may create memory there. */
static uint64_t wanted_by(const struct hb_tenancy *tenancy, uint32_t index)
{
	if (tenancy->rights.over)
		return BYTES_MOST;
	uint64_t bytes = load_bytes(&tenancy->page->elastic_gpus[index].movable_bytes) +
			 hb_elastic_on_peer(tenancy, index) + GRANT_UNIT - 1;
	return bytes - bytes % GRANT_UNIT;
}

static void add_want(struct host_shares *shares, struct hb_tenancy *tenancy, uint32_t index)
{
	uint64_t wanted = wanted_by(tenancy, index);
	shares->given += hb_bytes_least(shares->share, wanted);
	shares->wanting += wanted > shares->share;
}

static void write_grant(struct host_shares *shares, struct hb_tenancy *tenancy, uint32_t index)
{
	struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	tenancy->host_limits[index] = count_host(tenancy, index) +
				      hb_bytes_least(shares->share, wanted_by(tenancy, index));
	record->host_limit_bytes = tenancy->host_limits[index];
}

static void add_grant(struct host_shares *shares, struct hb_tenancy *tenancy, uint32_t index)
{
	shares->granted += tenancy->host_limits[index];
}

/* Equal shares of what is not in use; what one process does not want is shared among the others. */
void hb_elastic_grant_host(struct hb_daemon *daemon)
{
	struct host_shares shares = {0};
	uint64_t pool = hb_bytes_least(daemon->config.elastic_host_bytes, BYTES_MOST);
	visit_records(daemon, &shares, add_use);
	uint64_t left = pool > shares.used ? pool - shares.used : 0, more;
	do {
		shares.given = shares.wanting = 0;
		visit_records(daemon, &shares, add_want);
		/* A process may write a larger wish between two rounds: then more may be given than is left. */
		more = shares.wanting && left > shares.given ? (left - shares.given) / shares.wanting : 0;
		more -= more % GRANT_UNIT;
		shares.share += more;
	} while (more);
	visit_records(daemon, &shares, write_grant);
}

uint64_t hb_elastic_granted(const struct hb_daemon *daemon)
{
	struct host_shares shares = {0};
	visit_records(daemon, &shares, add_grant);
	return shares.granted;
}
