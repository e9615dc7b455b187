/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and joins tenants; see registration.h. */
#include "daemon/registration.h"

#include "base/clock.h"
#include "daemon/engine_choice.h"
#include "daemon/gpu_events.h"
#include "daemon/job_registration.h"
#include "daemon/mps_server.h"
#include "daemon/privileged.h"
#include "daemon/process.h"
#include "daemon/tenancy.h"
#include "daemon/user_places.h"
#include "protocol/container_token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After a restart of the daemon, running processes hand their page over within about a second of their next CUDA call. */
#define RESTART_GRACE_NS (3 * HB_NS_PER_S)
/* NVIDIA allows 48 client contexts per GPU since Volta; four remain for processes that tenants start later. */
#define MPS_CLIENTS_MAX 44

static int check_request(const struct hb_daemon *daemon, const struct hb_peer *peer,
			 const struct hb_msg_register *request, struct hb_error *error)
{
	bool simulated = request->flags & HB_REGISTER_SIMULATED;
	if (simulated != daemon->options.simulated)
		return hb_error_set(error, -EINVAL,
				    "this daemon (%s) serves %s GPUs; unset HB_SOCKET, or set it to the socket of a "
				    "daemon that was started %s --gpu sim",
				    daemon->options.socket, daemon->options.simulated ? "simulated" : "real",
				    simulated ? "with" : "without");
	if (request->flags & HB_REGISTER_ELASTIC && request->priority == HB_PAGE_HIGH)
		return hb_error_set(error, -EINVAL, "memory of high priority never moves, so it cannot be elastic");
	if (request->flags & HB_REGISTER_OVER && !(request->flags & HB_REGISTER_ELASTIC))
		return hb_error_set(error, -EINVAL, "only a program with elastic memory can have more than fits");
	if (request->flags & HB_REGISTER_ELASTIC && !daemon->config.elastic_host_bytes)
		return hb_error_set(
			error, -EINVAL,
			"this daemon offers no elastic memory: set elastic_host in its configuration to the "
			"memory of the host that moved memory may use");
	bool server = request->flags & HB_REGISTER_SERVER;
	if (server && memcmp(request->token, hb_mps_token(daemon->mps), HB_TOKEN_BYTES) != 0)
		return hb_error_set(error, -EPERM, "the daemon did not start this MPS server");
	if (server && !hb_privileged_is_server(daemon->privileged, peer->pid))
		return hb_error_set(error, -EPERM, "process %d is not the MPS server that the daemon started",
				    (int)peer->pid);
	return 0;
}

static int check_mps_room(struct hb_daemon *daemon, const struct hb_peer *peer, struct hb_error *error)
{
	uint32_t clients = 0;
	if (hb_mps_starts_for_other(daemon->mps, peer->uid))
		return hb_error_set(error, -EUSERS,
				    "the MPS server is starting for another user, and it serves one user at a time");
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *other = daemon->tenancies[i];
		if (!other || !(other->flags & HB_REGISTER_MPS))
			continue;
		if (other->peer.uid != peer->uid && !hb_mps_may_serve(daemon->mps, other->peer.uid))
			continue; /* a false claim */
		clients += other->n_members ? other->n_members : 1;
		if (other->peer.uid != peer->uid)
			return hb_error_set(
				error, -EUSERS,
				"%s-priority programs of user %s are in the MPS server, which serves one user at a time",
				hb_tenancy_is_low(other) ? "low" : "high", other->peer.user);
	}
	if (clients >= MPS_CLIENTS_MAX)
		return hb_error_set(error, -EUSERS, "%u processes are running in the MPS server, which is full",
				    clients);
	return 0;
}

/*
 * The tenant has no place in the MPS server: it runs outside. LP tenants then take turns with those inside, for as long
 * as it uses the GPU; HP gets the temporal engine if it did not ask for the spatial one.
 */
static int stay_outside(struct hb_tenancy *tenancy, enum hb_engine requested, struct hb_error *error)
{
	const char *how = "low-priority programs take turns on the GPU";
	char why[128];
	snprintf(why, sizeof why, "%.127s", error->text);
	if (hb_engine_fall_back(tenancy, error->text))
		return 0;
	if (!hb_tenancy_is_low(tenancy) && requested == HB_ENGINE_SPATIAL)
		return -EUSERS;
	tenancy->engine = HB_ENGINE_TURNS;
	if (!hb_tenancy_is_low(tenancy)) {
		tenancy->engine = HB_ENGINE_TEMPORAL;
		how = "not the spatial engine";
	}
	int result = hb_engine_admit(tenancy->daemon, tenancy, error);
	/* A context outside the server would share the GPU in time with high priority, which was promised all of the time. */
	if (result == -EBUSY && hb_tenancy_is_low(tenancy))
		return hb_error_set(
			error, result,
			"%s, and high priority uses the spatial engine there, so no program may run outside "
			"the server; wait until high priority has ended, or start it with --engine temporal",
			why);
	if (result == 0 && !tenancy->reduced[0])
		snprintf(tenancy->reduced, sizeof tenancy->reduced, "%s: %.110s", how, why);
	return result;
}

