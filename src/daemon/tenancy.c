/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants and their processes. A tenant lives while its leader (`hb run` and
 * what it became) or any of its processes lives; each is watched by a pidfd, so
 * a killed one is forgotten within a turn of the loop.
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/page_memory.h"
#include "daemon/process.h"
#include "decide/defaults.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 20 us a process. A program that is replaced in the middle of its work keeps others from their turn so long. */
#define IMAGES_EVERY_NS (2 * HB_NS_PER_S)
#define REPAIRS_MAX 50 /* ticks: five seconds, then a claim that never ends is overruled */

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

static int free_index(const struct hb_daemon *daemon)
{
	for (int i = 0; i < HB_TENANCIES_MAX; i++)
		if (!daemon->tenancies[i])
			return i;
	return -EUSERS;
}

/* --- members --------------------------------------------------------------------- */

static void add_past(struct hb_tenancy *tenancy, uint32_t slot)
{
	for (size_t i = 0; i < HB_N_COUNTS; i++)
		tenancy->past[i] += tenancy->page->processes[slot].counters[i];
}

static void end_if_empty(struct hb_tenancy *tenancy)
{
	if (tenancy->n_members || tenancy->leader.watch)
		return;
	hb_log_info("tenant %u has ended: %s", tenancy->number, tenancy->command);
	hb_tenancy_free(tenancy);
	HB_FAULT(daemon_tenant_ended);
}

static void drop_member(struct hb_member *member)
{
	struct hb_tenancy *tenancy = member->tenancy;
	hb_pid_watch_free(member->watch);
	member->watch = NULL;
	if (member->slot < HB_PAGE_PROCESSES) {
		add_past(tenancy, member->slot);
		hb_page_slot_free(tenancy->page, member->slot);
		tenancy->n_members--;
		tenancy->repairs = REPAIRS_MAX;
		for (uint32_t i = 0; i < tenancy->n_devices; i++) {
			tenancy->devices[i]->repair_low = true;
			hb_board_forget(tenancy->devices[i], member->pid);
		}
	}
}

static void member_gone(void *argument)
{
	struct hb_member *member = argument;
	struct hb_tenancy *tenancy = member->tenancy;
	struct hb_daemon *daemon = tenancy->daemon;
	bool server = hb_tenancy_is_server(tenancy);
	HB_FAULT(daemon_death_noticed);
	drop_member(member);
	HB_FAULT(daemon_slot_freed);
	if (server)
		hb_mps_server_gone(daemon->mps);
	hb_tenancy_tick(tenancy, hb_clock_now_ns());
	end_if_empty(tenancy);
	hb_daemon_kick(daemon);
}

static int watch_member(struct hb_tenancy *tenancy, struct hb_member *member, const struct hb_peer *peer, uint32_t slot)
{
	struct hb_pid_watch *watch;
	int result = hb_pid_watch_new(&tenancy->daemon->loop, peer->pidfd, member_gone, member, &watch);
	if (result < 0)
		return result;
	*member = (struct hb_member){
		.tenancy = tenancy, .watch = watch, .pid = peer->pid, .start_ticks = peer->start_ticks, .slot = slot};
	member->image = hb_process_image(peer->pid);
	/* What lies there from an earlier daemon's time was its to judge. */
	if (slot < HB_PAGE_PROCESSES)
		member->requests_read = tenancy->page->processes[slot].requests.written;
	tenancy->n_members += slot < HB_PAGE_PROCESSES;
	if (slot < HB_PAGE_PROCESSES && slot >= tenancy->slots_end)
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
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++)
		if (tenancy->members[i].watch && tenancy->members[i].pid == pid)
			return &tenancy->members[i];
	return NULL;
}

