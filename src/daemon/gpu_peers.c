/* SPDX-License-Identifier: Apache-2.0 */
/* Memory on peer GPUs; see gpu_peers.h. */
#include "daemon/gpu_peers.h"

#include "base/clock.h"
#include "base/units.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_orders.h"
#include "daemon/gpu_processes.h"

#include <errno.h>

/* After the answer that memory was taken back, an LP tenant calls the driver at once. */
#define TAKEN_NS HB_NS_PER_S

bool hb_peers_read_free(const struct hb_gpu *gpu, uint64_t *bytes)
{
	if (!gpu->use || !gpu->use->total_bytes)
		return false;
	*bytes = gpu->use->total_bytes - hb_bytes_least(gpu->use->total_bytes, gpu->use->used_bytes);
	return true;
}

/* The elastic tenant with this index on the GPU; NULL = it is none. */
static struct hb_tenancy *find_elastic(const struct hb_gpu *gpu, uint32_t index)
{
	struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, index);
	return tenancy && hb_tenancy_is_elastic(tenancy) ? tenancy : NULL;
}

/* What the tenant has on its peer; `leaving`: what of it can leave. */
static uint64_t count_tenant(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool leaving)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++)
		if (hb_elastic_owns(tenancy, i, gpu->tenants[tenancy->index].gpu_index))
			sum += leaving ? hb_elastic_leaving(tenancy, i) : hb_elastic_on_peer(tenancy, i);
	return sum;
}

static uint64_t count_gpu(const struct hb_gpu *gpu, bool leaving)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			sum += count_tenant(gpu, find_elastic(gpu, i), leaving);
	return sum;
}

uint64_t hb_peers_count_guests(const struct hb_gpu *gpu, bool leaving)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->daemon->n_gpus; i++)
		if (gpu->daemon->gpus[i]->elastic->peer == gpu)
			sum += count_gpu(gpu->daemon->gpus[i], leaving);
	return sum;
}

uint64_t hb_peers_count_process(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t slot)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; hb_tenancy_is_elastic(tenancy) && i < tenancy->n_gpus; i++)
		for (uint32_t r = 0; tenancy->gpus[i]->elastic->peer == gpu && r < HB_PAGE_ELASTIC; r++)
			if (hb_elastic_is_of(tenancy, r, slot) && hb_elastic_owns(tenancy, r, i))
				sum += hb_elastic_on_peer(tenancy, r);
	return sum;
}

/* ---- the choice ---- */

/* A GPU is no peer while its own tenants need memory, or have moved some away. */
static uint64_t count_room(const struct hb_gpu *gpu)
{
	uint64_t free_bytes, reserve = gpu->daemon->config.reserve_bytes;
	if (gpu->is_lost || gpu->elastic->n_needs || gpu->elastic->peer || gpu->elastic->leaving ||
	    !hb_peers_read_free(gpu, &free_bytes))
		return 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i) && gpu->elastic->tenants[i].away)
			return 0;
	return free_bytes - hb_bytes_least(free_bytes, reserve);
}

static bool is_ordered(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (gpu->elastic->tenants[i].order.is_active)
			return true;
	return false;
}

uint64_t hb_peers_choose(struct hb_gpu *gpu)
{
	uint64_t most = 0;
	if (!gpu->daemon->config.elastic_peers)
		return 0;
	if (gpu->elastic->peer && (is_ordered(gpu) || count_gpu(gpu, false))) /* memory may be on its way there */
		return count_room(gpu->elastic->peer);
	gpu->elastic->peer = NULL;
	for (uint32_t i = 0; i < gpu->daemon->n_gpus; i++) {
		struct hb_gpu *other = gpu->daemon->gpus[i];
		if (other == gpu || count_room(other) <= most)
			continue;
		most = count_room(other);
		gpu->elastic->peer = other;
	}
	return most;
}

/* No record of the GPU's tenants has more on the peer than that has. False: the driver does not say yet how much it is. */
static bool limit_records(const struct hb_gpu *gpu, const struct hb_gpu *peer)
{
	if (!peer->use || !peer->use->total_bytes)
		return false;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		for (uint32_t r = 0; find_elastic(gpu, i) && r < HB_PAGE_ELASTIC; r++)
			if (hb_elastic_owns(find_elastic(gpu, i), r, gpu->tenants[i].gpu_index))
				hb_elastic_limit_peer(find_elastic(gpu, i), r, peer->use->total_bytes);
	return true;
}

/* After a restart, the last order to a peer says where the memory is. */
static struct hb_gpu *find_peer(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		for (uint32_t r = 0; find_elastic(gpu, i) && r < HB_PAGE_ELASTIC; r++) {
			const struct hb_tenancy *tenancy = find_elastic(gpu, i);
			if (hb_elastic_owns(tenancy, r, gpu->tenants[i].gpu_index) && hb_elastic_on_peer(tenancy, r))
				return hb_gpu_find(gpu->daemon, tenancy->page->elastic_gpus[r].order_peer);
		}
	return NULL;
}

