/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and their processes; see tenancy.h. */
#include "daemon/tenancy.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/engine_runs.h"
#include "daemon/gpu.h"
#include "daemon/gpu_boards.h"
#include "daemon/gpu_memory.h"
#include "daemon/gpu_minimum.h"
#include "daemon/heartbeat.h"
#include "daemon/mps_faults.h"
#include "daemon/mps_server.h"
#include "daemon/page_memory.h"
#include "daemon/privileged.h"
#include "daemon/process.h"
#include "daemon/supervision.h"
#include "daemon/user_places.h"
#include "decide/defaults.h"
#include "protocol/container_token.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A check takes 20 us for each process. Until the next one, replaced programs may keep their turn. */
#define EXEC_CHECK_EVERY_NS (2 * HB_NS_PER_S)
/* For the processes of a page that an earlier daemon made. Those that are not looked at by then register again. */
#define ADOPT_NS (500 * HB_NS_PER_MS)
#define REPAIRS_MAX 50 /* ticks, five seconds; then the sum is repaired although a process seems to be changing it */

struct hb_tenancy *hb_tenancy_find(struct hb_daemon *daemon, const unsigned char token[HB_TOKEN_BYTES])
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && memcmp(daemon->tenancies[i]->token, token, HB_TOKEN_BYTES) == 0)
			return daemon->tenancies[i];
	return NULL;
}

struct hb_tenancy *hb_tenancy_numbered(struct hb_daemon *daemon, uint32_t number)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && daemon->tenancies[i]->number == number)
			return daemon->tenancies[i];
	return NULL;
}

static bool is_in_container_of(const struct hb_tenancy *tenancy, const struct hb_peer *peer)
{
	return tenancy->peer.uid == peer->uid && (strcmp(tenancy->peer.place.container, peer->place.container) == 0 ||
						  hb_tenancy_find_slot(tenancy, peer->pid) < HB_PAGE_PROCESSES);
}

struct hb_tenancy *hb_tenancy_find_for(struct hb_daemon *daemon, const unsigned char token[HB_TOKEN_BYTES],
				       const struct hb_peer *peer)
{
	if (!hb_token_is_of_container(token))
		return hb_tenancy_find(daemon, token);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (tenancy && memcmp(tenancy->token, token, HB_TOKEN_BYTES) == 0 && is_in_container_of(tenancy, peer))
			return tenancy;
	}
	return NULL;
}

static int find_free_index(const struct hb_daemon *daemon)
{
	for (int i = 0; i < HB_TENANCIES_MAX; i++)
		if (!daemon->tenancies[i])
			return i;
	return -EUSERS;
}

/* --- members --------------------------------------------------------------------- */

static void keep_counters(struct hb_tenancy *tenancy, uint32_t slot)
{
	for (size_t i = 0; i < HB_N_COUNTS; i++)
		tenancy->past[i] += tenancy->page->processes[slot].counters[i];
}

/* Logs an event of the tenant in the name of its user, who may make any number of tenants. */
#define log_change(tenancy, format, ...) \
	hb_user_log((tenancy)->user, hb_clock_now_ns(), HB_LOG_INFO, "tenant %u " format, (tenancy)->number, \
		    __VA_ARGS__)

static bool take_process_place(struct hb_tenancy *tenancy)
{
	return !tenancy->user || hb_user_take(&tenancy->daemon->users, tenancy->user, HB_PLACE_PROCESS);
}

static void give_places(struct hb_tenancy *tenancy, enum hb_place_kind kind, uint32_t n)
{
	if (tenancy->user)
		hb_user_give(&tenancy->daemon->users, tenancy->user, kind, n);
}

static void end_if_empty(struct hb_tenancy *tenancy)
{
	if (tenancy->n_members || tenancy->leader.watch)
		return;
	log_change(tenancy, "has ended: %s", tenancy->command);
	hb_tenancy_free(tenancy);
	HB_FAULT(daemon_tenant_ended);
}

