/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory account (memory_account.h). hummingbird/page.h (struct hb_page_gpu)
 * has the rules for the words on the pages. All sums are unsigned and saturate at
 * 0, so an error in an account never becomes a huge number.
 */
#include "shim/memory_account.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "shim/elastic.h"
#include "shim/shim_foresight.h"
#include "shim/shim_tenant.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* How long an allocation waits for memory that other LP tenants do not use, or until HP has got what it needs. */
#define ASK_MOST_NS (4 * HB_NS_PER_S)
#define ASK_AGAIN_NS (20 * HB_NS_PER_MS)
#define ASK_TRIES 3
/* The same for an allocation of HP and memory of LP that moves away: longer than HB_MEMORY_NEED_LIMIT_NS of core/core.h. */
#define ROOM_MOST_NS (8 * HB_NS_PER_S)
#define ROOM_ROUNDS 3

/* Bytes that the driver kept when last asked, minus those that allocations have used since. They are on the account. */
static hb_page_u64 kept_bytes[HB_N_KEPT][HB_PAGE_GPUS];

/* False: the sum would exceed the limit. */
static bool raise_sum(hb_page_u64 *sum, uint64_t bytes, uint64_t limit, uint64_t *raised)
{
	uint64_t used = atomic_load_explicit(sum, memory_order_relaxed);
	do
		if (bytes > limit || used > limit - bytes)
			return false;
	while (!atomic_compare_exchange_weak(sum, &used, used + bytes));
	*raised = used + bytes;
	return true;
}

