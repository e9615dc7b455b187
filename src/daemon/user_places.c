/* SPDX-License-Identifier: Apache-2.0 */
/* The places that users of this daemon share; see user_places.h. */
#include "daemon/user_places.h"

#include "base/clock.h"
#include "daemon/gpu.h"
#include "daemon/gpu_measures.h"
#include "gpu/provider.h"

#include <errno.h>
#include <sys/resource.h>

/* The daemon has one descriptor for each process. */
static uint32_t count_process_places(const struct hb_daemon *daemon)
{
	const uint32_t all = HB_TENANCIES_MAX * HB_PAGE_PROCESSES, other = HB_DESCRIPTORS_MAX - all, least = 64;
	struct rlimit limit;
	if (!daemon->options.system_mode || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    limit.rlim_cur >= HB_DESCRIPTORS_MAX)
		return all;
	uint32_t places = limit.rlim_cur > other + least ? (uint32_t)limit.rlim_cur - other : least;
	hb_log_warning("the limit of %llu open files allows %u processes that use CUDA; raise LimitNOFILE of the "
		       "service to %u for %u of them",
		       (unsigned long long)limit.rlim_cur, places, HB_DESCRIPTORS_MAX, all);
	return places;
}

void hb_user_places_init(struct hb_daemon *daemon)
{
	bool shared = daemon->options.system_mode;
	const struct hb_place_limit limits[HB_N_PLACES] = {
		[HB_PLACE_TENANT] = {.total = HB_TENANCIES_MAX - (shared ? HB_SERVER_PLACES : 0)},
		[HB_PLACE_PROCESS] = {.total = count_process_places(daemon)},
		[HB_PLACE_CONNECTION] = {.total = HB_CONNECTIONS_MAX},
		[HB_PLACE_PLACEMENT] = {.total = HB_TENANCIES_MAX},
		[HB_PLACE_GPU] = {.total = shared ? HB_UNKNOWN_GPUS_MAX : HB_GPUS_MAX},
	};
	hb_user_table_init(&daemon->users, limits, shared ? (uint32_t)daemon->config.users : 0);
	hb_user_places_reload(daemon);
}

void hb_user_places_reload(struct hb_daemon *daemon)
{
	struct hb_place_limit *limits = daemon->users.limits;
	limits[HB_PLACE_TENANT].most = (uint32_t)daemon->config.user_tenants;
	limits[HB_PLACE_PROCESS].most = (uint32_t)daemon->config.user_processes;
	limits[HB_PLACE_CONNECTION].most = (uint32_t)daemon->config.user_connections;
}

struct hb_user *hb_user_of_peer(struct hb_daemon *daemon, const struct hb_peer *peer)
{
	return hb_user_find(&daemon->users, peer->uid, peer->user, hb_clock_now_ns());
}

int hb_user_places_refuse(struct hb_daemon *daemon, const struct hb_peer *peer, enum hb_place_kind kind,
			  struct hb_error *error)
{
	char text[sizeof error->text];
	const struct hb_user *user = hb_user_of_peer(daemon, peer);
	if (!user)
		return hb_error_set(error, -EDQUOT,
				    "programs of %d users are running, and the daemon serves no more users at once: "
				    "wait until those of one user have ended; `hb status` lists them",
				    HB_USERS_MAX);
	return hb_error_set(error, -EDQUOT, "%s", hb_user_explain(&daemon->users, user, kind, text, sizeof text));
}

/* --- GPUs that the driver does not list ----------------------------------------------------- */

static bool is_listed(const struct hb_daemon *daemon, const struct hb_gpu *known,
		      const unsigned char uuid[HB_UUID_BYTES])
{
	return known ? known->measures->index[0] != '\0'
		     : hb_provider_of(daemon->options.simulated)->gpu_index(uuid) >= 0;
}

int hb_gpu_claim(struct hb_tenancy *tenancy, const unsigned char uuid[HB_UUID_BYTES], struct hb_gpu **gpu)
{
	struct hb_daemon *daemon = tenancy->daemon;
	const struct hb_gpu *known = hb_gpu_find(daemon, uuid);
	if (!known && hb_provider_of(daemon->options.simulated)->gpu_is_missing(uuid))
		return -ENODEV;
	bool pays = tenancy->user && !(known && known->user) && !is_listed(daemon, known, uuid);
	if (pays && !hb_user_take(&daemon->users, tenancy->user, HB_PLACE_GPU))
		return -EDQUOT;
	int result = hb_gpu_find_or_add(daemon, uuid, gpu);
	if (pays && result < 0)
		hb_user_give(&daemon->users, tenancy->user, HB_PLACE_GPU, 1);
	else if (pays)
		(*gpu)->user = tenancy->user;
	return result;
}

void hb_gpu_unclaim(struct hb_gpu *gpu)
{
	struct hb_daemon *daemon = gpu->daemon;
	struct hb_user *former = gpu->user, *next = NULL;
	for (uint32_t i = 0; former && i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (!tenancy || !tenancy->user || !hb_tenancy_uses(tenancy, gpu))
			continue;
		next = tenancy->user;
		if (next == former)
			return;
	}
	if (next)
		hb_user_take_anyway(&daemon->users, next, HB_PLACE_GPU);
	if (former)
		hb_user_give(&daemon->users, former, HB_PLACE_GPU, 1);
	gpu->user = next;
}
