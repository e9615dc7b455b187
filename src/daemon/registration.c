/* SPDX-License-Identifier: Apache-2.0 */
/* Who may become or join a tenant, and how LP tenants get to the MPS server; see registration.h. */
#include "daemon/registration.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After a restart, survivors bring their page back within a second or so of their next call. */
#define GRACE_NS (3 * HB_NS_PER_S)
/* NVIDIA: client contexts per device since Volta; a few are left for what tenants start later. */
#define MPS_CLIENTS_MAX 44

static int check_kind(const struct hb_daemon *daemon, const struct hb_msg_register *request, struct hb_error *error)
{
	bool simulated = request->flags & HB_REGISTER_SIMULATED;
	if (simulated != daemon->options.simulated)
		return hb_error_set(error, -EINVAL, "this daemon serves %s GPUs; %s",
				    daemon->options.simulated ? "simulated" : "real",
				    simulated ? "start one with --gpu sim" : "start one without --gpu sim");
	bool server = request->flags & HB_REGISTER_SERVER;
	if (server && memcmp(request->token, hb_mps_token(daemon->mps), HB_TOKEN_BYTES) != 0)
		return hb_error_set(error, -EPERM, "this MPS server is not the daemon's own");
	return 0;
}

static int check_mps_room(struct hb_daemon *daemon, const struct hb_peer *peer, struct hb_error *error)
{
	uint32_t clients = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *other = daemon->tenancies[i];
		if (!other || !(other->flags & HB_REGISTER_MPS))
			continue;
		clients += other->n_members ? other->n_members : 1;
		if (other->peer.uid != peer->uid)
			return hb_error_set(
				error, -EUSERS,
				"%s-priority programs of user %s are running, and MPS serves one user at a time: "
				"wait, or set `mps: false` in hummingbird.yaml",
				hb_tenancy_is_low(other) ? "low" : "high", other->peer.user);
	}
	if (clients >= MPS_CLIENTS_MAX)
		return hb_error_set(
			error, -EUSERS,
			"%u processes are running in the MPS server, and it has room for no more: wait for one to "
			"end, or set `mps: false` in hummingbird.yaml",
			clients);
	return 0;
}

/* A new tenant of `hb run` that is to live in the MPS server: starts it, unless that cannot be. */
static int prepare_mps(struct hb_tenancy *tenancy, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_daemon *daemon = tenancy->daemon;
	int result = hb_engine_admit(daemon, tenancy, error);
	if (result < 0)
		return result;
	if (!hb_engine_is_inside(tenancy) || hb_mps_state(daemon->mps) == HB_MPS_OFF)
		return 0;
	result = check_mps_room(daemon, &tenancy->peer, error);
	if (result < 0)
		return hb_engine_step_back(tenancy, error->text) ? 0 : result;
	hb_mps_start(daemon->mps, tenancy->peer.uid);
	enum hb_mps_state state = hb_mps_state(daemon->mps);
	grant->wait = state == HB_MPS_STARTING || state == HB_MPS_STOPPING;
	return 0;
}

static int check_join(const struct hb_tenancy *tenancy, const struct hb_peer *peer, int page_fd, struct hb_error *error)
{
	struct stat found;
	if (tenancy->peer.uid != peer->uid && peer->uid != 0)
		return hb_error_set(error, -EPERM, "tenant %u belongs to user %s", tenancy->number, tenancy->peer.user);
	if (page_fd >= 0 && (fstat(page_fd, &found) < 0 || found.st_ino != tenancy->page_inode))
		return hb_error_set(error, -EEXIST, "tenant %u has another page; this process stays unscheduled",
				    tenancy->number);
	return 0;
}