static void lower_sum(hb_page_u64 *sum, uint64_t bytes)
{
	uint64_t used = atomic_load_explicit(sum, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(sum, &used, used > bytes ? used - bytes : 0, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

static uint64_t load_bytes(const hb_page_u64 *bytes)
{
	return atomic_load_explicit(bytes, memory_order_relaxed);
}

static uint64_t subtract(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

static bool is_low(const struct hb_place *place)
{
	return atomic_load_explicit(&place->page->priority, memory_order_relaxed) == HB_PAGE_LOW;
}

/* Returns what all LP tenants together may use. */
static uint64_t read_low_limit(const struct hb_place *place, unsigned gpu)
{
	uint64_t total = load_bytes(&place->page->gpus[gpu].total_bytes);
	uint64_t reserve = place->gpus[gpu] ? load_bytes(&place->gpus[gpu]->reserve_bytes) : 0;
	return total ? subtract(total, reserve) : UINT64_MAX;
}

/* Returns what this tenant may use of that while the other LP tenants use what they used last. */
static uint64_t read_low_share(const struct hb_place *place, unsigned gpu)
{
	uint64_t limit = read_low_limit(place, gpu);
	return limit == UINT64_MAX ? limit : subtract(limit, load_bytes(&place->page->gpus[gpu].low_others_bytes));
}

/* Whether a daemon is there that computes the lease. */
static bool has_lease(const struct hb_place *place)
{
	uint32_t features = atomic_load_explicit(&place->page->features, memory_order_relaxed);
	return (features & HB_FEATURE_LEASES) && !hb_daemon_silent(place);
}

/* The bound of a claim, besides the tenant's own limit. */
enum room_limit {
	BY_LEASE,
	BY_SHARE, /* the daemon cannot be asked, and its heartbeat is not old enough to show that */
	NO_LIMIT, /* not even the tenant's limit */
};

/* Returns what this tenant may use of the memory for LP without asking the daemon. */
static uint64_t read_lease(const struct hb_place *place, unsigned gpu, enum room_limit by)
{
	if (!is_low(place))
		return UINT64_MAX;
	return by == BY_LEASE && has_lease(place) ? atomic_load(&place->page->gpus[gpu].low_lease_bytes)
						  : read_low_share(place, gpu);
}

static uint64_t read_tenant_limit(const struct hb_place *place, unsigned gpu)
{
	return load_bytes(&place->page->gpus[gpu].limit_bytes);
}

/* False: the limit or the lease is too small. The daemon may lower the lease at any time (struct hb_page_gpu). */
static bool raise_used(const struct hb_place *place, unsigned gpu, uint64_t bytes, enum room_limit by)
{
	hb_page_u64 *used = &place->page->gpus[gpu].used_bytes;
	uint64_t limit = read_tenant_limit(place, gpu), lease = read_lease(place, gpu, by), raised;
	if (!raise_sum(used, bytes, limit < lease ? limit : lease, &raised))
		return false;
	HB_FAULT(shim_memory_leased);
	if (raised <= read_lease(place, gpu, by))
		return true;
	lower_sum(used, bytes);
	return false;
}

/* The daemon does not correct the sums while memory_pending is not 0. */
static void begin_change(const struct hb_place *place)
{
	atomic_fetch_add_explicit(&place->process->memory_pending, 1, memory_order_acq_rel);
}

static void end_change(const struct hb_place *place)
{
	atomic_fetch_sub_explicit(&place->process->memory_pending, 1, memory_order_release);
}

static bool take_room(const struct hb_place *place, unsigned gpu, uint64_t bytes, enum room_limit by)
{
	begin_change(place);
	HB_FAULT(shim_memory_begun);
	bool taken = by == NO_LIMIT || raise_used(place, gpu, bytes, by);
	if (by == NO_LIMIT)
		atomic_fetch_add(&place->page->gpus[gpu].used_bytes, bytes);
	HB_FAULT(shim_memory_raised);
	if (taken)
		atomic_fetch_add_explicit(&place->process->memory[gpu].used_bytes, bytes, memory_order_relaxed);
	end_change(place);
	HB_FAULT(shim_memory_taken);
	return taken;
}

static void give_room_back(unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return;
	begin_change(place);
	lower_sum(&place->page->gpus[gpu].used_bytes, bytes);
	HB_FAULT(shim_memory_lowered);
	lower_sum(&place->process->memory[gpu].used_bytes, bytes);
	end_change(place);
	HB_FAULT(shim_memory_given);
}

/*
 * Asks the daemon for a larger lease. The daemon may have to ask the driver what others really use, so this is repeated for a
 * while; a call that would fail otherwise may take that long. 0: the lease is larger now; -ENOMEM: there is no more;
 * another error: the daemon gave no answer.
 */
static int ask_lease(unsigned gpu, uint64_t bytes)
{
	int64_t until_ns = hb_clock_now_ns() + ASK_MOST_NS;
	int result;
	while ((result = hb_tenant_ask_memory(gpu, bytes)) == -EAGAIN && hb_clock_now_ns() < until_ns)
		nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_NS}, NULL);
	return result == -EAGAIN ? -ENOMEM : result;
}

/* Whether a larger lease can help. */
static bool can_ask(const struct hb_place *place, unsigned gpu, uint64_t bytes)
{
	uint64_t limit = read_tenant_limit(place, gpu), used = load_bytes(&place->page->gpus[gpu].used_bytes);
	return is_low(place) && has_lease(place) && bytes <= limit && used <= limit - bytes;
}

/*
 * A refusal takes 0.3 s. A program whose memory does not fit gets what the lease has, and asks for as much again after this time.
 */
#define ASK_OVER_AGAIN_NS HB_NS_PER_S
static _Atomic(int64_t) refused_ns[HB_PAGE_GPUS];
static _Atomic(uint64_t) refused_bytes[HB_PAGE_GPUS];

static bool was_just_refused(const struct hb_place *place, unsigned gpu, uint64_t bytes)
{
	int64_t before_ns = atomic_load_explicit(&refused_ns[gpu], memory_order_acquire);
	return before_ns && bytes >= atomic_load_explicit(&refused_bytes[gpu], memory_order_relaxed) &&
	       hb_elastic_has_over(place) && hb_clock_now_ns() - before_ns < ASK_OVER_AGAIN_NS;
}

static void note_refusal(unsigned gpu, uint64_t bytes)
{
	atomic_store_explicit(&refused_bytes[gpu], bytes, memory_order_relaxed);
	atomic_store_explicit(&refused_ns[gpu], hb_clock_now_ns(), memory_order_release);
}

/* Another process may take the memory between the answer and the claim. */
static bool take_leased_room(const struct hb_place *place, unsigned gpu, uint64_t bytes)
{
	if (was_just_refused(place, gpu, bytes))
		return take_room(place, gpu, bytes, BY_LEASE);
	for (int i = 0; i < ASK_TRIES; i++) {
		if (take_room(place, gpu, bytes, BY_LEASE))
			return true;
		int result = can_ask(place, gpu, bytes) ? ask_lease(gpu, bytes) : -ENOMEM;
		if (result == -ENOMEM) {
			note_refusal(gpu, bytes);
			return false;
		}
		if (result < 0)
			return take_room(place, gpu, bytes, BY_SHARE);
	}
	return take_room(place, gpu, bytes, BY_LEASE);
}

bool hb_memory_try_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	hb_shim_foresight_first_call(HB_SOURCE_ALLOCATION);
	claim->bytes = bytes;
	claim->gpu = place->page ? gpu : HB_PAGE_GPUS;
	if (claim->gpu >= HB_PAGE_GPUS || take_leased_room(place, gpu, bytes))
		return true;
	return hb_memory_shrink_kept(gpu) && take_leased_room(place, gpu, bytes);
}

bool hb_memory_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes)
{
	if (hb_memory_try_claim(claim, gpu, bytes))
		return true;
	hb_shim_count(HB_COUNT_allocations_refused, 1);
	return false;
}

