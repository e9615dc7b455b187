/* SPDX-License-Identifier: Apache-2.0 */
/* Places programs on GPUs; see placements.h. */
#include "daemon/placements.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/uuid.h"
#include "core/placement.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/gpu.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_memory.h"
#include "daemon/status_tenant.h"
#include "daemon/tenancy.h"
#include "daemon/user_places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIGH_STEPS 6 /* HP's part is that of the last 30 s (HB_USAGE_STEP_NS) */

_Static_assert(HB_PLACE_GPUS_MAX == HB_PLACEMENT_GPUS_MAX && HB_GPUS_MAX >= HB_PLACEMENT_GPUS_MAX,
	       "message, rules and daemon have room for the same number of GPUs");
_Static_assert(HB_PLACEMENT_TEXT_MAX <= HB_PLACED_TEXT_MAX + 1, "a description fits into the answer");
_Static_assert(HB_PLACEMENT_GANGS_MAX >= 2 * HB_TENANCIES_MAX, "each tenant and each placement can be a gang");

struct placement {
	unsigned char token[HB_TOKEN_BYTES];
	uid_t uid;
	struct hb_user *user; /* holds a place for it */
	bool is_high;
	bool had_tenant; /* a tenant with the token has been seen */
	uint32_t n_gpus;
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint64_t memory_bytes;
	int64_t until_ns; /* from then on it does not count where no process has registered */
	char text[HB_PLACEMENT_TEXT_MAX];
};

struct hb_placements {
	struct hb_daemon *daemon;
	uint32_t n_gpus; /* of the machine, in the order of the bus */
	unsigned char uuids[HB_PLACEMENT_GPUS_MAX][HB_UUID_BYTES];
	struct placement *entries[HB_TENANCIES_MAX];
	struct hb_placement_facts facts; /* for the request that is being served */
};

struct hb_placements *hb_placements_new(struct hb_daemon *daemon)
{
	struct hb_placements *made = calloc(1, sizeof *made);
	if (made)
		made->daemon = daemon;
	return made;
}

static void end_placement(struct hb_placements *placements, uint32_t index)
{
	struct placement *entry = placements->entries[index];
	hb_user_give(&placements->daemon->users, entry->user, HB_PLACE_PLACEMENT, 1);
	free(entry);
	placements->entries[index] = NULL;
}

void hb_placements_free(struct hb_placements *placements)
{
	for (uint32_t i = 0; placements && i < HB_TENANCIES_MAX; i++)
		if (placements->entries[i])
			end_placement(placements, i);
	free(placements);
}

void hb_placements_tick(struct hb_placements *placements, int64_t now_ns)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct placement *entry = placements->entries[i];
		if (!entry)
			continue;
		bool has_tenant = hb_tenancy_find(placements->daemon, entry->token);
		entry->had_tenant |= has_tenant;
		if (!has_tenant && (entry->had_tenant || now_ns >= entry->until_ns))
			end_placement(placements, i);
	}
}

/* HB_TENANCIES_MAX = there is none. */
static uint32_t find_entry(const struct hb_placements *placements, const unsigned char token[HB_TOKEN_BYTES])
{
	uint32_t i = 0;
	while (i < HB_TENANCIES_MAX &&
	       !(placements->entries[i] && memcmp(placements->entries[i]->token, token, HB_TOKEN_BYTES) == 0))
		i++;
	return i;
}

/* --- what is known of the GPUs ---------------------------------------------------------------------- */

static uint32_t find_index(const struct hb_placements *placements, const unsigned char uuid[HB_UUID_BYTES])
{
	uint32_t i = 0;
	while (i < placements->n_gpus && memcmp(placements->uuids[i], uuid, HB_UUID_BYTES) != 0)
		i++;
	return i;
}

/* The smallest slack of the objectives of the GPU's HP tenants, relative to the objective. */
static uint32_t find_slack_ppm(const struct hb_gpu *gpu)
{
	uint32_t slack_ppm = 1000000;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		const struct hb_tenant *tenant = tenancy ? hb_core_tenant(gpu->core, i) : NULL;
		if (!tenant || !hb_tenancy_is_high(tenancy) || tenant->slo_ns <= 0 || !tenant->alone_ns)
			continue;
		double left = (double)(tenant->slo_ns - tenant->alone_ns) / (double)tenant->slo_ns;
		uint32_t ppm = left > 0 ? (uint32_t)(left * 1e6) : 0;
		slack_ppm = ppm < slack_ppm ? ppm : slack_ppm;
	}
	return slack_ppm;
}