static void drop_member(struct hb_member *member)
{
	struct hb_tenancy *tenancy = member->tenancy;
	hb_mps_faults_note_end(member);
	hb_pid_watch_free(member->watch);
	member->watch = NULL;
	if (member->slot < HB_PAGE_PROCESSES) {
		keep_counters(tenancy, member->slot);
		hb_elastic_leave(tenancy, member->slot);
		hb_page_slot_free(tenancy->page, member->slot);
		tenancy->n_members--;
		give_places(tenancy, HB_PLACE_PROCESS, 1);
		tenancy->repairs = REPAIRS_MAX;
		for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
			tenancy->gpus[i]->memory_changed = true;
			hb_gpu_drop_boards(tenancy->gpus[i], tenancy, member->slot);
		}
	}
}

static void handle_member_end(void *argument)
{
	struct hb_member *member = argument;
	struct hb_tenancy *tenancy = member->tenancy;
	struct hb_daemon *daemon = tenancy->daemon;
	bool server = hb_tenancy_is_server(tenancy);
	HB_FAULT(daemon_death_noticed);
	if (member == &tenancy->leader)
		hb_supervision_leader_ended(tenancy);
	drop_member(member);
	HB_FAULT(daemon_slot_freed);
	if (server)
		hb_mps_server_ended(daemon->mps);
	hb_tenancy_tick(tenancy);
	end_if_empty(tenancy);
	hb_daemon_wake(daemon);
}

static int watch_member(struct hb_tenancy *tenancy, struct hb_member *member, const struct hb_peer *peer, uint32_t slot)
{
	struct hb_pid_watch *watch;
	bool uses_cuda = slot < HB_PAGE_PROCESSES;
	if (uses_cuda && !take_process_place(tenancy))
		return -EDQUOT;
	int result = hb_pid_watch_new(&tenancy->daemon->loop, peer->pidfd, handle_member_end, member, &watch);
	if (result < 0) {
		give_places(tenancy, HB_PLACE_PROCESS, uses_cuda);
		return result;
	}
	*member = (struct hb_member){
		.tenancy = tenancy, .watch = watch, .pid = peer->pid, .start_ticks = peer->start_ticks, .slot = slot};
	member->image = hb_privileged_image(tenancy->daemon->privileged, peer->pid);
	/* An earlier daemon has reported it. */
	member->fault_noted = slot < HB_PAGE_PROCESSES && tenancy->page->processes[slot].fault;
	/* Requests that an earlier daemon found in the ring are not counted again. */
	if (uses_cuda)
		member->requests_read = tenancy->page->processes[slot].requests.written;
	tenancy->n_members += uses_cuda;
	if (uses_cuda && slot >= tenancy->slots_end)
		tenancy->slots_end = slot + 1;
	return 0;
}

int hb_tenancy_lead(struct hb_tenancy *tenancy, const struct hb_peer *peer)
{
	if (tenancy->leader.watch)
		return tenancy->leader.pid == peer->pid ? 0 : -EEXIST;
	int result = watch_member(tenancy, &tenancy->leader, peer, HB_PAGE_PROCESSES);
	HB_FAULT(daemon_leader_watched);
	return result;
}

static struct hb_member *find_member(struct hb_tenancy *tenancy, pid_t pid)
{
	uint32_t slot = hb_tenancy_find_slot(tenancy, pid);
	return slot < HB_PAGE_PROCESSES ? &tenancy->members[slot] : NULL;
}

/* A process that had a slot under an earlier daemon keeps it, with its counters and channel groups. */
static bool owns_slot(const struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t slot)
{
	if (slot >= HB_PAGE_PROCESSES || tenancy->members[slot].watch)
		return false;
	struct hb_page_process *process = &tenancy->page->processes[slot];
	return process->state == HB_PAGE_ACTIVE && process->pid == (uint32_t)peer->pid &&
	       process->start_ticks == peer->start_ticks;
}

static int take_slot(struct hb_tenancy *tenancy, const struct hb_peer *peer)
{
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		if (tenancy->members[slot].watch)
			continue;
		hb_page_slot_take(tenancy->page, slot, (uint32_t)peer->pid, peer->start_ticks);
		return (int)slot;
	}
	return -EUSERS;
}

