/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of LP's memory on one GPU; see gpu_elastic.h. */
#include "daemon/gpu_elastic.h"
#include "core/core.h"

#include "base/clock.h"
#include "base/units.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_orders.h"
#include "daemon/gpu_peers.h"
#include "daemon/gpu_processes.h"
#include "daemon/socket_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The core should have answered by then, and HP's call still waits. */
#define NEED_LIMIT_NS (HB_MEMORY_NEED_LIMIT_NS + HB_NS_PER_S / 2)
/* HP's process calls the driver again at once. Until then LP gets no more memory. */
#define HOLD_NS HB_NS_PER_S
/* An allocation that failed again so soon after the answer: what the driver shows as free did not suffice. */
#define AGAIN_NS (500 * HB_NS_PER_MS)
/* While memory is away, free memory is asked for this often: when it grows, memory returns. */
#define ROOM_EVERY_NS HB_NS_PER_S

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
	if (code == 0) /* HP takes it, perhaps while LP still moves memory for the next need */
		gpu->elastic->free_bytes -= hb_bytes_least(gpu->elastic->free_bytes, need->bytes);
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
	if (!sum_movable(gpu) && !hb_peers_count_guests(gpu, true))
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

/* Whether a move is in progress that may count for HP. */
static bool is_any_moving(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_memory_order *order = &gpu->elastic->tenants[i].order;
		if (order->is_active && (order->direction == HB_ORDER_AWAY || order->direction == HB_ORDER_PAUSE))
			return true;
	}
	return false;
}

static void post_need(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t free_bytes, int64_t now_ns)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	struct hb_event event = {.kind = HB_EVENT_MEMORY_NEED, .tenant = tenancy->index};
	event.memory_need.need_bytes = need->bytes;
	event.memory_need.free_bytes = need->trusts_free ? free_bytes : 0;
	event.memory_need.host_bytes = sum_movable(gpu);
	event.memory_need.peer_bytes = hb_peers_choose(gpu);
	event.memory_need.guest_bytes = hb_peers_count_guests(gpu, true);
	need->state = HB_NEED_POSTED;
	need->sequence = gpu->elastic->next_sequence++;
	if (!is_any_moving(gpu) || free_bytes < gpu->elastic->free_bytes)
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

static void order_away(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_action *action, int64_t now_ns)
{
	uint64_t peer = action->memory_move.peer_bytes;
	hb_gpu_order_give(
		gpu, tenancy,
		&(struct hb_order_wish){.direction = action->memory_move.pause ? HB_ORDER_PAUSE : HB_ORDER_AWAY,
					.bytes = peer + action->memory_move.host_bytes,
					.peer_bytes = peer},
		now_ns);
}

void hb_gpu_elastic_act(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_action *action, int64_t now_ns)
{
	struct hb_elastic_need *need = &gpu->elastic->tenants[tenancy->index].need;
	switch (action->kind) {
	case HB_ACTION_MEMORY_MOVE:
		order_away(gpu, tenancy, action, now_ns);
		break;
	case HB_ACTION_MEMORY_RETURN:
		hb_gpu_order_give(gpu, tenancy,
				  &(struct hb_order_wish){.direction = HB_ORDER_HOME,
							  .bytes = action->memory_return.return_bytes,
							  .wake = action->memory_return.wake},
				  now_ns);
		break;
	case HB_ACTION_MEMORY_EVICT:
		hb_peers_evict(gpu, tenancy, action->memory_evict.evict_bytes, now_ns);
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

static void post_wake(struct hb_gpu *gpu, uint32_t index, int64_t now_ns)
{
	gpu->elastic->tenants[index].wake_ns = 0;
	hb_gpu_post_kind(gpu, now_ns, index, HB_EVENT_MEMORY_WAKE);
}

/* With the room that the driver's answer shows. */
static void post_wakes(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		int64_t wake_ns = gpu->elastic->tenants[i].wake_ns;
		if (find_elastic(gpu, i) && wake_ns && wake_ns <= gpu->elastic->sample_ns)
			post_wake(gpu, i, now_ns);
	}
}

/* The core has to know once: a process waits until it gets an order. */
static void poll_parked(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	bool waits = gpu->core_config.memory_idle_ns && count(gpu, tenancy).waits;
	bool begins = waits && !tenant->wakes;
	tenant->wakes = waits;
	if (!begins)
		return;
	tenant->wake_ns = now_ns;
	if (!hb_gpu_processes_poll(gpu->daemon->processes))
		post_wake(gpu, tenancy->index, now_ns);
}

void hb_gpu_elastic_poll(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i)) {
			hb_gpu_order_poll(gpu, find_elastic(gpu, i), now_ns);
			poll_parked(gpu, find_elastic(gpu, i), now_ns);
		}
	hb_peers_poll(gpu, now_ns);
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
	hb_peers_tick(gpu);
	if (now_ns - gpu->elastic->sample_ns > ROOM_EVERY_NS && is_any_away(gpu))
		hb_gpu_processes_poll(gpu->daemon->processes);
}

void hb_gpu_elastic_begin_sample(struct hb_gpu *gpu, int64_t now_ns)
{
	gpu->elastic->sample_ns = now_ns;
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
	bool known = hb_peers_read_free(gpu, &free_bytes);
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i))
			hb_gpu_order_credit(gpu, find_elastic(gpu, i), known ? free_bytes : 0, now_ns);
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
	post_wakes(gpu, now_ns);
	hb_daemon_wake(gpu->daemon);
}

void hb_gpu_elastic_forget(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	if (tenant->need.state)
		answer_need(gpu, tenancy, -EAGAIN, "the GPU's engine changes", now_ns);
	hb_gpu_order_drop(gpu, tenancy->index);
	tenant->wakes = false;
	tenant->wake_ns = 0;
	tenant->movable = tenant->away = 0; /* as a new core assumes */
}

void hb_gpu_elastic_reset(struct hb_gpu *gpu, uint32_t index)
{
	hb_gpu_order_drop(gpu, index);
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

bool hb_gpu_elastic_is_any_parked(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; gpu->core_config.memory_idle_ns && i < gpu->tenants_end; i++)
		if (find_elastic(gpu, i) && count(gpu, find_elastic(gpu, i)).parked)
			return true;
	return false;
}

bool hb_gpu_elastic_holds(const struct hb_gpu *gpu, int64_t now_ns)
{
	return gpu->elastic->n_needs || now_ns < gpu->elastic->hold_until_ns;
}