/* Chooses the engine of a new tenant of `hb run`, and starts the MPS server if the tenant is to run in it. */
static int prepare_engine(struct hb_tenancy *tenancy, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_daemon *daemon = tenancy->daemon;
	enum hb_engine requested = tenancy->engine;
	int result = hb_engine_admit(daemon, tenancy, error);
	if (result < 0)
		return result;
	if (!hb_engine_uses_mps(tenancy) || hb_mps_state(daemon->mps) == HB_MPS_OFF)
		return 0;
	result = check_mps_room(daemon, &tenancy->peer, error);
	if (result < 0)
		return stay_outside(tenancy, requested, error);
	hb_mps_start(daemon->mps, tenancy->peer.uid);
	enum hb_mps_state state = hb_mps_state(daemon->mps);
	grant->wait = state == HB_MPS_STARTING || state == HB_MPS_STOPPING;
	return 0;
}

#define ANCESTORS_MAX 64

/* Whether the tenant has this process: its leader, or a process that uses CUDA. */
static bool has_process(const struct hb_tenancy *tenancy, pid_t pid, uint64_t start_ticks)
{
	if (tenancy->leader.watch && tenancy->leader.pid == pid && tenancy->leader.start_ticks == start_ticks)
		return true;
	uint32_t slot = hb_tenancy_find_slot(tenancy, pid);
	return slot < HB_PAGE_PROCESSES && tenancy->members[slot].start_ticks == start_ticks;
}

/* Whether a process of the tenant started this one, directly or through others. */
static bool descends_from_tenant(const struct hb_tenancy *tenancy, const struct hb_peer *peer)
{
	uint64_t child_ticks = peer->start_ticks;
	pid_t pid = peer->pid;
	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		uint64_t start_ticks = hb_process_start_ticks(pid);
		/* A parent is not younger than its child: another process has got the parent's pid. */
		if (!start_ticks || start_ticks > child_ticks)
			return false;
		if (has_process(tenancy, pid, start_ticks))
			return true;
		child_ticks = start_ticks;
		pid = hb_process_parent(pid);
	}
	return false;
}

/*
 * The rules bind every process, because any process of the user can read the token of a tenant. A process that the
 * tenant itself started may be anywhere: what a service starts with systemd-run has a unit of its own.
 */
static int check_rules(const struct hb_tenancy *tenancy, const struct hb_peer *peer, struct hb_error *error)
{
	const struct hb_daemon *daemon = tenancy->daemon;
	char reason[160];
	if (hb_tenancy_is_server(tenancy) || peer->uid == 0 || tenancy->open ||
	    hb_admit_join(&daemon->config, daemon->options.system_mode, &tenancy->peer, &tenancy->rights, peer,
			  reason) ||
	    descends_from_tenant(tenancy, peer))
		return 0;
	return hb_error_set(error, -EPERM,
			    "process %d may not join tenant %u, which did not start it: %s; Hummingbird does not "
			    "schedule this process",
			    (int)peer->pid, tenancy->number, reason);
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
	return check_rules(tenancy, peer, error);
}

static int lead_tenant(struct hb_tenancy *tenancy, const struct hb_peer *peer, struct hb_error *error)
{
	int result = hb_tenancy_lead(tenancy, peer);
	return result < 0 ? hb_error_set(error, result, "cannot make process %d the leader of the tenant: %s",
					 (int)peer->pid, strerror(-result))
			  : 0;
}

/* After a restart of the daemon a process of the tenant may have been faster than its supervisor. */
static int lead_known(struct hb_tenancy *tenancy, const struct hb_peer *peer, const struct hb_msg_register *request,
		      struct hb_error *error)
{
	const uint32_t supervisor = HB_REGISTER_CREATE | HB_REGISTER_SUPERVISED;
	if ((request->flags & supervisor) != supervisor || tenancy->leader.watch)
		return 0;
	tenancy->flags |= HB_REGISTER_SUPERVISED;
	int result = lead_tenant(tenancy, peer, error);
	if (result == 0) { /* status and `hb set` name the tenant by its supervisor, as before the restart */
		tenancy->peer.pid = peer->pid;
		tenancy->peer.start_ticks = peer->start_ticks;
	}
	return result;
}

/*
 * A container is a tenant without `hb run`: nothing gives its programs the MPS server's environment, and no supervisor ends
 * their GPU work before they are killed. So they run outside the server.
 */
static int prepare_container(struct hb_tenancy *tenancy, struct hb_error *error)
{
	tenancy->engine = hb_tenancy_is_low(tenancy) ? HB_ENGINE_TURNS : HB_ENGINE_TEMPORAL;
	if (hb_engine_admit(tenancy->daemon, tenancy, error) == 0)
		return 0;
	return hb_error_set(error, -EBUSY,
			    "high priority uses the spatial engine inside the MPS server, and programs of a container "
			    "run outside it; wait until high priority has ended, or start it with --engine temporal");
}