uint64_t hb_memory_claim_part(struct hb_claim *claim, unsigned gpu, uint64_t bytes, uint64_t unit)
{
	const struct hb_place *place = hb_place();
	*claim = (struct hb_claim){.gpu = place->page ? gpu : HB_PAGE_GPUS};
	if (claim->gpu >= HB_PAGE_GPUS)
		return 0;
	uint64_t limit = read_tenant_limit(place, gpu), lease = read_lease(place, gpu, BY_LEASE);
	uint64_t room = subtract(limit < lease ? limit : lease, load_bytes(&place->page->gpus[gpu].used_bytes));
	room = room < bytes ? room : bytes;
	room -= room % unit;
	if (room && take_room(place, gpu, room, BY_LEASE))
		claim->bytes = room;
	return claim->bytes;
}

/* LP gets back what its GPU has lent to LP tenants of other GPUs. */
static bool is_lent(const struct hb_place *place, unsigned gpu)
{
	return place->gpus[gpu] && atomic_load_explicit(&place->gpus[gpu]->lent, memory_order_relaxed);
}

static bool can_make_room(const struct hb_place *place, const struct hb_claim *claim)
{
	uint32_t features = place->page ? atomic_load_explicit(&place->page->features, memory_order_relaxed) : 0;
	return claim->gpu < HB_PAGE_GPUS && (features & HB_FEATURE_ELASTIC) &&
	       (!is_low(place) || is_lent(place, claim->gpu)) && !hb_daemon_silent(place);
}

bool hb_memory_make_room(struct hb_room *room, const struct hb_claim *claim)
{
	if (!can_make_room(hb_place(), claim) || room->rounds++ == ROOM_ROUNDS)
		return false;
	int64_t now_ns = hb_clock_now_ns();
	if (!room->until_ns)
		room->until_ns = now_ns + ROOM_MOST_NS;
	int result = -ENOMEM;
	for (; now_ns < room->until_ns; now_ns = hb_clock_now_ns()) {
		result = hb_tenant_ask_room(claim->gpu, claim->bytes, (int)((room->until_ns - now_ns) / HB_NS_PER_MS));
		if (result != -EAGAIN)
			break;
		nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_NS}, NULL);
	}
	return result == 0;
}

/* Takes up to `bytes` of what pools keep. Returns how much. */
static uint64_t take_kept(unsigned gpu, uint64_t bytes)
{
	hb_page_u64 *kept = &kept_bytes[HB_KEPT_BY_POOLS][gpu];
	uint64_t before = atomic_load_explicit(kept, memory_order_relaxed), part;
	do
		part = before < bytes ? before : bytes;
	while (part && !atomic_compare_exchange_weak(kept, &before, before - part));
	return part;
}

bool hb_memory_claim_kept(struct hb_claim *claim, unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	hb_shim_foresight_first_call(HB_SOURCE_ALLOCATION);
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return hb_memory_claim(claim, gpu, bytes);
	uint64_t part = take_kept(gpu, bytes);
	if (take_room(place, gpu, bytes - part, BY_LEASE)) {
		*claim = (struct hb_claim){.bytes = bytes, .gpu = gpu};
		return true;
	}
	atomic_fetch_add(&kept_bytes[HB_KEPT_BY_POOLS][gpu], part);
	return hb_memory_claim(claim, gpu, bytes);
}

