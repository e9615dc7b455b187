/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of LP's memory on one GPU; see gpu_elastic.h. */
#include "daemon/gpu_elastic.h"

#include "base/clock.h"
#include "base/units.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_poll.h"
#include "daemon/gpu_processes.h"
#include "daemon/socket_server.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The core counts a tenant as one that does not answer after 2 s; the order expires a little earlier. */
#define ORDER_LIMIT_NS (1900 * HB_NS_PER_MS)
/* HP's call waits 3 s. The core answers after 2.8 s. */
#define NEED_LIMIT_NS (2900 * HB_NS_PER_MS)
/* HP's process calls the driver again at once. Until then LP gets no more memory. */
#define HOLD_NS HB_NS_PER_S
/* An allocation that failed again so soon after the answer: what the driver shows as free did not suffice. */
#define AGAIN_NS (500 * HB_NS_PER_MS)
/* While memory is away, free memory is asked for this often: when it grows, memory returns. */
#define ROOM_EVERY_NS HB_NS_PER_S

static const char *const results[] = {
#define HB_MOVE_RESULT(name, key, text) [HB_MOVE_##name] = (text),
#include "hummingbird/move_results.def"
#undef HB_MOVE_RESULT
};

static const char *const answers[] = {
	[HB_MEMORY_ENOUGH] = "",
	[HB_MEMORY_NOTHING_MOVES] = "low priority has less memory that can move",
	[HB_MEMORY_NO_ROOM] = "the host memory of the pool (elastic_host) does not suffice",
	[HB_MEMORY_NO_ANSWER] = "programs of low priority did not move their memory in time, or refused",
};

struct hb_elastic_gpu *hb_gpu_elastic_new(void)
{
	return calloc(1, sizeof(struct hb_elastic_gpu));
}

void hb_gpu_elastic_free(struct hb_elastic_gpu *elastic)
{
	free(elastic);
}

/* False: the driver does not say. */
static bool read_free(const struct hb_gpu *gpu, uint64_t *bytes)
{
	if (!gpu->use || !gpu->use->total_bytes)
		return false;
	*bytes = gpu->use->total_bytes - hb_bytes_least(gpu->use->total_bytes, gpu->use->used_bytes);
	return true;
}

static struct hb_tenancy *find_elastic(const struct hb_gpu *gpu, uint32_t index)
{
	struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, index);
	return tenancy && hb_tenancy_is_elastic(tenancy) ? tenancy : NULL;
}

static struct hb_elastic_bytes count(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	return hb_elastic_count(tenancy, gpu->tenants[tenancy->index].gpu_index);
}

/* --- needs of HP ---------------------------------------------------------------------------- */

static void note_failure(struct hb_gpu *gpu, uint32_t tenant, uint64_t bytes, const char *why, int64_t now_ns)
{
	gpu->elastic->needs_failed++;
	gpu->elastic->failure = (struct hb_elastic_failure){
		.tenant = tenant, .bytes = bytes, .why = why, .at_ns = now_ns};
}

static void answer_need(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int code, const char *why, int64_t now_ns)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	if (code < 0 && code != -EAGAIN)
		note_failure(gpu, tenancy->number, need->bytes, why, now_ns);
	gpu->elastic->n_needs--;
	gpu->elastic->needs_met += code == 0;
	need->state = HB_NEED_NONE;
	need->answered_ns = code == 0 ? now_ns : 0;
	gpu->elastic->hold_until_ns = code == 0 ? now_ns + HOLD_NS : 0;
	gpu->memory_changed = true;
	hb_user_log(tenancy->user, now_ns, HB_LOG_INFO,
		    "tenant %u needed %llu MiB more of GPU %u: %s after %lld ms%s%s", tenancy->number,
		    (unsigned long long)(need->bytes >> 20), gpu->number, code == 0 ? "room was made" : "no room",
		    (long long)((now_ns - need->asked_ns) / HB_NS_PER_MS), why[0] ? ": " : "", why);
	if (gpu->daemon->server)
		hb_server_answer_memory(gpu->daemon->server, gpu, tenancy, code, why);
}