static int create(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		  const char *command, size_t command_length, int page_fd, struct hb_grant *grant,
		  struct hb_error *error)
{
	bool expected = request->flags & (HB_REGISTER_CREATE | HB_REGISTER_SERVER);
	if (!expected && page_fd < 0 && hb_clock_now_ns() - daemon->started_ns < GRACE_NS)
		return hb_error_set(error, -EAGAIN,
				    "the daemon has just started; older processes of the tenant come first");
	int result = hb_tenancy_new(daemon, peer, request, command, command_length, page_fd, &grant->tenancy);
	if (result == -EUSERS)
		return hb_error_set(error, result,
				    "the daemon has %d tenants and takes no more; `hb status` lists them",
				    HB_TENANCIES_MAX);
	if (result < 0)
		return hb_error_set(error, result, "cannot make the tenant: %s", strerror(-result));
	if (!(request->flags & HB_REGISTER_CREATE))
		return 0;
	result = hb_tenancy_lead(grant->tenancy, peer);
	if (result < 0)
		hb_error_set(error, result, "cannot watch process %d: %s", (int)peer->pid, strerror(-result));
	else
		result = prepare_mps(grant->tenancy, grant, error);
	if (result < 0)
		hb_tenancy_free(grant->tenancy);
	return result;
}

/* Nothing may be left behind of a tenant that was made for a registration that then failed. */
static int undo(struct hb_tenancy *tenancy, bool fresh, int result)
{
	if (fresh)
		hb_tenancy_free(tenancy);
	return result;
}

static int add_devices(struct hb_tenancy *tenancy, const struct hb_msg_register *request, struct hb_error *error)
{
	int result = hb_tenancy_add_devices(tenancy, request);
	if (result == -ENOSPC)
		return hb_error_set(error, result,
				    "too many GPUs: a tenant may use %d of them, and %d are all that the daemon serves",
				    HB_PAGE_GPUS, HB_DEVICES_MAX);
	return result < 0 ? hb_error_set(error, result, "cannot take on a GPU: %s", strerror(-result)) : 0;
}

int hb_register(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		const char *command, size_t command_length, int page_fd, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_tenancy *known = hb_tenancy_find(daemon, request->token);
	*grant = (struct hb_grant){.tenancy = known, .slot = HB_PAGE_PROCESSES};
	int result = check_kind(daemon, request, error);
	if (result == 0)
		result = known ? check_join(known, peer, page_fd, error)
			       : create(daemon, peer, request, command, command_length, page_fd, grant, error);
	if (result < 0)
		return result;
	struct hb_tenancy *tenancy = grant->tenancy;
	result = add_devices(tenancy, request, error);
	if (result < 0)
		return undo(tenancy, !known, result);
	if (!(request->flags & HB_REGISTER_CREATE)) {
		result = hb_tenancy_join(tenancy, peer, request->slot);
		if (result < 0)
			return undo(tenancy, !known,
				    hb_error_set(error, result, "no room for another process of this tenant: %s",
						 strerror(-result)));
		grant->slot = (uint32_t)result;
	}
	if (hb_tenancy_is_server(tenancy))
		hb_mps_server_seen(daemon->mps);
	hb_daemon_kick(daemon);
	return 0;
}

size_t hb_register_environment(struct hb_tenancy *tenancy, char *text, size_t size)
{
	struct hb_mps *mps = tenancy->daemon->mps;
	bool inside = hb_engine_is_inside(tenancy) && hb_mps_state(mps) == HB_MPS_READY;
	if (!inside && !hb_tenancy_is_low(tenancy) && hb_engine_is_inside(tenancy)) {
		tenancy->engine = HB_ENGINE_TEMPORAL;
		if (!hb_engine_step_back(tenancy, "the MPS server did not start"))
			snprintf(tenancy->reduced, sizeof tenancy->reduced,
				 "not the spatial engine: the MPS server %.100s",
				 hb_mps_why(mps)[0] ? hb_mps_why(mps) : "did not start");
	}
	/* Outside means: outside any MPS server, also one that somebody runs in the default folder. */
	int n = snprintf(text, size, "CUDA_MPS_PIPE_DIRECTORY=%s%s", hb_mps_pipe_dir(mps), inside ? "" : "-none");
	if (n < 0 || (size_t)n + sizeof "\0HB_MPS=1" > size)
		return 0;
	size_t length = (size_t)n + 1;
	if (!inside)
		return length;
	tenancy->flags |= HB_REGISTER_MPS;
	memcpy(text + length, "HB_MPS=1", sizeof "HB_MPS=1");
	return length + sizeof "HB_MPS=1";
}