/* A process that held a slot under an earlier daemon keeps it: its counters and groups are there. */
static bool still_holds(const struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t slot)
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
	if (known) /* has died, and its pid is another's already; or it executes another program */
		drop_member(known);
	int slot = still_holds(tenancy, peer, old_slot) ? (int)old_slot : take_slot(tenancy, peer);
	if (slot < 0)
		return slot;
	HB_FAULT(daemon_slot_taken);
	int result = watch_member(tenancy, &tenancy->members[slot], peer, (uint32_t)slot);
	HB_FAULT(daemon_member_watched);
	if (result < 0) {
		hb_page_slot_free(tenancy->page, (uint32_t)slot);
		return result;
	}
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		hb_device_join(tenancy->devices[i], tenancy, (uint32_t)slot);
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
	hb_tenancy_tick(tenancy, hb_clock_now_ns());
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
		tenancy->page_fd = result < 0 ? -1 : dup(page_fd);
	}
	if (result < 0)
		return result;
	if (tenancy->page_fd < 0 || fstat(tenancy->page_fd, &found) < 0)
		return -errno;
	tenancy->page_inode = found.st_ino;
	tenancy->page->tenant = tenancy->number;
	return 0;
}

bool hb_tenancy_uses(const struct hb_tenancy *tenancy, const struct hb_device *device)
{
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		if (tenancy->devices[i] == device)
			return true;
	return false;
}

/* The tenant can write there meanwhile: each word is read once, and then checked. */
static int adopt_gpus(struct hb_tenancy *tenancy)
{
	uint32_t n_gpus = tenancy->page->n_gpus;
	if (n_gpus > HB_PAGE_GPUS)
		return -EPROTO;
	for (uint32_t i = 0; i < n_gpus; i++) {
		unsigned char uuid[HB_UUID_BYTES];
		memcpy(uuid, tenancy->page->gpus[i].uuid, sizeof uuid);
		struct hb_device *device;
		int result = hb_daemon_device(tenancy->daemon, uuid, &device);
		if (result < 0)
			return result;
		if (hb_tenancy_uses(tenancy, device)) /* a GPU twice would leave its first seat in the core for good */
			return -EPROTO;
		tenancy->devices[tenancy->n_devices++] = device;
	}
	return 0;
}

/* The tenant's user's, or started by the tenant for another user: nobody else is kept by it, nor keeps it. */
static bool belongs(const struct hb_tenancy *tenancy, pid_t pid)
{
	char variable[sizeof "HB_TENANT=" + 2 * HB_TOKEN_BYTES] = "HB_TENANT=";
	hb_token_format(tenancy->token, variable + strlen(variable));
	uid_t uid;
	gid_t gid;
	bool has_user = hb_process_user(pid, &uid, &gid);
	if ((has_user && uid == tenancy->peer.uid) || hb_process_began_with(pid, variable))
		return true;
	hb_log_warning("tenant %u: its page names process %d, which is not its own", tenancy->number, (int)pid);
	return false;
}

/* What the page says may be of a process that has died, or made up. */
static int adopt_process(struct hb_tenancy *tenancy, uint32_t slot)
{
	const struct hb_page_process *process = &tenancy->page->processes[slot];
	struct hb_peer named = {.pid = (pid_t)process->pid, .start_ticks = process->start_ticks};
	int result = named.pidfd = hb_process_open(named.pid);
	if (result < 0)
		return result;
	bool is_it = hb_process_start_ticks(named.pid) == named.start_ticks && belongs(tenancy, named.pid);
	result = is_it && hb_process_lives(named.pidfd) ? watch_member(tenancy, &tenancy->members[slot], &named, slot)
							: -ESRCH;
	hb_peer_close(&named);
	return result;
}

/* GPUs and processes of a page from the time of an earlier daemon. Its processes register again by themselves, but
 * one that never calls CUDA again may not: watch them all now. */
static int adopt_contents(struct hb_tenancy *tenancy)
{
	struct hb_page *page = tenancy->page;
	int result = adopt_gpus(tenancy);
	if (result < 0)
		return result;
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (page->processes[slot].state == HB_PAGE_ACTIVE && adopt_process(tenancy, slot) < 0)
			hb_page_slot_free(page, slot);
	tenancy->repairs = REPAIRS_MAX;
	return 0;
}

/* A command line may hold anything: what is shown and logged is printable ASCII. */
static void copy_printable(char *to, size_t size, const char *from, size_t length)
{
	size_t n = length < size - 1 ? length : size - 1;
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
	to[n] = '\0';
}