static uint64_t sum_movable(const struct hb_gpu *gpu)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			sum += count(gpu, find_elastic(gpu, i)).movable;
	return sum;
}

int hb_gpu_elastic_need(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint64_t bytes, int64_t now_ns,
			const char **why)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	*why = "another allocation of the tenant waits for memory";
	if (need->state)
		return -EAGAIN;
	gpu->elastic->needs++;
	*why = NULL;
	if (!sum_movable(gpu))
		*why = "no program of low priority has memory that can move";
	else if (!bytes || (gpu->page->total_bytes && bytes > gpu->page->total_bytes))
		*why = "the GPU has less memory";
	else if (!hb_gpu_processes_poll(gpu->daemon->processes))
		*why = "the driver cannot be asked for the GPU's free memory";
	if (*why) {
		note_failure(gpu, tenancy->number, bytes, *why, now_ns);
		return -ENOMEM;
	}
	bool again = need->answered_ns && now_ns - need->answered_ns < AGAIN_NS && need->bytes == bytes;
	*need = (struct hb_elastic_need){
		.state = HB_NEED_ASKED, .bytes = bytes, .asked_ns = now_ns, .trusts_free = !again};
	gpu->elastic->n_needs++;
	gpu->memory_changed = true; /* LP's leases shrink to what it uses */
	return -EINPROGRESS;
}

static bool is_any_moving(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (gpu->elastic->tenants[i].order.is_active)
			return true;
	return false;
}

static void post_need(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t free_bytes, int64_t now_ns)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	struct hb_event event = {.kind = HB_EVENT_MEMORY_NEED, .tenant = tenancy->index};
	event.memory_need.need_bytes = need->bytes;
	event.memory_need.free_bytes = need->trusts_free ? free_bytes : 0;
	event.memory_need.host_bytes = sum_movable(gpu);
	need->state = HB_NEED_POSTED;
	need->sequence = gpu->elastic->next_sequence++;
	if (!is_any_moving(gpu))
		gpu->elastic->free_bytes = free_bytes;
	if (hb_gpu_post(gpu, now_ns, &event) < 0 && need->state)
		answer_need(gpu, tenancy, -ENOMEM, "the GPU's core refused the need", now_ns);
}

static void end_late_needs(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; gpu->elastic->n_needs && i < gpu->tenants_end; i++) {
		const struct hb_elastic_need *need = &gpu->elastic->tenants[i].need;
		if (hb_gpu_tenancy(gpu, i) && need->state && now_ns - need->asked_ns > NEED_LIMIT_NS)
			answer_need(gpu, hb_gpu_tenancy(gpu, i), -ENOMEM,
				    "the driver did not say in time how much memory is free", now_ns);
	}
}

/* --- orders ----------------------------------------------------------------------------------- */

static void publish_order(struct hb_page_elastic *record, enum hb_order_direction direction, uint64_t bytes,
			  uint32_t sequence, int64_t expires_ns)
{
	record->order_peer_bytes = 0;
	record->order_host_bytes = bytes;
	record->order_direction = direction;
	record->order_expires_ns = expires_ns;
	atomic_store_explicit(&record->order, sequence, memory_order_release);
}

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

/* What a record can contribute to the order. */
static uint64_t capacity_of(const struct hb_tenancy *tenancy, uint32_t index, enum hb_order_direction direction)
{
	if (direction == HB_ORDER_AWAY)
		return hb_elastic_movable(tenancy, index);
	return hb_bytes_least(tenancy->page->elastic_gpus[index].host_bytes, tenancy->host_limits[index]);
}

static void order_record(struct hb_memory_order *order, struct hb_tenancy *tenancy, uint32_t index, uint64_t bytes,
			 int64_t now_ns)
{
	struct hb_page_elastic *record = &tenancy->page->elastic_gpus[index];
	uint32_t sequence = order->sequences[index] > record->order ? order->sequences[index] : record->order;
	order->sequences[index] = sequence + 1 ? sequence + 1 : 1;
	order->most[index] = bytes;
	order->waiting |= 1u << index;
	publish_order(record, order->direction, bytes, order->sequences[index], now_ns + ORDER_LIMIT_NS);
}