static void describe_gpu(struct hb_gpu *gpu, struct hb_placement_gpu *fact, int64_t now_ns)
{
	hb_gpu_memory_share(gpu, now_ns); /* a GPU without tenants may not have been counted yet */
	*fact = (struct hb_placement_gpu){
		.is_lost = gpu->is_lost || (gpu->use && gpu->use->is_lost),
		.total_bytes = gpu->use ? gpu->use->total_bytes : 0,
		.used_bytes = gpu->use ? gpu->use->used_bytes : 0,
		.reserve_bytes = gpu->page->reserve_bytes,
		.low_used_bytes = gpu->page->low_used_bytes,
		.high_ppm = hb_gpu_usage_high_ppm(gpu, HIGH_STEPS),
		.slack_ppm = find_slack_ppm(gpu),
	};
	snprintf(fact->label, sizeof fact->label, "GPU %s", gpu->measures->index);
}

/* Whether the tenant has memory there or has launched something. A page shows what its tenant wrote there. */
static bool has_work(const struct hb_tenancy *tenancy, uint32_t i)
{
	const struct hb_gpu *gpu = tenancy->gpus[i];
	return tenancy->page->gpus[i].used_bytes || gpu->measures->tenants[tenancy->index].launches;
}

/*
 * A process registers all GPUs that it can see. The tenant counts on those where it has work; before that, on the first one,
 * which CUDA chooses if the program does not.
 */
static uint64_t collect_gpus(const struct hb_placements *placements, const struct hb_tenancy *tenancy)
{
	uint64_t set = 0, first = 0;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
		uint32_t index = find_index(placements, tenancy->gpus[i]->uuid);
		uint64_t bit = index < placements->n_gpus ? UINT64_C(1) << index : 0;
		first = i == 0 ? bit : first;
		set |= has_work(tenancy, i) ? bit : 0;
	}
	return set ? set : first;
}

/* Finds how much the tenant may still allocate on this GPU of its placement. False: the placement no longer counts there. */
static bool find_claim(const struct hb_placements *placements, const struct placement *entry,
		       const struct hb_tenancy *tenancy, const unsigned char uuid[HB_UUID_BYTES], int64_t now_ns,
		       uint64_t *bytes)
{
	const struct hb_gpu *gpu = hb_gpu_find(placements->daemon, uuid);
	bool is_registered = tenancy && gpu && hb_tenancy_uses(tenancy, gpu);
	uint64_t used = 0;
	if (is_registered)
		used = tenancy->page->gpus[gpu->tenants[tenancy->index].gpu_index].used_bytes;
	*bytes = entry->memory_bytes > used ? entry->memory_bytes - used : 0;
	return is_registered || now_ns < entry->until_ns;
}

/* Counts a program on its GPUs: where it has work as a tenant, and where it was placed. One may be NULL. */
static void count_program(struct hb_placements *placements, const struct placement *entry,
			  const struct hb_tenancy *tenancy, int64_t now_ns)
{
	uint64_t used = tenancy ? collect_gpus(placements, tenancy) : 0, gang = 0, bytes;
	bool is_high = tenancy ? hb_tenancy_is_high(tenancy) : entry->is_high;
	for (uint32_t i = 0; entry && i < entry->n_gpus; i++) {
		uint32_t index = find_index(placements, entry->uuids[i]);
		if (index == placements->n_gpus ||
		    !find_claim(placements, entry, tenancy, entry->uuids[i], now_ns, &bytes))
			continue;
		hb_placement_claim(&placements->facts, index, is_high, bytes);
		gang |= UINT64_C(1) << index;
	}
	for (uint32_t index = 0; index < placements->n_gpus; index++)
		if ((used & ~gang) >> index & 1)
			hb_placement_claim(&placements->facts, index, is_high, 0);
	hb_placement_add_gang(&placements->facts, gang | used);
}

static void count_programs(struct hb_placements *placements, int64_t now_ns)
{
	struct hb_daemon *daemon = placements->daemon;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		uint32_t entry = find_entry(placements, tenancy->token);
		count_program(placements, entry < HB_TENANCIES_MAX ? placements->entries[entry] : NULL, tenancy,
			      now_ns);
	}
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (placements->entries[i] && !hb_tenancy_find(daemon, placements->entries[i]->token))
			count_program(placements, placements->entries[i], NULL, now_ns);
}