int hb_tenancy_join(struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t old_slot)
{
	struct hb_member *known = find_member(tenancy, peer->pid);
	if (known && known->start_ticks == peer->start_ticks && old_slot == known->slot)
		return (int)known->slot;
	if (known) /* it executes another program, or it has ended and another process has its pid */
		drop_member(known);
	int slot = owns_slot(tenancy, peer, old_slot) ? (int)old_slot : take_slot(tenancy, peer);
	if (slot < 0)
		return slot;
	HB_FAULT(daemon_slot_taken);
	int result = watch_member(tenancy, &tenancy->members[slot], peer, (uint32_t)slot);
	HB_FAULT(daemon_member_watched);
	if (result < 0) {
		hb_page_slot_free(tenancy->page, (uint32_t)slot);
		return result;
	}
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		hb_gpu_join(tenancy->gpus[i], tenancy, (uint32_t)slot);
	return slot;
}

int hb_tenancy_leave(struct hb_tenancy *tenancy, pid_t pid)
{
	struct hb_member *member = find_member(tenancy, pid);
	if (!member && tenancy->leader.watch && tenancy->leader.pid == pid)
		member = &tenancy->leader;
	if (!member)
		return -ESRCH;
	drop_member(member);
	hb_tenancy_tick(tenancy);
	end_if_empty(tenancy);
	return 0;
}

/* --- making and ending -------------------------------------------------------------- */

static int take_page(struct hb_tenancy *tenancy, int page_fd)
{
	struct stat found;
	int result;
	if (page_fd < 0) {
		result = hb_page_new(tenancy->number, &tenancy->page, &tenancy->page_fd);
	} else {
		result = hb_page_adopt(page_fd, &tenancy->page);
		tenancy->page_fd = result < 0 ? -1 : fcntl(page_fd, F_DUPFD_CLOEXEC, 0);
	}
	if (result < 0)
		return result;
	if (tenancy->page_fd < 0 || fstat(tenancy->page_fd, &found) < 0)
		return -errno;
	tenancy->page_inode = found.st_ino;
	tenancy->page->tenant = tenancy->number;
	return 0;
}

/* The tenant can write to its page at any time: each word is read once and then checked. */
static int adopt_gpus(struct hb_tenancy *tenancy)
{
	uint32_t n_gpus = tenancy->page->n_gpus;
	if (n_gpus > HB_PAGE_GPUS)
		return -EPROTO;
	for (uint32_t i = 0; i < n_gpus; i++) {
		unsigned char uuid[HB_UUID_BYTES];
		memcpy(uuid, tenancy->page->gpus[i].uuid, sizeof uuid);
		struct hb_gpu *gpu;
		int result = hb_gpu_claim(tenancy, uuid, &gpu);
		if (result < 0)
			return result;
		if (hb_tenancy_uses(tenancy, gpu)) /* a GPU listed twice would be removed from its core only once */
			return -EPROTO;
		tenancy->gpus[tenancy->n_gpus++] = gpu;
	}
	return 0;
}

/* Whether the process belongs to the tenant: it runs as the tenant's user, or was started with the tenant's token. */
static bool belongs_to_tenant(const struct hb_tenancy *tenancy, pid_t pid)
{
	uid_t uid;
	gid_t gid;
	bool has_user = hb_process_user(pid, &uid, &gid);
	if ((has_user && uid == tenancy->peer.uid) ||
	    hb_privileged_began_with(tenancy->daemon->privileged, pid, tenancy->token))
		return true;
	hb_user_log(tenancy->user, hb_clock_now_ns(), HB_LOG_WARNING,
		    "tenant %u: its page names process %d, which does not belong to it", tenancy->number, (int)pid);
	return false;
}

static bool is_adopted(const struct hb_tenancy *tenancy, pid_t pid)
{
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (tenancy->members[slot].watch && tenancy->members[slot].pid == pid)
			return true;
	return false;
}

