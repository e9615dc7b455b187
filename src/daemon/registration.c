/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and joins tenants; see registration.h. */
#include "daemon/registration.h"

#include "base/clock.h"
#include "daemon/engine_choice.h"
#include "daemon/mps_server.h"
#include "daemon/tenancy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After a restart of the daemon, running processes hand their page over within about a second of their next CUDA call. */
#define RESTART_GRACE_NS (3 * HB_NS_PER_S)
/* NVIDIA allows 48 client contexts per GPU since Volta; four remain for processes that tenants start later. */
#define MPS_CLIENTS_MAX 44

static int check_request(const struct hb_daemon *daemon, const struct hb_msg_register *request, struct hb_error *error)
{
	bool simulated = request->flags & HB_REGISTER_SIMULATED;
	if (simulated != daemon->options.simulated)
		return hb_error_set(error, -EINVAL, "this daemon serves %s GPUs; %s",
				    daemon->options.simulated ? "simulated" : "real",
				    simulated ? "start one with --gpu sim" : "start one without --gpu sim");
	bool server = request->flags & HB_REGISTER_SERVER;
	if (server && memcmp(request->token, hb_mps_token(daemon->mps), HB_TOKEN_BYTES) != 0)
		return hb_error_set(error, -EPERM, "the daemon did not start this MPS server");
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
				"wait until they have ended, or set `mps: false` in hummingbird.yaml",
				hb_tenancy_is_low(other) ? "low" : "high", other->peer.user);
	}
	if (clients >= MPS_CLIENTS_MAX)
		return hb_error_set(error, -EUSERS,
				    "%u processes are running in the MPS server, which is full: wait for one to "
				    "end, or set `mps: false` in hummingbird.yaml",
				    clients);
	return 0;
}

/* Chooses the engine of a new tenant of `hb run`, and starts the MPS server if the tenant is to run in it. */
static int prepare_engine(struct hb_tenancy *tenancy, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_daemon *daemon = tenancy->daemon;
	int result = hb_engine_admit(daemon, tenancy, error);
	if (result < 0)
		return result;
	if (!hb_engine_uses_mps(tenancy) || hb_mps_state(daemon->mps) == HB_MPS_OFF)
		return 0;
	result = check_mps_room(daemon, &tenancy->peer, error);
	if (result < 0)
		return hb_engine_fall_back(tenancy, error->text) ? 0 : result;
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
		return hb_error_set(error, -EEXIST,
				    "tenant %u has another page; Hummingbird does not schedule this process",
				    tenancy->number);
	return 0;
}

static int create_tenant(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
			 const char *command, size_t command_length, int page_fd, struct hb_grant *grant,
			 struct hb_error *error)
{
	bool expected = request->flags & (HB_REGISTER_CREATE | HB_REGISTER_SERVER);
	if (!expected && page_fd < 0 && hb_clock_now_ns() - daemon->started_ns < RESTART_GRACE_NS)
		return hb_error_set(error, -EAGAIN,
				    "the daemon has just started and waits for older processes of the tenant");
	int result = hb_tenancy_new(daemon, peer, request, command, command_length, page_fd, &grant->tenancy);
	if (result == -EUSERS)
		return hb_error_set(error, result,
				    "the daemon has %d tenants, which is its limit; `hb status` lists them",
				    HB_TENANCIES_MAX);
	if (result < 0)
		return hb_error_set(error, result, "cannot create the tenant: %s", strerror(-result));
	if (!(request->flags & HB_REGISTER_CREATE))
		return 0;
	result = hb_tenancy_lead(grant->tenancy, peer);
	if (result < 0)
		hb_error_set(error, result, "cannot watch process %d: %s", (int)peer->pid, strerror(-result));
	else
		result = prepare_engine(grant->tenancy, grant, error);
	if (result < 0)
		hb_tenancy_free(grant->tenancy);
	return result;
}

/* Frees a tenant that was made for a registration that then failed. Returns `result`. */
static int undo_registration(struct hb_tenancy *tenancy, bool is_new, int result)
{
	if (is_new)
		hb_tenancy_free(tenancy);
	return result;
}

static int add_gpus(struct hb_tenancy *tenancy, const struct hb_msg_register *request, struct hb_error *error)
{
	int result = hb_tenancy_add_gpus(tenancy, request);
	if (result == -ENOSPC)
		return hb_error_set(error, result, "too many GPUs: a tenant can use %d, and the daemon serves %d",
				    HB_PAGE_GPUS, HB_GPUS_MAX);
	return result < 0 ? hb_error_set(error, result, "cannot add a GPU: %s", strerror(-result)) : 0;
}

int hb_register(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		const char *command, size_t command_length, int page_fd, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_tenancy *known = hb_tenancy_find(daemon, request->token);
	*grant = (struct hb_grant){.tenancy = known, .slot = HB_PAGE_PROCESSES};
	int result = check_request(daemon, request, error);
	if (result == 0)
		result = known ? check_join(known, peer, page_fd, error)
			       : create_tenant(daemon, peer, request, command, command_length, page_fd, grant, error);
	if (result < 0)
		return result;
	struct hb_tenancy *tenancy = grant->tenancy;
	result = add_gpus(tenancy, request, error);
	if (result < 0)
		return undo_registration(tenancy, !known, result);
	if (!(request->flags & HB_REGISTER_CREATE)) {
		result = hb_tenancy_join(tenancy, peer, request->slot);
		if (result < 0)
			return undo_registration(tenancy, !known,
						 hb_error_set(error, result,
							      "cannot add another process to this tenant: %s",
							      strerror(-result)));
		grant->slot = (uint32_t)result;
	}
	if (hb_tenancy_is_server(tenancy))
		hb_mps_server_registered(daemon->mps);
	hb_daemon_wake(daemon);
	return 0;
}

size_t hb_register_environment(struct hb_tenancy *tenancy, char *text, size_t size)
{
	struct hb_mps *mps = tenancy->daemon->mps;
	bool inside = hb_engine_uses_mps(tenancy) && hb_mps_state(mps) == HB_MPS_READY;
	if (!inside && !hb_tenancy_is_low(tenancy) && hb_engine_uses_mps(tenancy)) {
		tenancy->engine = HB_ENGINE_TEMPORAL;
		if (!hb_engine_fall_back(tenancy, "the MPS server did not start"))
			snprintf(tenancy->reduced, sizeof tenancy->reduced,
				 "not the spatial engine: the MPS server %.100s",
				 hb_mps_why(mps)[0] ? hb_mps_why(mps) : "did not start");
	}
	/* Programs outside must not find any MPS server, not even one in the default folder. */
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