static int create_tenant(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
			 const char *command, size_t command_length, int page_fd, bool leads, struct hb_grant *grant,
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
	if (result == -EDQUOT)
		return hb_user_places_refuse(daemon, peer, HB_PLACE_TENANT, error);
	if (result < 0)
		return hb_error_set(error, result, "cannot create the tenant: %s", strerror(-result));
	if (hb_token_is_of_container(request->token) && page_fd < 0) {
		result = prepare_container(grant->tenancy, error);
		if (result < 0)
			hb_tenancy_free(grant->tenancy);
		return result;
	}
	if (!leads)
		return 0;
	result = lead_tenant(grant->tenancy, peer, error);
	/* A tenant that comes with a page runs already. */
	if (result == 0 && page_fd < 0 && request->flags & HB_REGISTER_CREATE)
		result = prepare_engine(grant->tenancy, grant, error);
	if (result < 0)
		hb_tenancy_free(grant->tenancy);
	return result;
}

/* The first registration with a token. */
static int create_any(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		      const char *command, size_t command_length, int page_fd, struct hb_grant *grant,
		      struct hb_error *error)
{
	struct hb_job_registration job;
	int found = hb_job_registration_find(daemon, peer, request, &job, error);
	if (found < 0)
		return found;
	if (!found)
		return create_tenant(daemon, peer, request, command, command_length, page_fd,
				     request->flags & HB_REGISTER_CREATE, grant, error);
	int result = create_tenant(daemon, &job.first, &job.request, job.name, strlen(job.name), page_fd, true, grant,
				   error);
	if (result == 0) {
		grant->tenancy->most = job.most;
		grant->tenancy->open = job.open;
	}
	hb_peer_close(&job.first);
	return result;
}

/* Frees a tenant that was made for a registration that then failed. Returns `result`. */
static int undo_registration(struct hb_tenancy *tenancy, bool is_new, int result)
{
	if (is_new)
		hb_tenancy_free(tenancy);
	return result;
}

/* A tenant that uses the lost GPU already keeps it: its gates are open. */
static int check_lost(const struct hb_tenancy *tenancy, const struct hb_msg_register *request, struct hb_error *error)
{
	for (uint32_t i = 0; i < request->n_gpus; i++) {
		const struct hb_gpu *gpu = hb_gpu_find(tenancy->daemon, request->uuids[i]);
		int result = gpu && !hb_tenancy_uses(tenancy, gpu) ? hb_gpu_check_lost(gpu, error) : 0;
		if (result < 0)
			return result;
	}
	return 0;
}

static int add_gpus(struct hb_tenancy *tenancy, const struct hb_msg_register *request, struct hb_error *error)
{
	int result = check_lost(tenancy, request, error);
	if (result < 0)
		return result;
	result = hb_tenancy_add_gpus(tenancy, request);
	if (result == -EDQUOT)
		return hb_user_places_refuse(tenancy->daemon, &tenancy->peer, HB_PLACE_GPU, error);
	if (result == -ENODEV)
		return hb_error_set(error, result, "the driver lists no GPU with one of these UUIDs");
	if (result == -ENOSPC)
		return hb_error_set(error, result, "too many GPUs: a tenant can use %d, and the daemon serves %d",
				    HB_PAGE_GPUS, HB_GPUS_MAX);
	return result < 0 ? hb_error_set(error, result, "cannot add a GPU: %s", strerror(-result)) : 0;
}

static int join_tenant(struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t old_slot,
		       struct hb_error *error)
{
	int result = hb_tenancy_join(tenancy, peer, old_slot);
	if (result == -EDQUOT)
		return hb_user_places_refuse(tenancy->daemon, &tenancy->peer, HB_PLACE_PROCESS, error);
	if (result == -EUSERS)
		return hb_error_set(error, result,
				    "tenant %u has %d processes that use CUDA, which is the limit: start the next ones "
				    "as another tenant, with `hb run`",
				    tenancy->number, HB_PAGE_PROCESSES);
	if (result < 0)
		return hb_error_set(error, result, "cannot add another process to this tenant: %s", strerror(-result));
	return result;
}

int hb_register(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		const char *command, size_t command_length, int page_fd, struct hb_grant *grant, struct hb_error *error)
{
	struct hb_tenancy *known = hb_tenancy_find_for(daemon, request->token, peer);
	*grant = (struct hb_grant){.tenancy = known, .slot = HB_PAGE_PROCESSES};
	int result = check_request(daemon, peer, request, error);
	if (result == 0)
		result = known ? check_join(known, peer, page_fd, error)
			       : create_any(daemon, peer, request, command, command_length, page_fd, grant, error);
	if (result == 0 && known)
		result = lead_known(known, peer, request, error);
	if (result < 0)
		return result;
	struct hb_tenancy *tenancy = grant->tenancy;
	result = add_gpus(tenancy, request, error);
	if (result < 0)
		return undo_registration(tenancy, !known, result);
	if (!(request->flags & HB_REGISTER_CREATE)) {
		result = join_tenant(tenancy, peer, request->slot, error);
		if (result < 0)
			return undo_registration(tenancy, !known, result);
		grant->slot = (uint32_t)result;
	}
	if (hb_tenancy_is_server(tenancy))
		hb_mps_server_registered(daemon->mps, peer->pid);
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