/* The page may name a process that has ended or never existed, or one process several times. */
static int adopt_process(struct hb_tenancy *tenancy, uint32_t slot)
{
	const struct hb_page_process *process = &tenancy->page->processes[slot];
	struct hb_peer named = {.pid = (pid_t)process->pid, .start_ticks = process->start_ticks};
	if (is_adopted(tenancy, named.pid))
		return -EEXIST;
	int result = named.pidfd = hb_process_open(named.pid);
	if (result < 0)
		return result;
	bool is_same = hb_process_start_ticks(named.pid) == named.start_ticks && belongs_to_tenant(tenancy, named.pid);
	result = is_same && hb_process_lives(named.pidfd) ? watch_member(tenancy, &tenancy->members[slot], &named, slot)
							  : -ESRCH;
	hb_peer_close(&named);
	return result;
}

/*
 * Takes over the GPUs and processes of a page that an earlier daemon made. Its processes register again with their next
 * CUDA call. A process that makes none must be watched, too, so all of them are watched from now on.
 */
static int adopt_contents(struct hb_tenancy *tenancy)
{
	struct hb_page *page = tenancy->page;
	int result = adopt_gpus(tenancy);
	if (result < 0)
		return result;
	int64_t until_ns = hb_clock_now_ns() + ADOPT_NS;
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (page->processes[slot].state == HB_PAGE_ACTIVE &&
		    (hb_clock_now_ns() > until_ns || adopt_process(tenancy, slot) < 0))
			hb_page_slot_free(page, slot);
	tenancy->rights.elastic |= page->elastic & HB_ELASTIC_ON && hb_tenancy_is_low(tenancy);
	tenancy->rights.over |= page->elastic & HB_ELASTIC_OVER && tenancy->rights.elastic;
	hb_elastic_adopt(tenancy);
	tenancy->repairs = REPAIRS_MAX;
	return 0;
}

/* A command line may contain any byte; the status and the log show printable ASCII. */
static void copy_printable(char *to, size_t size, const char *from, size_t length)
{
	size_t n = length < size - 1 ? length : size - 1;
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
	to[n] = '\0';
}

static void fill_rights(struct hb_tenancy *tenancy, const struct hb_msg_register *request)
{
	struct hb_daemon *daemon = tenancy->daemon;
	const struct hb_rights wanted = {.priority = (enum hb_page_priority)request->priority,
					 .slo_ns = request->slo_ns,
					 .memory_bytes = request->memory_bytes,
					 .elastic = request->flags & HB_REGISTER_ELASTIC,
					 .over = request->flags & HB_REGISTER_OVER};
	tenancy->rights = hb_admit(&daemon->config, daemon->options.system_mode, &tenancy->peer, &wanted,
				   tenancy->reduced);
	tenancy->attainment_ppm = request->attainment_ppm ? request->attainment_ppm : HB_DEFAULT_ATTAINMENT_PPM;
	tenancy->weight = request->weight ? request->weight : 1;
	tenancy->pcie_weight = request->pcie_weight;
	tenancy->engine = (enum hb_engine)request->engine;
	tenancy->flags = request->flags & ~(uint32_t)(HB_REGISTER_CREATE | HB_REGISTER_PAGE);
}

/* An MPS server is the daemon's own and takes no user's place. */
static int take_tenant_place(struct hb_tenancy *tenancy)
{
	struct hb_daemon *daemon = tenancy->daemon;
	if (hb_tenancy_is_server(tenancy))
		return 0;
	tenancy->user = hb_user_of_peer(daemon, &tenancy->peer);
	return tenancy->user && hb_user_take(&daemon->users, tenancy->user, HB_PLACE_TENANT) ? 0 : -EDQUOT;
}