static void fill_terms(struct hb_tenancy *tenancy, const struct hb_msg_register *request)
{
	struct hb_daemon *daemon = tenancy->daemon;
	tenancy->asked = (struct hb_terms){.priority = (enum hb_page_priority)request->priority,
					   .slo_ns = request->slo_ns,
					   .memory_bytes = request->memory_bytes};
	tenancy->terms = hb_admit(&daemon->config, daemon->options.system_mode, &tenancy->peer, &tenancy->asked,
				  tenancy->reduced);
	tenancy->attainment_ppm = request->attainment_ppm ? request->attainment_ppm : HB_DEFAULT_ATTAINMENT_PPM;
	tenancy->weight = request->pcie_weight ? request->pcie_weight : 1;
	tenancy->engine = (enum hb_engine)request->engine;
	tenancy->flags = request->flags & ~(uint32_t)(HB_REGISTER_CREATE | HB_REGISTER_PAGE);
}

int hb_tenancy_new(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		   const char *command, size_t command_length, int page_fd, struct hb_tenancy **tenancy)
{
	int index = free_index(daemon);
	struct hb_tenancy *made = index < 0 ? NULL : calloc(1, sizeof *made);
	if (!made)
		return index < 0 ? index : -ENOMEM;
	made->daemon = daemon;
	made->index = (uint32_t)index;
	made->number = ++daemon->next_number ? daemon->next_number : ++daemon->next_number;
	made->peer = *peer;
	made->peer.pidfd = -1; /* the caller's */
	made->since_ns = hb_clock_now_ns();
	made->page_fd = -1;
	memcpy(made->token, request->token, HB_TOKEN_BYTES);
	copy_printable(made->command, sizeof made->command, command, command_length);
	fill_terms(made, request);
	int result = take_page(made, page_fd);
	HB_FAULT(daemon_page_made);
	if (result == 0) {
		daemon->tenancies[index] = made;
		daemon->n_tenancies++;
		if (page_fd >= 0)
			result = adopt_contents(made);
		/* A fresh look at the clock: the devices may have been made just now, and their time never goes back. */
		for (uint32_t i = 0; result == 0 && i < made->n_devices; i++)
			result = hb_device_add(made->devices[i], made, i, hb_clock_now_ns());
	}
	if (result < 0) {
		hb_tenancy_free(made);
		return result;
	}
	hb_tenancy_publish(made);
	hb_tenancy_tick(made, hb_clock_now_ns());
	hb_log_info("tenant %u %s: pid %d, user %s, priority %s: %s", made->number, page_fd < 0 ? "begins" : "is back",
		    (int)peer->pid, peer->user, made->terms.priority == HB_PAGE_HIGH ? "high" : "low", made->command);
	HB_FAULT(daemon_tenant_made);
	*tenancy = made;
	return 0;
}

void hb_tenancy_free(struct hb_tenancy *tenancy)
{
	struct hb_daemon *daemon = tenancy->daemon;
	int64_t now_ns = hb_clock_now_ns();
	hb_life_end(tenancy);
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		hb_device_remove(tenancy->devices[i], tenancy, now_ns);
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++)
		hb_pid_watch_free(tenancy->members[i].watch);
	hb_pid_watch_free(tenancy->leader.watch);
	/* A process may still look at the page while the daemon stops: its gates stay as they are, the heartbeat ends. */
	hb_page_free(tenancy->page, tenancy->page_fd);
	if (daemon->tenancies[tenancy->index] == tenancy) {
		daemon->tenancies[tenancy->index] = NULL;
		daemon->n_tenancies--;
	}
	free(tenancy);
}

/* --- what a tenant uses and is told ---------------------------------------------------- */