static bool is_allowed_gpu(const struct hb_msg_place *request, const unsigned char uuid[HB_UUID_BYTES])
{
	for (uint32_t i = 0; i < request->n_allowed; i++)
		if (memcmp(request->allowed[i], uuid, HB_UUID_BYTES) == 0)
			return true;
	return request->n_allowed == 0;
}

static int collect_facts(struct hb_placements *placements, const struct hb_msg_place *request, int64_t now_ns)
{
	struct hb_placement_facts *facts = &placements->facts;
	facts->n_gangs = 0;
	facts->n_gpus = placements->n_gpus;
	for (uint32_t i = 0; i < placements->n_gpus; i++) {
		struct hb_gpu *gpu = hb_gpu_find(placements->daemon, placements->uuids[i]);
		if (!gpu) /* its record was given to another one meanwhile */
			return -EAGAIN;
		describe_gpu(gpu, &facts->gpus[i], now_ns);
		facts->gpus[i].is_hidden = !is_allowed_gpu(request, placements->uuids[i]);
	}
	count_programs(placements, now_ns);
	return 0;
}

int hb_placements_prepare(struct hb_placements *placements, struct hb_error *error)
{
	struct hb_daemon *daemon = placements->daemon;
	int n = hb_provider_of(daemon->options.simulated)->gpu_list(placements->uuids, HB_PLACEMENT_GPUS_MAX);
	struct hb_gpu *gpu;
	placements->n_gpus = n > 0 ? (uint32_t)n : 0;
	if (n <= 0)
		return hb_error_set(error, -ENOTSUP,
				    "the driver does not list its GPUs, or MIG divides some of them: choose the GPUs "
				    "with CUDA_VISIBLE_DEVICES, without --gpus");
	for (uint32_t i = 0; i < placements->n_gpus; i++) {
		int result = hb_gpu_find_or_add(daemon, placements->uuids[i], &gpu);
		if (result < 0)
			return hb_error_set(error, result, "the daemon cannot add a GPU: %s", strerror(-result));
	}
	return 0;
}

/* --- serving ------------------------------------------------------------------------------------------ */

/* The priority and memory that the program will get as a tenant. */
static struct hb_rights find_rights(const struct hb_daemon *daemon, const struct hb_peer *peer,
				    const struct hb_msg_place *request)
{
	const struct hb_rights wanted = {.priority = (enum hb_page_priority)request->priority,
					 .memory_bytes = request->memory_bytes};
	char reduced[160];
	return hb_admit(&daemon->config, daemon->options.system_mode, peer, &wanted, reduced);
}

/* There is an unused entry for each place. NULL with *error. */
static struct placement *take_entry(struct hb_placements *placements, const struct hb_peer *peer,
				    struct hb_error *error)
{
	struct hb_daemon *daemon = placements->daemon;
	struct hb_user *user = hb_user_of_peer(daemon, peer);
	uint32_t i = 0;
	if (!user || !hb_user_take(&daemon->users, user, HB_PLACE_PLACEMENT)) {
		hb_user_places_refuse(daemon, peer, HB_PLACE_PLACEMENT, error);
		return NULL;
	}
	while (i < HB_TENANCIES_MAX - 1 && placements->entries[i])
		i++;
	struct placement *entry = placements->entries[i] ? NULL : calloc(1, sizeof *entry);
	if (!entry) {
		hb_user_give(&daemon->users, user, HB_PLACE_PLACEMENT, 1);
		hb_error_set(error, -ENOMEM, "out of memory");
		return NULL;
	}
	entry->user = user;
	entry->uid = peer->uid;
	placements->entries[i] = entry;
	return entry;
}

static void write_answer(const struct hb_placements *placements, const struct hb_placement_choice *choice,
			 struct placement *entry, union hb_msg *answer)
{
	for (uint32_t i = 0; i < placements->n_gpus; i++)
		if (choice->chosen >> i & 1)
			memcpy(entry->uuids[entry->n_gpus++], placements->uuids[i], HB_UUID_BYTES);
	hb_msg_init(answer, HB_MSG_PLACED);
	answer->as_PLACED.n_gpus = entry->n_gpus;
	memcpy(answer->as_PLACED.uuids, entry->uuids, sizeof entry->uuids);
	hb_msg_add_text(answer, entry->text, strlen(entry->text));
}