void hb_memory_cancel(const struct hb_claim *claim)
{
	give_room_back(claim->gpu, claim->bytes);
}

void hb_memory_adjust(struct hb_claim *claim, uint64_t bytes)
{
	if (claim->gpu >= HB_PAGE_GPUS)
		return;
	if (bytes > claim->bytes)
		take_room(hb_place(), claim->gpu, bytes - claim->bytes, NO_LIMIT);
	else
		give_room_back(claim->gpu, claim->bytes - bytes);
	claim->bytes = bytes;
}

void hb_memory_note(const struct hb_claim *claim, enum hb_memory_kind kind, uint64_t handle, uint64_t owner)
{
	hb_shim_count(HB_COUNT_allocations, 1);
	static _Atomic(uint64_t) serials;
	struct hb_memory_entry replaced,
		entry = {
			.handle = handle,
			.bytes = claim->bytes,
			.owner = owner,
			.serial = 1 + atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed),
			.references = 1,
			.kind = (uint8_t)kind,
			.gpu = (uint8_t)claim->gpu,
		};
	/* Without room in the table the memory stays on the account until the process ends, which is safe. */
	if (claim->gpu < HB_PAGE_GPUS && hb_memory_table_put(&entry, &replaced) && replaced.kind != HB_MEMORY_NONE)
		give_room_back(replaced.gpu, replaced.bytes);
}

bool hb_memory_fits(unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return true;
	uint64_t limit = read_tenant_limit(place, gpu), share = is_low(place) ? read_low_share(place, gpu) : UINT64_MAX;
	uint64_t used = load_bytes(&place->page->gpus[gpu].used_bytes);
	if (share < limit)
		limit = share;
	if (bytes <= limit && used <= limit - bytes)
		return true;
	hb_shim_count(HB_COUNT_allocations_refused, 1);
	return false;
}

bool hb_memory_begin_free(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out)
{
	return hb_memory_table_take(kind, handle, entry_out);
}

void hb_memory_end_free(const struct hb_memory_entry *entry, bool freed)
{
	struct hb_memory_entry replaced;
	if (freed)
		give_room_back(entry->gpu, entry->bytes);
	else
		hb_memory_table_put(entry, &replaced);
}

uint64_t hb_memory_serial(uint64_t handle)
{
	struct hb_memory_entry entry;
	return hb_memory_table_get(HB_MEMORY_PHYSICAL, handle, &entry) ? entry.serial : 0;
}

void hb_memory_add_references(uint64_t handle, uint64_t serial, int change)
{
	struct hb_memory_entry gone;
	if (serial && hb_memory_table_add_references(handle, serial, change, &gone))
		give_room_back(gone.gpu, gone.bytes);
}

void hb_memory_drop_context(uint64_t context)
{
	struct hb_memory_entry gone;
	while (context && hb_memory_table_take_owned(context, &gone)) {
		if (gone.kind == HB_MEMORY_POINTER)
			gone.bytes -= hb_elastic_drop(gone.handle, gone.bytes);
		give_room_back(gone.gpu, gone.bytes);
	}
}

void hb_memory_set_kept(enum hb_kept by, unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return;
	uint64_t before = atomic_exchange(&kept_bytes[by][gpu], bytes);
	if (bytes > before)
		take_room(place, gpu, bytes - before, NO_LIMIT);
	else
		give_room_back(gpu, before - bytes);
}

static void bound_size(size_t *value, uint64_t bound)
{
	if (*value > bound)
		*value = (size_t)bound;
}

void hb_memory_info(unsigned gpu, size_t *free_bytes, size_t *total_bytes)
{
	const struct hb_place *place = hb_place();
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return;
	uint64_t limit = read_tenant_limit(place, gpu), used = load_bytes(&place->page->gpus[gpu].used_bytes);
	if (limit != UINT64_MAX) {
		bound_size(total_bytes, limit);
		bound_size(free_bytes, subtract(limit, used));
	}
	if (is_low(place) && read_low_limit(place, gpu) != UINT64_MAX) {
		bound_size(total_bytes, read_low_limit(place, gpu));
		bound_size(free_bytes, subtract(read_low_share(place, gpu), used));
	}
}

void hb_memory_leave_in_child(void)
{
	hb_memory_table_reset();
	hb_pools_leave_in_child();
	memset(kept_bytes, 0, sizeof(kept_bytes));
}