int hb_tenancy_new(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		   const char *command, size_t command_length, int page_fd, struct hb_tenancy **tenancy)
{
	int index = find_free_index(daemon);
	struct hb_tenancy *made = index < 0 ? NULL : calloc(1, sizeof *made);
	if (!made)
		return index < 0 ? index : -ENOMEM;
	made->daemon = daemon;
	made->index = (uint32_t)index;
	made->number = ++daemon->next_number ? daemon->next_number : ++daemon->next_number;
	made->peer = *peer;
	made->peer.pidfd = -1; /* the caller closes it */
	made->since_ns = hb_clock_now_ns();
	made->page_fd = -1;
	memcpy(made->token, request->token, HB_TOKEN_BYTES);
	copy_printable(made->command, sizeof made->command, command, command_length);
	fill_rights(made, request);
	int result = take_tenant_place(made);
	if (result < 0) {
		free(made);
		return result;
	}
	result = take_page(made, page_fd);
	HB_FAULT(daemon_page_made);
	if (result == 0) {
		daemon->tenancies[index] = made;
		daemon->n_tenancies++;
		if (page_fd >= 0)
			result = adopt_contents(made);
		/* Reads the clock again: a GPU may have been made just now, and the time of its core never goes back. */
		for (uint32_t i = 0; result == 0 && i < made->n_gpus; i++)
			result = hb_gpu_add(made->gpus[i], made, i, hb_clock_now_ns());
	}
	if (result < 0) {
		hb_tenancy_free(made);
		return result;
	}
	hb_tenancy_publish(made);
	hb_heartbeat_set(daemon->heartbeat, made->index, &made->page->heartbeat_ns);
	hb_tenancy_tick(made);
	log_change(made, "%s: process %d, user %s, priority %s: %s", page_fd < 0 ? "registered" : "registered again",
		   (int)peer->pid, peer->user, made->rights.priority == HB_PAGE_HIGH ? "high" : "low", made->command);
	HB_FAULT(daemon_tenant_made);
	*tenancy = made;
	return 0;
}

void hb_tenancy_free(struct hb_tenancy *tenancy)
{
	struct hb_daemon *daemon = tenancy->daemon;
	int64_t now_ns = hb_clock_now_ns();
	hb_engine_runs_end(tenancy);
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		hb_gpu_remove(tenancy->gpus[i], tenancy, now_ns);
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++)
		hb_pid_watch_free(tenancy->members[i].watch);
	hb_pid_watch_free(tenancy->leader.watch);
	/* Processes may still use the page while the daemon ends: gates stay as they are, and the heartbeat stops. */
	if (daemon->tenancies[tenancy->index] == tenancy)
		hb_heartbeat_set(daemon->heartbeat, tenancy->index, NULL);
	hb_page_free(tenancy->page, tenancy->page_fd);
	if (daemon->tenancies[tenancy->index] == tenancy) {
		daemon->tenancies[tenancy->index] = NULL;
		daemon->n_tenancies--;
	}
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		hb_gpu_unclaim(tenancy->gpus[i]);
	give_places(tenancy, HB_PLACE_PROCESS, tenancy->n_members);
	give_places(tenancy, HB_PLACE_TENANT, 1);
	free(tenancy);
}

/* --- changes of a tenant ---------------------------------------------------- */

int hb_tenancy_add_gpus(struct hb_tenancy *tenancy, const struct hb_msg_register *request)
{
	for (uint32_t i = 0; i < request->n_gpus; i++) {
		struct hb_gpu *gpu;
		int result = hb_gpu_claim(tenancy, request->uuids[i], &gpu);
		if (result < 0)
			return result;
		if (hb_tenancy_uses(tenancy, gpu))
			continue;
		uint32_t gpu_index = tenancy->n_gpus;
		result = gpu_index == HB_PAGE_GPUS ? -ENOSPC : 0;
		if (result == 0) {
			tenancy->totals[gpu_index] = request->totals[i];
			memcpy(tenancy->page->gpus[gpu_index].uuid, gpu->uuid, HB_UUID_BYTES);
			result = hb_gpu_add(gpu, tenancy, gpu_index, hb_clock_now_ns());
		}
		if (result < 0) {
			hb_gpu_unclaim(gpu);
			return result;
		}
		HB_FAULT(daemon_gpu_added);
		tenancy->gpus[tenancy->n_gpus++] = gpu;
		hb_tenancy_publish(tenancy);
	}
	return 0;
}