static int refuse_wish(const struct hb_placement_wish *wish, int result, const struct hb_placement_facts *facts,
		       const struct hb_placement_choice *choice, struct hb_error *error)
{
	char text[HB_PLACEMENT_TEXT_MAX];
	if (result == -ENODEV)
		return hb_error_set(error, result, "%u GPUs are wanted, and this machine has %u", wish->n_gpus,
				    facts->n_gpus);
	hb_placement_describe(facts, wish, choice, text, sizeof text);
	return hb_error_set(error, result, "%u GPU%s wanted, and %u can run the program: %.300s", wish->n_gpus,
			    wish->n_gpus == 1 ? " is" : "s are", choice->n_order, text);
}

static int place_program(struct hb_placements *placements, const struct hb_peer *peer,
			 const struct hb_msg_place *request, union hb_msg *answer, struct hb_error *error)
{
	const struct hb_rights rights = find_rights(placements->daemon, peer, request);
	const struct hb_placement_wish wish = {.is_high = rights.priority == HB_PAGE_HIGH,
					       .n_gpus = request->n_gpus,
					       .memory_bytes = rights.memory_bytes};
	struct hb_placement_choice choice;
	int64_t now_ns = hb_clock_now_ns();
	uint32_t seconds = request->seconds ? request->seconds : HB_PLACE_SECONDS;
	if (collect_facts(placements, request, now_ns) < 0)
		return hb_error_set(error, -EAGAIN, "the daemon has more GPUs than it can serve; try again");
	int result = hb_placement_choose(&placements->facts, &wish, &choice);
	if (result < 0)
		return refuse_wish(&wish, result, &placements->facts, &choice, error);
	struct placement *entry = take_entry(placements, peer, error);
	if (!entry)
		return -EDQUOT;
	memcpy(entry->token, request->token, HB_TOKEN_BYTES);
	entry->is_high = wish.is_high;
	entry->memory_bytes = wish.memory_bytes;
	entry->until_ns = now_ns + (int64_t)seconds * HB_NS_PER_S;
	hb_placement_describe(&placements->facts, &wish, &choice, entry->text, sizeof entry->text);
	write_answer(placements, &choice, entry, answer);
	hb_user_log(entry->user, now_ns, HB_LOG_INFO, "a program of user %s was placed: %.300s", peer->user,
		    entry->text);
	return 0;
}

int hb_placements_serve(struct hb_placements *placements, const struct hb_peer *peer,
			const struct hb_msg_place *request, union hb_msg *answer, struct hb_error *error)
{
	uint32_t old = find_entry(placements, request->token);
	const struct hb_tenancy *tenancy = hb_tenancy_find(placements->daemon, request->token);
	if ((old < HB_TENANCIES_MAX && placements->entries[old]->uid != peer->uid && peer->uid != 0) ||
	    (tenancy && tenancy->peer.uid != peer->uid && peer->uid != 0))
		return hb_error_set(error, -EPERM, "the placement or tenant with that token belongs to another user");
	if (old < HB_TENANCIES_MAX)
		end_placement(placements, old);
	if (request->n_gpus)
		return place_program(placements, peer, request, answer, error);
	hb_msg_init(answer, HB_MSG_PLACED);
	return 0;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static json_t *gpus_json(const struct placement *entry)
{
	json_t *array = json_array();
	char uuid[HB_UUID_TEXT_SIZE];
	for (uint32_t i = 0; i < entry->n_gpus; i++)
		hb_status_append(array, json_string(hb_uuid_format(entry->uuids[i], uuid)));
	return array;
}

json_t *hb_placements_tenant_json(const struct hb_placements *placements, const struct hb_tenancy *tenancy)
{
	uint32_t index = find_entry(placements, tenancy->token);
	if (index == HB_TENANCIES_MAX)
		return json_null();
	const struct placement *entry = placements->entries[index];
	bool is_waiting = false;
	for (uint32_t i = 0; i < entry->n_gpus; i++) {
		const struct hb_gpu *gpu = hb_gpu_find(placements->daemon, entry->uuids[i]);
		is_waiting |= !gpu || !hb_tenancy_uses(tenancy, gpu);
	}
	return json_pack("{s:o, s:s, s:b}", "gpus", gpus_json(entry), "text", entry->text, "waiting", (int)is_waiting);
}

json_t *hb_placements_json(const struct hb_placements *placements, int64_t now_ns)
{
	json_t *array = json_array();
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct placement *entry = placements->entries[i];
		if (entry && !hb_tenancy_find(placements->daemon, entry->token))
			hb_status_append(array, json_pack("{s:s, s:o, s:s, s:I}", "user", entry->user->name, "gpus",
							  gpus_json(entry), "text", entry->text, "left_ns",
							  (json_int_t)(entry->until_ns - now_ns)));
	}
	return array;
}
