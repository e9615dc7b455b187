/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of this process on the tenant's page (struct hb_page_elastic): it
 * reports what it has, reads orders, and writes their results.
 */
#include "shim/elastic.h"
#include "shim/memory_table.h"

#include <string.h>

_Static_assert((int)HB_STAY_SHARED == (int)HB_PAGE_STAY_SHARED + 1 &&
		       (int)HB_STAY_PEERS == (int)HB_PAGE_STAY_PEERS + 1 &&
		       (int)HB_STAY_DEVICE == (int)HB_PAGE_STAY_DEVICE + 1,
	       "reasons of granules.h and stay_reasons.def");

static uint64_t owner_of(const struct hb_place *place)
{
	uint32_t slot = (uint32_t)(place->process - place->page->processes);
	return HB_ELASTIC_OWNER(slot, atomic_load_explicit(&place->process->generation, memory_order_relaxed));
}

/* Called by one thread at a time for each device. */
struct hb_page_elastic *hb_elastic_record(const struct hb_place *place, int device)
{
	if (!place->page || place->gpu_of_device[device] >= HB_PAGE_GPUS)
		return NULL;
	uint64_t owner = owner_of(place);
	uint32_t gpu = place->gpu_of_device[device] + 1u;
	struct hb_page_elastic *records = place->page->elastic_gpus;
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++)
		if (atomic_load_explicit(&records[i].owner, memory_order_acquire) == owner &&
		    atomic_load_explicit(&records[i].gpu, memory_order_relaxed) == gpu)
			return &records[i];
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++) {
		uint64_t unused = 0;
		if (!atomic_compare_exchange_strong(&records[i].owner, &unused, owner))
			continue;
		atomic_store_explicit(&records[i].gpu, gpu, memory_order_release);
		return &records[i];
	}
	return NULL;
}

/* ---- sizes ---- */

static void store(hb_page_u64 *to, uint64_t bytes)
{
	atomic_store_explicit(to, bytes, memory_order_relaxed);
}

static uint64_t subtract_bytes(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

/* Stores how much this process has on the GPU besides granules. `granules`: the bytes of all granules that are on the account, wherever they are; `adopted` of them belong to handles of the program. */
static void store_others(const struct hb_place *place, unsigned gpu, struct hb_page_elastic *record, uint64_t granules,
			 uint64_t adopted)
{
	uint64_t used = atomic_load_explicit(&place->process->memory[gpu].used_bytes, memory_order_relaxed);
	uint64_t small = hb_memory_table_sum(HB_MEMORY_POINTER, gpu, HB_GRANULE_UNIT);
	uint64_t handles = subtract_bytes(hb_memory_table_sum(HB_MEMORY_PHYSICAL, gpu, UINT64_MAX), adopted);
	store(&record->stays_bytes[HB_PAGE_STAY_SMALL], small);
	store(&record->stays_bytes[HB_PAGE_STAY_HANDLE], handles);
	store(&record->stays_bytes[HB_PAGE_STAY_DRIVER], subtract_bytes(used, granules + small + handles));
}

void hb_elastic_publish(const struct hb_place *place, int device)
{
	struct hb_granules_bytes counts;
	struct hb_granules *granules = hb_elastic_granules(device);
	struct hb_page_elastic *record = granules ? hb_elastic_record(place, device) : NULL;
	if (!record)
		return;
	hb_granules_count(granules, &counts);
	bool stays = hb_elastic_is_known_to_devices();
	store(&record->local_bytes, counts.local);
	store(&record->peer_bytes, counts.peer);
	store(&record->host_bytes, counts.host);
	store(&record->movable_bytes, stays ? 0 : counts.movable);
	store(&record->spare_bytes, counts.spare);
	store(&record->over_bytes, counts.over < counts.host ? counts.over : counts.host);
	store(&record->leaked_bytes, counts.leaked);
	store(&record->stays_bytes[HB_PAGE_STAY_SHARED], counts.stays[HB_STAY_SHARED]);
	store(&record->stays_bytes[HB_PAGE_STAY_PEERS], counts.stays[HB_STAY_PEERS]);
	store(&record->stays_bytes[HB_PAGE_STAY_DEVICE], counts.stays[HB_STAY_DEVICE] + (stays ? counts.movable : 0));
	store_others(place, place->gpu_of_device[device], record,
		     subtract_bytes(counts.local + counts.peer + counts.host, counts.over), counts.adopted);
}

/* ---- orders ---- */

static bool has_order(const struct hb_page_elastic *record, uint32_t number)
{
	return number && number != atomic_load_explicit(&record->result, memory_order_relaxed);
}

bool hb_elastic_read_order(const struct hb_page_elastic *record, struct hb_elastic_order *order)
{
	unsigned char peer[16];
	order->number = atomic_load_explicit(&record->order, memory_order_acquire);
	if (!has_order(record, order->number))
		return false;
	memcpy(peer, record->order_peer, sizeof(peer));
	uint32_t direction = atomic_load_explicit(&record->order_direction, memory_order_acquire);
	order->home = direction == HB_ORDER_HOME;
	order->pause = direction == HB_ORDER_PAUSE;
	order->leave = direction == HB_ORDER_LEAVE;
	order->peer_bytes = atomic_load_explicit(&record->order_peer_bytes, memory_order_acquire);
	order->host_bytes = atomic_load_explicit(&record->order_host_bytes, memory_order_acquire);
	order->expires_ns = atomic_load_explicit(&record->order_expires_ns, memory_order_acquire);
	order->peer = order->peer_bytes ? hb_tenant_find_device(peer) : -1;
	return hb_elastic_is_awaited(record, order); /* else these may be parts of two orders */
}

bool hb_elastic_is_awaited(const struct hb_page_elastic *record, const struct hb_elastic_order *order)
{
	return atomic_load_explicit(&record->order, memory_order_relaxed) == order->number;
}

void hb_elastic_answer(const struct hb_place *place, int device, struct hb_page_elastic *record,
		       const struct hb_elastic_order *order, enum hb_move_result reason, size_t moved_bytes)
{
	hb_elastic_publish(place, device);
	store(&record->moved_bytes, moved_bytes);
	atomic_store_explicit(&record->reason, (uint32_t)reason, memory_order_relaxed);
	atomic_store_explicit(&record->result, order->number, memory_order_release);
	hb_gpu_ring(place, place->gpu_of_device[device], HB_NEWS_MOVED);
}