int hb_tenancy_add_devices(struct hb_tenancy *tenancy, const struct hb_msg_register *request)
{
	for (uint32_t i = 0; i < request->n_gpus; i++) {
		struct hb_device *device;
		int result = hb_daemon_device(tenancy->daemon, request->uuids[i], &device);
		if (result < 0)
			return result;
		/* The first one to tell is believed: a wrong number spoils the reserve, and only that. */
		if (!device->page->total_bytes)
			device->page->total_bytes = request->totals[i];
		if (hb_tenancy_uses(tenancy, device))
			continue;
		uint32_t gpu = tenancy->n_devices;
		if (gpu == HB_PAGE_GPUS)
			return -ENOSPC;
		memcpy(tenancy->page->gpus[gpu].uuid, device->uuid, HB_UUID_BYTES);
		result = hb_device_add(device, tenancy, gpu, hb_clock_now_ns());
		if (result < 0)
			return result;
		HB_FAULT(daemon_gpu_added);
		tenancy->devices[tenancy->n_devices++] = device;
		hb_tenancy_publish(tenancy);
	}
	return 0;
}

void hb_tenancy_publish(struct hb_tenancy *tenancy)
{
	struct hb_page *page = tenancy->page;
	page->daemon_pid = (uint32_t)getpid();
	page->daemon_since_ns = tenancy->daemon->started_ns;
	page->priority = tenancy->terms.priority;
	page->slo_ns = tenancy->terms.slo_ns;
	page->attainment_ppm = tenancy->attainment_ppm;
	for (uint32_t i = 0; i < tenancy->n_devices; i++) {
		struct hb_page_gpu *gpu = &page->gpus[i];
		gpu->limit_bytes = tenancy->terms.memory_bytes ? tenancy->terms.memory_bytes : UINT64_MAX;
		gpu->engine = tenancy->devices[i]->engine;
		gpu->total_bytes = tenancy->devices[i]->page->total_bytes;
		atomic_store_explicit(&gpu->state, HB_PAGE_ACTIVE, memory_order_release);
	}
	page->heartbeat_ns = hb_clock_now_ns();
	atomic_store_explicit(&page->n_gpus, tenancy->n_devices, memory_order_release);
	atomic_store_explicit(&page->state, HB_PAGE_ACTIVE, memory_order_release);
}

int hb_tenancy_set(struct hb_tenancy *tenancy, const struct hb_msg_set *change, const struct hb_terms *terms,
		   struct hb_error *error)
{
	bool priority_too = terms->priority != tenancy->terms.priority;
	if (priority_too && tenancy->flags & HB_REGISTER_MPS)
		return hb_error_set(error, -EBUSY,
				    "tenant %u runs inside the MPS server, where a program keeps its priority; "
				    "end it and start it again with --priority %s",
				    tenancy->number, terms->priority == HB_PAGE_HIGH ? "high" : "low");
	tenancy->terms = *terms;
	if (change->fields & HB_SET_SLO && change->attainment_ppm)
		tenancy->attainment_ppm = change->attainment_ppm;
	if (change->fields & HB_SET_WEIGHT)
		tenancy->weight = change->pcie_weight;
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		hb_device_change(tenancy->devices[i], tenancy, priority_too, hb_clock_now_ns());
	hb_tenancy_publish(tenancy);
	return 0;
}

static bool has_executed_another(struct hb_member *member)
{
	if (!member->watch)
		return false;
	uint64_t image = hb_process_image(member->pid);
	if (!member->image)
		member->image = image;
	return image && image != member->image;
}

void hb_tenancy_look_for_exec(struct hb_tenancy *tenancy, int64_t now_ns)
{
	if (now_ns - tenancy->images_ns < IMAGES_EVERY_NS)
		return;
	tenancy->images_ns = now_ns;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		if (!has_executed_another(member))
			continue;
		hb_log_info("tenant %u: process %d executes another program", tenancy->number, (int)member->pid);
		drop_member(member);
	}
	end_if_empty(tenancy);
}

void hb_tenancy_tick(struct hb_tenancy *tenancy, int64_t now_ns)
{
	tenancy->page->heartbeat_ns = now_ns;
	if (!tenancy->repairs)
		return;
	bool force = --tenancy->repairs == 0, done = true;
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		done = hb_page_memory_repair(tenancy->page, i, force) && done;
	if (done)
		tenancy->repairs = 0;
}
