/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory account (memory_account.h). hummingbird/page.h (struct hb_page_gpu)
 * has the rules for the words on the pages. All sums are unsigned and saturate at
 * 0, so an error in an account never becomes a huge number.
 */
#include "shim/memory_account.h"

#include "base/fault_point.h"
#include "shim/shim_foresight.h"
#include "shim/shim_tenant.h"

#include <string.h>

/* Bytes that the driver kept when last asked, minus those that allocations have used since. They are on the account. */
static hb_page_u64 kept_bytes[HB_N_KEPT][HB_PAGE_GPUS];

/* False: the sum would exceed the limit. */
static bool raise_sum(hb_page_u64 *sum, uint64_t bytes, uint64_t limit)
{
	uint64_t used = atomic_load_explicit(sum, memory_order_relaxed);
	do
		if (bytes > limit || used > limit - bytes)
			return false;
	while (!atomic_compare_exchange_weak_explicit(sum, &used, used + bytes, memory_order_relaxed,
						      memory_order_relaxed));
	return true;
}

static void lower_sum(hb_page_u64 *sum, uint64_t bytes)
{
	uint64_t used = atomic_load_explicit(sum, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(sum, &used, used > bytes ? used - bytes : 0, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

/* Returns the sum that all LP tenants share; NULL in HP. */
static hb_page_u64 *find_low_sum(const struct hb_place *place, unsigned gpu)
{
	bool low = atomic_load_explicit(&place->page->priority, memory_order_relaxed) == HB_PAGE_LOW;
	return low && place->gpus[gpu] ? &place->gpus[gpu]->low_used_bytes : NULL;
}

/* Returns what all LP tenants together may use. */
static uint64_t read_low_limit(const struct hb_place *place, unsigned gpu)
{
	uint64_t total = atomic_load_explicit(&place->gpus[gpu]->total_bytes, memory_order_relaxed);
	uint64_t reserve = atomic_load_explicit(&place->gpus[gpu]->reserve_bytes, memory_order_relaxed);
	if (!total)
		return UINT64_MAX;
	return total > reserve ? total - reserve : 0;
}

static uint64_t read_tenant_limit(const struct hb_place *place, unsigned gpu)
{
	return atomic_load_explicit(&place->page->gpus[gpu].limit_bytes, memory_order_relaxed);
}

/* Raises both sums or none. */
static bool raise_sums(const struct hb_place *place, unsigned gpu, uint64_t bytes, bool limited)
{
	hb_page_u64 *used = &place->page->gpus[gpu].used_bytes, *low = find_low_sum(place, gpu);
	if (!raise_sum(used, bytes, limited ? read_tenant_limit(place, gpu) : UINT64_MAX))
		return false;
	if (!low || raise_sum(low, bytes, limited ? read_low_limit(place, gpu) : UINT64_MAX))
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

static bool take_room(const struct hb_place *place, unsigned gpu, uint64_t bytes, bool limited)
{
	begin_change(place);
	HB_FAULT(shim_memory_begun);
	bool taken = raise_sums(place, gpu, bytes, limited);
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
	hb_page_u64 *low = find_low_sum(place, gpu);
	lower_sum(&place->page->gpus[gpu].used_bytes, bytes);
	HB_FAULT(shim_memory_lowered);
	if (low)
		lower_sum(low, bytes);
	lower_sum(&place->process->memory[gpu].used_bytes, bytes);
	end_change(place);
	HB_FAULT(shim_memory_given);
}

bool hb_memory_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	hb_shim_foresight_first_call(HB_SOURCE_ALLOCATION);
	claim->bytes = bytes;
	claim->gpu = place->page ? gpu : HB_PAGE_GPUS;
	if (claim->gpu >= HB_PAGE_GPUS || take_room(place, gpu, bytes, true))
		return true;
	if (hb_memory_shrink_kept(gpu) && take_room(place, gpu, bytes, true))
		return true;
	hb_shim_count(HB_COUNT_allocations_refused, 1);
	return false;
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
	if (take_room(place, gpu, bytes - part, true)) {
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
		take_room(hb_place(), claim->gpu, bytes - claim->bytes, false);
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
	uint64_t limit = read_tenant_limit(place, gpu);
	uint64_t used = atomic_load_explicit(&place->page->gpus[gpu].used_bytes, memory_order_relaxed);
	bool fits = bytes <= limit && used <= limit - bytes;
	hb_page_u64 *low = find_low_sum(place, gpu);
	if (fits && low) {
		limit = read_low_limit(place, gpu);
		used = atomic_load_explicit(low, memory_order_relaxed);
		fits = bytes <= limit && used <= limit - bytes;
	}
	if (!fits)
		hb_shim_count(HB_COUNT_allocations_refused, 1);
	return fits;
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
	while (context && hb_memory_table_take_owned(context, &gone))
		give_room_back(gone.gpu, gone.bytes);
}

void hb_memory_set_kept(enum hb_kept by, unsigned gpu, uint64_t bytes)
{
	const struct hb_place *place = hb_place();
	if (!place->page || gpu >= HB_PAGE_GPUS)
		return;
	uint64_t before = atomic_exchange(&kept_bytes[by][gpu], bytes);
	if (bytes > before)
		take_room(place, gpu, bytes - before, false);
	else
		give_room_back(gpu, before - bytes);
}

static uint64_t count_left(uint64_t limit, const hb_page_u64 *sum)
{
	uint64_t used = atomic_load_explicit(sum, memory_order_relaxed);
	return used < limit ? limit - used : 0;
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
	uint64_t limit = read_tenant_limit(place, gpu);
	if (limit != UINT64_MAX) {
		bound_size(total_bytes, limit);
		bound_size(free_bytes, count_left(limit, &place->page->gpus[gpu].used_bytes));
	}
	hb_page_u64 *low = find_low_sum(place, gpu);
	if (low && read_low_limit(place, gpu) != UINT64_MAX) {
		bound_size(total_bytes, read_low_limit(place, gpu));
		bound_size(free_bytes, count_left(read_low_limit(place, gpu), low));
	}
}

void hb_memory_leave_in_child(void)
{
	hb_memory_table_reset();
	hb_pools_leave_in_child();
	memset(kept_bytes, 0, sizeof(kept_bytes));
}