void hb_tenancy_publish(struct hb_tenancy *tenancy)
{
	struct hb_page *page = tenancy->page;
	page->daemon_pid = (uint32_t)getpid();
	page->daemon_since_ns = tenancy->daemon->started_ns;
	page->priority = tenancy->rights.priority;
	page->slo_ns = tenancy->rights.slo_ns;
	page->attainment_ppm = tenancy->attainment_ppm;
	page->low_minimum_ppm = hb_low_minimum_ppm(tenancy->daemon);
	page->features = HB_FEATURE_LEASES | HB_FEATURE_DOORBELL | HB_FEATURE_BOARDS | HB_FEATURE_ELASTIC;
	page->elastic = hb_tenancy_is_elastic(tenancy) ? HB_ELASTIC_ON : 0;
	page->elastic |= page->elastic && tenancy->rights.over ? HB_ELASTIC_OVER : 0;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
		struct hb_page_gpu *page_gpu = &page->gpus[i];
		page_gpu->limit_bytes = tenancy->rights.memory_bytes ? tenancy->rights.memory_bytes : UINT64_MAX;
		page_gpu->engine = tenancy->gpus[i]->engine;
		page_gpu->total_bytes = hb_gpu_memory_total(tenancy->gpus[i], tenancy, i);
		atomic_store_explicit(&page_gpu->state, HB_PAGE_ACTIVE, memory_order_release);
	}
	page->heartbeat_ns = hb_clock_now_ns();
	atomic_store_explicit(&page->n_gpus, tenancy->n_gpus, memory_order_release);
	atomic_store_explicit(&page->state, HB_PAGE_ACTIVE, memory_order_release);
}

int hb_tenancy_set(struct hb_tenancy *tenancy, const struct hb_msg_set *change, const struct hb_rights *rights,
		   struct hb_error *error)
{
	bool new_priority = rights->priority != tenancy->rights.priority;
	if (new_priority && tenancy->flags & HB_REGISTER_MPS)
		return hb_error_set(error, -EBUSY,
				    "tenant %u runs inside the MPS server, where a program cannot change its priority; "
				    "end it and start it again with --priority %s",
				    tenancy->number, rights->priority == HB_PAGE_HIGH ? "high" : "low");
	if (new_priority && tenancy->rights.elastic)
		return hb_error_set(
			error, -EBUSY,
			"the memory of tenant %u is elastic, which memory of high priority never is; end it and "
			"start it again with --priority high",
			tenancy->number);
	const struct hb_rights before = tenancy->rights; /* a process is elastic from its start, or never */
	tenancy->rights = *rights;
	tenancy->rights.elastic = before.elastic;
	tenancy->rights.over = before.over;
	if (change->fields & HB_SET_SLO && change->attainment_ppm)
		tenancy->attainment_ppm = change->attainment_ppm;
	if (change->fields & HB_SET_WEIGHT)
		tenancy->weight = change->weight;
	if (change->fields & HB_SET_PCIE_WEIGHT)
		tenancy->pcie_weight = change->pcie_weight;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		hb_gpu_change(tenancy->gpus[i], tenancy, new_priority, hb_clock_now_ns());
	hb_tenancy_publish(tenancy);
	return 0;
}

static bool has_executed_program(struct hb_member *member)
{
	if (!member->watch)
		return false;
	uint64_t image = hb_privileged_image(member->tenancy->daemon->privileged, member->pid);
	if (!member->image)
		member->image = image;
	return image && image != member->image;
}

void hb_tenancy_check_exec(struct hb_tenancy *tenancy, int64_t now_ns)
{
	if (now_ns - tenancy->images_ns < EXEC_CHECK_EVERY_NS)
		return;
	tenancy->images_ns = now_ns;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		if (!has_executed_program(member))
			continue;
		log_change(tenancy, "has process %d, which has executed another program", (int)member->pid);
		drop_member(member);
	}
	end_if_empty(tenancy);
}

void hb_tenancy_tick(struct hb_tenancy *tenancy)
{
	if (!tenancy->repairs)
		return;
	bool force = --tenancy->repairs == 0, done = true;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		done = hb_page_memory_repair(tenancy->page, i, force) && done;
	if (done)
		tenancy->repairs = 0;
}
