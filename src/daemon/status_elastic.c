/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic memory in the status: bytes by place, moves, and what cannot move and why; see gpu_elastic.h. */
#include "base/clock.h"
#include "base/json.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_peers.h"
#include "daemon/status_tenant.h"

#include <stdio.h>

static const char *const stay_keys[] = {
#define HB_STAY_REASON(name, key, text) [HB_PAGE_STAY_##name] = (key),
#include "hummingbird/stay_reasons.def"
#undef HB_STAY_REASON
};

static const char *const stay_texts[] = {
#define HB_STAY_REASON(name, key, text) [HB_PAGE_STAY_##name] = (text),
#include "hummingbird/stay_reasons.def"
#undef HB_STAY_REASON
};

static json_t *stays_json(const struct hb_elastic_bytes *bytes)
{
	json_t *array = json_array();
	for (size_t i = 0; array && i < HB_N_PAGE_STAYS; i++)
		if (bytes->stays[i])
			hb_status_append(array, json_pack("{s:s, s:s, s:I}", "reason", stay_keys[i], "why",
							  stay_texts[i], "bytes", (json_int_t)bytes->stays[i]));
	return array;
}

static json_t *last_move_json(const struct hb_elastic_move *move, int64_t now_ns)
{
	if (!move->at_ns)
		return json_null();
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:s}", "direction", move->home ? "home" : "away", "bytes",
			 (json_int_t)move->bytes, "asked", (json_int_t)move->asked_bytes, "took_ns",
			 (json_int_t)move->took_ns, "age_ns", (json_int_t)(now_ns - move->at_ns), "for_tenant",
			 (int)move->for_tenant, "result", move->result);
}

/* Moves in one direction: 0 = away, 1 = home. */
static json_t *moves_json(const struct hb_elastic_tenant *tenant, int direction)
{
	return json_pack("{s:I, s:I, s:I}", "moves", (json_int_t)tenant->moves[direction], "bytes",
			 (json_int_t)tenant->moved_bytes[direction], "time_ns", (json_int_t)tenant->move_ns[direction]);
}

static json_t *askers_json(const struct hb_elastic_tenant *tenant)
{
	json_t *array = json_array();
	for (size_t i = 0; array && i < HB_ELASTIC_ASKERS; i++) {
		const struct hb_elastic_asker *asker = &tenant->askers[i];
		if (asker->tenant)
			hb_status_append(array,
					 json_pack("{s:I, s:I, s:I, s:I}", "tenant", (json_int_t)asker->tenant, "moves",
						   (json_int_t)asker->moves, "bytes", (json_int_t)asker->bytes,
						   "time_ns", (json_int_t)asker->move_ns));
	}
	return array;
}

json_t *hb_tenant_elastic_json(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns)
{
	const struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	struct hb_elastic_bytes bytes = hb_elastic_count(tenancy, gpu->tenants[tenancy->index].gpu_index);
	if (!hb_tenancy_is_elastic(tenancy))
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:b}", "local",
			 (json_int_t)bytes.local, "peer", (json_int_t)bytes.peer, "host", (json_int_t)bytes.host,
			 "movable", (json_int_t)bytes.movable, "movable_later", (json_int_t)bytes.held, "spare",
			 (json_int_t)bytes.spare, "leaked", (json_int_t)bytes.leaked, "host_limit",
			 (json_int_t)bytes.host_limit, "stays", stays_json(&bytes), "away", moves_json(tenant, 0),
			 "home", moves_json(tenant, 1), "moved_for", askers_json(tenant), "refused",
			 (json_int_t)tenant->refused, "last", last_move_json(&tenant->last, now_ns), "parked",
			 bytes.parked > 0);
}

json_t *hb_gpu_elastic_json(const struct hb_gpu *gpu, int64_t now_ns)
{
	const struct hb_elastic_failure *failure = &gpu->elastic->failure;
	json_t *last = failure->at_ns ? json_pack("{s:i, s:I, s:s, s:I}", "tenant", (int)failure->tenant, "bytes",
						  (json_int_t)failure->bytes, "why", failure->why, "age_ns",
						  (json_int_t)(now_ns - failure->at_ns))
				      : json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "host_pool",
			 (json_int_t)gpu->daemon->config.elastic_host_bytes, "host_granted",
			 (json_int_t)hb_elastic_granted(gpu->daemon), "guests",
			 (json_int_t)hb_peers_count_guests(gpu, false), "needs", (json_int_t)gpu->elastic->needs, "met",
			 (json_int_t)gpu->elastic->needs_met, "failed", (json_int_t)gpu->elastic->needs_failed,
			 "waiting", (int)gpu->elastic->n_needs, "last_failure", last);
}

#define MIB(bytes) ((unsigned long long)(bytes) >> 20)

static void describe_moves(const struct hb_elastic_tenant *tenant, char *text, size_t size)
{
	const struct hb_elastic_move *last = &tenant->last;
	char asker[48] = "";
	if (last->for_tenant)
		snprintf(asker, sizeof asker, " for tenant %u", last->for_tenant);
	snprintf(text, size,
		 "; %llu moves away (%llu MiB), %llu home (%llu MiB); the last: %llu of %llu MiB %s%s in %lld ms: %s",
		 (unsigned long long)tenant->moves[0], MIB(tenant->moved_bytes[0]),
		 (unsigned long long)tenant->moves[1], MIB(tenant->moved_bytes[1]), MIB(last->bytes),
		 MIB(last->asked_bytes), last->home ? "home" : "away", asker, (long long)(last->took_ns / HB_NS_PER_MS),
		 last->result);
}

static void describe_low(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *works, char *why,
			 size_t size)
{
	const struct hb_elastic_tenant *tenant = &gpu->elastic->tenants[tenancy->index];
	struct hb_elastic_bytes bytes = hb_elastic_count(tenancy, gpu->tenants[tenancy->index].gpu_index);
	*works = bytes.records > 0;
	if (!bytes.records) {
		snprintf(why, size, "no process has allocated memory that can move");
		return;
	}
	int n = snprintf(why, size,
			 "%llu MiB on this GPU, %llu MiB on other GPUs, %llu MiB on the host; %llu MiB can move now",
			 MIB(bytes.local), MIB(bytes.peer), MIB(bytes.host), MIB(bytes.movable));
	for (size_t i = 0; i < HB_N_PAGE_STAYS; i++)
		if (bytes.stays[i] >> 20 && n > 0 && (size_t)n < size)
			n += snprintf(why + n, size - (size_t)n, "; %llu MiB stay: %s", MIB(bytes.stays[i]),
				      stay_texts[i]);
	if (tenant->last.at_ns && n > 0 && (size_t)n < size)
		describe_moves(tenant, why + n, size - (size_t)n);
}

bool hb_gpu_elastic_describe(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *works, char *why,
			     size_t size)
{
	const struct hb_elastic_failure *failure = &gpu->elastic->failure;
	if (hb_tenancy_is_elastic(tenancy)) {
		describe_low(gpu, tenancy, works, why, size);
		return true;
	}
	if (!failure->at_ns || failure->tenant != tenancy->number)
		return false;
	*works = false;
	snprintf(why, size, "an allocation of %llu MiB found no room: %s", MIB(failure->bytes), failure->why);
	return true;
}
