/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to move memory: from giving one to its result; see gpu_orders.h. */
#include "daemon/gpu_orders.h"

#include "base/clock.h"
#include "base/units.h"
#include "core/core.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_peers.h"
#include "daemon/gpu_poll.h"
#include "daemon/gpu_processes.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So much earlier than the core gives the tenant up, an order expires. */
#define EARLY_NS INT64_C(150000000)

static const char *const results[] = {
#define HB_MOVE_RESULT(name, key, text) [HB_MOVE_##name] = (text),
#include "hummingbird/move_results.def"
#undef HB_MOVE_RESULT
};

/* Host memory is mapped in pages of 4 KiB, and the GPU holds 8 bytes of page table for each. Twice that is ordered in addition. */
#define TABLE_SHARE 256

/* What one process is ordered to move. */
struct order_part {
	uint64_t peer_bytes, host_bytes;
};

static void ring_bell(struct hb_page *page)
{
	atomic_fetch_add(&page->order_bell, 1);
	syscall(SYS_futex, &page->order_bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The number of the HP tenant whose need the core serves; 0 = none. */
static uint32_t find_asker(const struct hb_gpu *gpu)
{
	const struct hb_elastic_need *first = NULL;
	uint32_t number = 0;
	for (uint32_t i = 0; gpu->elastic->n_needs && i < gpu->tenants_end; i++) {
		const struct hb_elastic_need *need = &gpu->elastic->tenants[i].need;
		if (!hb_gpu_tenancy(gpu, i) || need->state != HB_NEED_POSTED ||
		    (first && first->sequence < need->sequence))
			continue;
		first = need;
		number = hb_gpu_tenancy(gpu, i)->number;
	}
	return number;
}

/* Returns how many bytes the record's process can move for an order in this direction. */
static uint64_t capacity_of(const struct hb_tenancy *tenancy, uint32_t index, enum hb_order_direction direction)
{
	if (direction == HB_ORDER_LEAVE)
		return hb_elastic_leaving(tenancy, index);
	if (direction == HB_ORDER_HOME)
		return hb_elastic_on_peer(tenancy, index) + hb_elastic_returning(tenancy, index);
	return hb_elastic_movable(tenancy, index);
}

/* How much of the bytes is on the peer, or goes there. */
static uint64_t choose_peer_bytes(const struct hb_order_wish *wish, const struct hb_tenancy *tenancy, uint32_t index,
				  uint64_t bytes, uint64_t peer_left)
{
	if (wish->direction == HB_ORDER_AWAY)
		return hb_bytes_least(bytes, peer_left);
	return wish->direction == HB_ORDER_PAUSE ? 0 : hb_bytes_least(bytes, hb_elastic_on_peer(tenancy, index));
}

static int64_t limit_of(enum hb_order_direction direction)
{
	bool for_high = direction == HB_ORDER_AWAY || direction == HB_ORDER_LEAVE;
	return (for_high ? HB_MEMORY_MOVE_LIMIT_NS : HB_MEMORY_STEP_LIMIT_NS) - EARLY_NS;
}

static void order_record(const struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t index,
			 const struct order_part *part, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	uint32_t sequence = order->sequences[index] > record->order ? order->sequences[index] : record->order;
	order->sequences[index] = sequence + 1 ? sequence + 1 : 1;
	order->most[index] = capacity_of(tenancy, index, order->direction); /* it may move more than asked for */
	order->waiting |= 1u << index;
	const struct hb_gpu *peer = gpu->elastic->peer;
	if (part->peer_bytes && peer)
		memcpy(record->order_peer, peer->uuid, sizeof record->order_peer);
	if (part->peer_bytes && peer && peer->use && order->direction == HB_ORDER_AWAY)
		hb_elastic_order_to_peer(tenancy, index, part->peer_bytes, peer->use->total_bytes);
	record->order_peer_bytes = part->peer_bytes;
	record->order_host_bytes = part->host_bytes;
	record->order_direction = order->direction;
	record->order_expires_ns = now_ns + limit_of(order->direction);
	atomic_store_explicit(&record->order, order->sequences[index], memory_order_release);
}

/* What the page tables of memory on the host take from the room that a move makes. */
static uint64_t table_bytes(const struct hb_order_wish *wish)
{
	bool makes_room = wish->direction == HB_ORDER_AWAY || wish->direction == HB_ORDER_PAUSE;
	return makes_room ? (wish->bytes - wish->peer_bytes) / TABLE_SHARE : 0;
}

/* Gives each process its part, until `bytes` are ordered. */
static void order_records(const struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_order_wish *wish,
			  int64_t now_ns)
{
	uint64_t left = wish->bytes + table_bytes(wish), peer_left = wish->peer_bytes;
	for (uint32_t i = 0; (left || wish->wake) && i < HB_PAGE_ELASTIC; i++) {
		if (!hb_elastic_owns(tenancy, i, gpu->tenants[tenancy->index].gpu_index))
			continue;
		uint64_t bytes = hb_bytes_least(capacity_of(tenancy, i, wish->direction), left);
		uint64_t peer = choose_peer_bytes(wish, tenancy, i, bytes, peer_left);
		if (bytes || wish->wake)
			order_record(gpu, tenancy, i, &(struct order_part){peer, bytes - peer}, now_ns);
		left -= bytes;
		peer_left -= hb_bytes_least(peer, peer_left);
	}
}

/* The order goes to as many processes as it takes, at the same time; to all of them if they wait for it. */
void hb_gpu_order_give(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_order_wish *wish, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	hb_gpu_order_drop(gpu, tenancy->index);
	order->direction = wish->direction;
	order->is_active = true;
	order->waiting = 0;
	order->bytes = wish->bytes;
	order->reported = 0;
	order->given_ns = now_ns;
	order->answered_ns = 0;
	order->reason = HB_MOVE_NOTHING;
	order->left = wish->left;
	order->asker = find_asker(wish->left ? wish->left : gpu);
	order_records(gpu, tenancy, wish, now_ns);
	ring_bell(tenancy->page);
	hb_gpu_update_doorbell(gpu);
	hb_daemon_wake(gpu->daemon);
}

void hb_gpu_order_drop(struct hb_gpu *gpu, uint32_t index)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[index].order;
	struct hb_gpu *left = order->left;
	order->is_active = false;
	order->left = NULL;
	if (left)
		hb_peers_end_order(left, 0);
}

/* A process that has ended has given all its memory back. */
static bool read_result(struct hb_memory_order *order, const struct hb_tenancy *tenancy, uint32_t index,
			uint32_t gpu_index)
{
	const struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	uint64_t moved = order->most[index];
	uint32_t reason = HB_MOVE_MOVED;
	if (hb_elastic_owns(tenancy, index, gpu_index)) {
		if (atomic_load_explicit(&record->result, memory_order_acquire) != order->sequences[index])
			return false;
		moved = record->moved_bytes;
		reason = record->reason;
	}
	order->reported += hb_bytes_least(moved, order->most[index]);
	order->reason = reason < HB_N_MOVE_RESULTS ? reason : HB_MOVE_FAILED;
	order->waiting &= ~(1u << index);
	return true;
}

static void note_asker(struct hb_elastic_tenant *tenant, const struct hb_elastic_move *move)
{
	struct hb_elastic_asker *found = &tenant->askers[0];
	for (size_t i = 0; i < HB_ELASTIC_ASKERS && found->tenant != move->for_tenant; i++)
		if (tenant->askers[i].tenant == move->for_tenant || tenant->askers[i].last_ns < found->last_ns)
			found = &tenant->askers[i];
	if (found->tenant != move->for_tenant)
		*found = (struct hb_elastic_asker){.tenant = move->for_tenant};
	found->moves++;
	found->bytes += move->bytes;
	found->move_ns += move->took_ns;
	found->last_ns = move->at_ns;
}

static void note_move(struct hb_elastic_tenant *tenant, uint64_t bytes, int64_t now_ns)
{
	const struct hb_memory_order *order = &tenant->order;
	bool home = order->direction == HB_ORDER_HOME;
	tenant->last = (struct hb_elastic_move){.bytes = bytes,
						.asked_bytes = order->bytes,
						.took_ns = (order->answered_ns ? order->answered_ns : now_ns) -
							   order->given_ns,
						.at_ns = now_ns,
						.for_tenant = home ? 0 : order->asker,
						.home = home,
						.result = results[order->reason]};
	tenant->moves[home] += bytes > 0;
	tenant->moved_bytes[home] += bytes;
	tenant->move_ns[home] += bytes ? tenant->last.took_ns : 0;
	tenant->refused += bytes < order->bytes;
	if (bytes && tenant->last.for_tenant)
		note_asker(tenant, &tenant->last);
}

static void end_order(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t bytes, int64_t now_ns)
{
	struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	struct hb_memory_order *order = &tenant->order;
	bool home = order->direction == HB_ORDER_HOME;
	struct hb_event event = {.kind = home ? HB_EVENT_MEMORY_RETURNED : HB_EVENT_MEMORY_MOVED,
				 .tenant = tenancy->index};
	if (home)
		event.memory_returned.returned_bytes = bytes;
	else
		event.memory_moved.moved_bytes = bytes;
	struct hb_gpu *left = order->left;
	order->is_active = false;
	order->left = NULL;
	note_move(tenant, bytes, now_ns);
	if (left)
		hb_peers_end_order(left, bytes);
	else
		hb_gpu_post(gpu, now_ns, &event);
	hb_daemon_wake(gpu->daemon);
}

void hb_gpu_order_poll(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	if (!order->is_active || order->answered_ns)
		return;
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++)
		if (order->waiting & 1u << i)
			read_result(order, tenancy, i, gpu->tenants[tenancy->index].gpu_index);
	bool late = now_ns - order->given_ns > limit_of(order->direction) + HB_TICK_MS * HB_NS_PER_MS;
	if (order->waiting && !late)
		return;
	if (order->waiting)
		order->reason = HB_MOVE_LATE;
	order->waiting = 0;
	order->answered_ns = now_ns;
	/* Only what makes room for HP of this GPU is proved; without a driver that answers, nothing is. */
	bool proved = order->direction == HB_ORDER_AWAY ||
		      (order->direction == HB_ORDER_PAUSE && gpu->elastic->n_needs);
	if (!proved)
		end_order(gpu, tenancy, order->reported, now_ns);
	else if (!order->reported || !hb_gpu_processes_poll(gpu->daemon->processes))
		end_order(gpu, tenancy, 0, now_ns);
}

/* By what free memory has grown since the last move was counted. */
void hb_gpu_order_credit(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t free_bytes, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	if (!order->is_active || !order->answered_ns || order->answered_ns > gpu->elastic->sample_ns)
		return;
	uint64_t grown = free_bytes > gpu->elastic->free_bytes ? free_bytes - gpu->elastic->free_bytes : 0;
	uint64_t bytes = hb_bytes_least(order->reported, grown);
	gpu->elastic->free_bytes += bytes;
	end_order(gpu, tenancy, bytes, now_ns);
}