/* The order goes to as many processes as it takes, at the same time. */
static void give_order(struct hb_gpu *gpu, struct hb_tenancy *tenancy, enum hb_order_direction direction,
		       uint64_t bytes, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	order->direction = direction;
	order->is_active = true;
	order->waiting = 0;
	order->bytes = bytes;
	order->reported = 0;
	order->given_ns = now_ns;
	order->answered_ns = 0;
	order->reason = HB_MOVE_NOTHING;
	order->asker = find_asker(gpu);
	for (uint32_t i = 0; bytes && i < HB_PAGE_ELASTIC; i++) {
		uint64_t part = 0;
		if (hb_elastic_owns(tenancy, i, gpu->tenants[tenancy->index].gpu_index))
			part = hb_bytes_least(capacity_of(tenancy, i, direction), bytes);
		if (part)
			order_record(order, tenancy, i, part, now_ns);
		bytes -= part;
	}
	ring_bell(tenancy->page);
	hb_gpu_update_doorbell(gpu);
	hb_daemon_wake(gpu->daemon);
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
	order->is_active = false;
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
	hb_gpu_post(gpu, now_ns, &event);
	hb_daemon_wake(gpu->daemon);
}

static void poll_order(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	if (!order->is_active || order->answered_ns)
		return;
	for (uint32_t i = 0; i < HB_PAGE_ELASTIC; i++)
		if (order->waiting & 1u << i)
			read_result(order, tenancy, i, gpu->tenants[tenancy->index].gpu_index);
	bool late = now_ns - order->given_ns > ORDER_LIMIT_NS + HB_TICK_MS * HB_NS_PER_MS;
	if (order->waiting && !late)
		return;
	if (order->waiting)
		order->reason = HB_MOVE_LATE;
	order->waiting = 0;
	order->answered_ns = now_ns;
	/* Memory that comes home needs no proof; without a driver that answers, nothing is proved. */
	if (order->direction == HB_ORDER_HOME)
		end_order(gpu, tenancy, order->reported, now_ns);
	else if (!order->reported || !hb_gpu_processes_poll(gpu->daemon->processes))
		end_order(gpu, tenancy, 0, now_ns);
}

void hb_gpu_elastic_act(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_action *action, int64_t now_ns)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	switch (action->kind) {
	case HB_ACTION_MEMORY_MOVE:
		give_order(gpu, tenancy, HB_ORDER_AWAY, action->memory_move.peer_bytes + action->memory_move.host_bytes,
			   now_ns);
		break;
	case HB_ACTION_MEMORY_RETURN:
		give_order(gpu, tenancy, HB_ORDER_HOME, action->memory_return.return_bytes, now_ns);
		break;
	case HB_ACTION_MEMORY_ANSWER:
		if (need->state)
			answer_need(gpu, tenancy, action->memory_answer.result == HB_MEMORY_ENOUGH ? 0 : -ENOMEM,
				    answers[action->memory_answer.result], now_ns);
		break;
	default:
		break;
	}
}

/* --- what can move, and how much is free ----------------------------------------------------- */

static void post_state(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	struct hb_elastic_bytes bytes = count(gpu, tenancy);
	struct hb_event event = {.kind = HB_EVENT_MEMORY_STATE, .tenant = tenancy->index};
	if (tenant->order.is_active || (tenant->movable == bytes.movable && tenant->away == bytes.away))
		return;
	event.memory_state.movable_bytes = tenant->movable = bytes.movable;
	event.memory_state.away_bytes = tenant->away = bytes.away;
	hb_gpu_post(gpu, now_ns, &event);
}

static void post_states(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			post_state(gpu, find_elastic(gpu, i), now_ns);
}