void hb_peers_tick(struct hb_gpu *gpu)
{
	struct hb_gpu *found = gpu->elastic->peer ? NULL : find_peer(gpu);
	if (found && limit_records(gpu, found))
		gpu->elastic->peer = found;
	else if (gpu->elastic->peer && !gpu->elastic->n_needs && !is_ordered(gpu) && !count_gpu(gpu, false))
		gpu->elastic->peer = NULL;
	if (gpu->elastic->peer == gpu)
		gpu->elastic->peer = NULL;
	gpu->page->lent = hb_peers_count_guests(gpu, false) > 0;
}

void hb_peers_forget(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->daemon->n_gpus; i++) {
		struct hb_gpu *other = gpu->daemon->gpus[i];
		if (other->elastic->peer == gpu)
			other->elastic->peer = NULL;
		for (uint32_t t = 0; t < HB_TENANCIES_MAX; t++)
			if (other->elastic->tenants[t].order.left == gpu)
				other->elastic->tenants[t].order.left = NULL;
	}
}

/* ---- guests leave ---- */

/* Orders tenants of this GPU to leave the peer. Returns how many bytes are ordered. */
static uint64_t order_to_leave(struct hb_gpu *gpu, struct hb_gpu *peer, uint64_t bytes, int64_t now_ns)
{
	uint64_t ordered = 0;
	for (uint32_t i = 0; i < gpu->tenants_end && ordered < bytes; i++) {
		struct hb_tenancy *tenancy = find_elastic(gpu, i);
		uint64_t part = tenancy ? count_tenant(gpu, tenancy, true) : 0;
		if (!part || gpu->elastic->tenants[i].order.is_active)
			continue;
		part = hb_bytes_least(part, bytes - ordered);
		peer->elastic->leaving++;
		hb_gpu_order_give(gpu, tenancy,
				  &(struct hb_order_wish){.direction = HB_ORDER_LEAVE, .bytes = part, .left = peer},
				  now_ns);
		ordered += part;
	}
	return ordered;
}

static void let_leave(struct hb_gpu *gpu, uint64_t bytes, int64_t now_ns)
{
	uint64_t ordered = 0;
	gpu->elastic->left_bytes = 0;
	for (uint32_t i = 0; i < gpu->daemon->n_gpus && ordered < bytes; i++)
		if (gpu->daemon->gpus[i]->elastic->peer == gpu)
			ordered += order_to_leave(gpu->daemon->gpus[i], gpu, bytes - ordered, now_ns);
}

void hb_peers_evict(struct hb_gpu *gpu, const struct hb_tenancy *asker, uint64_t bytes, int64_t now_ns)
{
	gpu->elastic->evicts = true;
	gpu->elastic->evicts_for = asker->index;
	let_leave(gpu, bytes, now_ns);
	hb_daemon_wake(gpu->daemon);
}

/* Asks how much is free, unless that was asked a moment ago. False: the driver cannot be asked. */
static bool ask_driver(struct hb_gpu *gpu, int64_t now_ns)
{
	if (gpu->elastic->asked_back_ns && now_ns - gpu->elastic->asked_back_ns < TAKEN_NS)
		return true;
	gpu->elastic->asked_back_ns = now_ns;
	return hb_gpu_processes_poll(gpu->daemon->processes);
}

int hb_peers_take_back(struct hb_gpu *gpu, uint64_t bytes, int64_t now_ns)
{
	uint64_t free_bytes = 0;
	if (gpu->elastic->leaving)
		return -EAGAIN;
	if (gpu->elastic->taken_back_ns && now_ns - gpu->elastic->taken_back_ns < TAKEN_NS) {
		gpu->elastic->taken_back_ns = 0;
		return -EALREADY;
	}
	if (!hb_peers_count_guests(gpu, true) || !ask_driver(gpu, now_ns))
		return 0;
	if (gpu->elastic->sample_ns < gpu->elastic->asked_back_ns)
		return -EAGAIN;
	gpu->elastic->asked_back_ns = 0;
	if (!hb_peers_read_free(gpu, &free_bytes) || free_bytes >= bytes)
		return 0;
	let_leave(gpu, bytes - free_bytes, now_ns);
	gpu->elastic->taken_back_ns = now_ns;
	return gpu->elastic->leaving ? -EAGAIN : 0;
}

void hb_peers_end_order(struct hb_gpu *gpu, uint64_t bytes)
{
	gpu->elastic->leaving -= gpu->elastic->leaving > 0;
	gpu->elastic->left_bytes += bytes;
	hb_daemon_wake(gpu->daemon);
}

/* What left is not proved by the driver: HP calls the driver again in any case. */
void hb_peers_poll(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_event event = {.kind = HB_EVENT_MEMORY_EVICTED, .tenant = gpu->elastic->evicts_for};
	if (!gpu->elastic->evicts || gpu->elastic->leaving)
		return;
	gpu->elastic->evicts = false;
	event.memory_evicted.evicted_bytes = gpu->elastic->left_bytes;
	hb_gpu_post(gpu, now_ns, &event);
}