void hb_gpu_elastic_poll(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			poll_order(gpu, find_elastic(gpu, i), now_ns);
	end_late_needs(gpu, now_ns);
}

static bool is_any_away(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i) && gpu->elastic->tenants[i].away)
			return true;
	return false;
}

void hb_gpu_elastic_tick(struct hb_gpu *gpu, int64_t now_ns)
{
	post_states(gpu, now_ns);
	if (now_ns - gpu->elastic->sample_ns > ROOM_EVERY_NS && is_any_away(gpu))
		hb_gpu_processes_poll(gpu->daemon->processes);
}

void hb_gpu_elastic_begin_sample(struct hb_gpu *gpu, int64_t now_ns)
{
	gpu->elastic->sample_ns = now_ns;
}

/* A tenant's move counts up to what free memory has grown by since the last move was counted. */
static void credit_move(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t free_bytes, int64_t now_ns)
{
	struct hb_memory_order *order = &gpu->elastic->tenants[tenancy->index].order;
	if (!order->is_active || !order->answered_ns || order->answered_ns > gpu->elastic->sample_ns)
		return;
	uint64_t grown = free_bytes > gpu->elastic->free_bytes ? free_bytes - gpu->elastic->free_bytes : 0;
	uint64_t bytes = hb_bytes_least(order->reported, grown);
	gpu->elastic->free_bytes += bytes;
	end_order(gpu, tenancy, bytes, now_ns);
}

static void post_room(struct hb_gpu *gpu, uint64_t free_bytes, int64_t now_ns)
{
	uint64_t reserve = gpu->daemon->config.reserve_bytes;
	struct hb_event event = {.kind = HB_EVENT_MEMORY_ROOM};
	event.memory_room.room_bytes = free_bytes > reserve ? free_bytes - reserve : 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		if (!find_elastic(gpu, i) || !gpu->elastic->tenants[i].away)
			continue;
		event.tenant = i;
		hb_gpu_post(gpu, now_ns, &event);
		return;
	}
}

void hb_gpu_elastic_end_sample(struct hb_gpu *gpu, int64_t now_ns)
{
	uint64_t free_bytes = 0;
	bool known = read_free(gpu, &free_bytes);
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			credit_move(gpu, find_elastic(gpu, i), known ? free_bytes : 0, now_ns);
	if (gpu->elastic->n_needs)
		post_states(gpu, now_ns);
	for (uint32_t i = 0; gpu->elastic->n_needs && i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		const struct hb_elastic_need *need = &gpu->elastic->tenants[i].need;
		if (!tenancy || need->state != HB_NEED_ASKED || need->asked_ns > gpu->elastic->sample_ns)
			continue;
		if (known)
			post_need(gpu, tenancy, free_bytes, now_ns);
		else
			answer_need(gpu, tenancy, -ENOMEM, "the driver does not say how much memory is free", now_ns);
	}
	if (known && !gpu->elastic->n_needs && now_ns >= gpu->elastic->hold_until_ns)
		post_room(gpu, free_bytes, now_ns);
	hb_daemon_wake(gpu->daemon);
}

void hb_gpu_elastic_forget(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	if (tenant->need.state)
		answer_need(gpu, tenancy, -EAGAIN, "the GPU's engine changes", now_ns);
	tenant->order.is_active = false;
	tenant->movable = tenant->away = 0; /* as a new core assumes */
}

void hb_gpu_elastic_reset(struct hb_gpu *gpu, uint32_t index)
{
	gpu->elastic->tenants[index] = (struct hb_elastic_tenant){.movable = 0};
}

/* --- what others ask ------------------------------------------------------------------------- */

bool hb_gpu_elastic_is_waiting(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (gpu->elastic->tenants[i].order.is_active && !gpu->elastic->tenants[i].order.answered_ns)
			return true;
	return false;
}

bool hb_gpu_elastic_holds(const struct hb_gpu *gpu, int64_t now_ns)
{
	return gpu->elastic->n_needs || now_ns < gpu->elastic->hold_until_ns;
}
