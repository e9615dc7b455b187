/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's records of tenants and of their processes. The daemon decides
 * from these records alone; a tenant page only carries the decisions to the
 * tenant's processes. tenancy.c fills the records, most other files read them.
 */
#ifndef HB_DAEMON_TENANT_RECORD_H
#define HB_DAEMON_TENANT_RECORD_H

#include "daemon/admission.h"
#include "daemon/engine_history.h"
#include "daemon/pid_watch.h"
#include "protocol/protocol.h"

#include <stdbool.h>

#define HB_TENANCIES_MAX 256 /* also the size of a core's table: a tenant's index is its id in every core */

struct hb_daemon;
struct hb_gpu;
struct hb_user;

/* A process that keeps its tenant alive. */
struct hb_member {
	struct hb_tenancy *tenancy;
	struct hb_pid_watch *watch; /* NULL = this entry is not used */
	pid_t pid;
	uint64_t start_ticks;
	uint64_t image;   /* hb_process_image() when the process registered; 0 = not known */
	bool fault_noted; /* mps_faults.c knows of the error that its shim reported */
	bool terminated;  /* its work in the MPS server was ended by the daemon */
	bool is_held;     /* its gates are closed while its work is being ended (supervision.c) */
	uint32_t slot;    /* on the tenant page; HB_PAGE_PROCESSES for the leader, `hb run` and later its command */
	uint64_t requests_read; /* requests taken from the process's ring on the page so far */
	uint32_t requests_lost; /* requests that could not be read since the last one that was posted */
};

/* One tenant. */
struct hb_tenancy {
	struct hb_daemon *daemon;
	uint32_t index;  /* in hb_daemon.tenancies, and the tenant's id in every core */
	uint32_t number; /* the id that people see; not used again soon */
	unsigned char token[HB_TOKEN_BYTES];
	struct hb_peer peer;     /* the process that registered the tenant first */
	struct hb_user *user;    /* is charged for the tenant, its processes and GPUs; NULL = an MPS server */
	uint32_t flags;          /* enum hb_register_flags */
	struct hb_rights rights; /* what the tenant may have now */
	struct hb_rights most;   /* peer.by_root: the most that its user may set */
	bool open;               /* peer.by_root: any process of the user that knows the token may join */
	char reduced[160];       /* why the rights are less than requested; "" = they are not */
	uint32_t attainment_ppm;
	uint32_t weight;          /* share of the GPU among LP tenants */
	uint32_t pcie_weight;     /* share of PCIe among LP tenants; 0 = weight */
	enum hb_engine engine;    /* requested or chosen engine */
	bool engine_is_chosen;    /* `engine: auto` chose the engine, the user did not request one */
	char engine_why[400];     /* the measurements behind that choice; "" = there were none */
	struct hb_engine_run run; /* HP: what this run of the program has shown so far */
	char command[256];        /* printable ASCII */
	int64_t since_ns;         /* time of the registration */
	struct hb_page *page;
	int page_fd;
	uint64_t page_inode;
	struct hb_member leader;
	struct hb_member members[HB_PAGE_PROCESSES]; /* by slot */
	uint32_t n_members;
	uint32_t slots_end;                /* no member uses this slot or a higher one */
	struct hb_gpu *gpus[HB_PAGE_GPUS]; /* by index of hb_page.gpus */
	uint32_t n_gpus;
	uint64_t totals
		[HB_PAGE_GPUS]; /* memory of the GPUs as the tenant reported it; counts for itself if the driver reports none */
	uint64_t host_limits[HB_PAGE_ELASTIC]; /* bytes of host memory granted to each record of elastic memory */
	uint64_t peer_limits[HB_PAGE_ELASTIC]; /* bytes on its peer that each record is believed */
	uint64_t past[HB_N_COUNTS];            /* summed counters of processes that have ended */
	int64_t learned_slo_ns;                /* SLO that a replaced core had learned; 0 = none */
	int64_t rings_read_ns;                 /* time of the last reading of its processes' request rings; 0 = never */
	int64_t rings_next_ns;                 /* time of the next reading */
	int64_t images_ns; /* time of the last check for processes that have executed another program */
	uint32_t repairs;  /* remaining attempts to repair memory sums; 0 = nothing to repair */
};

/* An MPS server is neither high nor low priority: it gets time slices, but no gate and no memory limit. */
static inline bool hb_tenancy_is_server(const struct hb_tenancy *tenancy)
{
	return tenancy->flags & HB_REGISTER_SERVER;
}

static inline bool hb_tenancy_is_low(const struct hb_tenancy *tenancy)
{
	return tenancy->rights.priority == HB_PAGE_LOW && !hb_tenancy_is_server(tenancy);
}

static inline bool hb_tenancy_is_high(const struct hb_tenancy *tenancy)
{
	return tenancy->rights.priority == HB_PAGE_HIGH && !hb_tenancy_is_server(tenancy);
}

/* Whether a process of the tenant has reported that it uses this GPU. */
static inline bool hb_tenancy_uses(const struct hb_tenancy *tenancy, const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		if (tenancy->gpus[i] == gpu)
			return true;
	return false;
}

/* Returns the slot of the tenant's CUDA process with this pid; HB_PAGE_PROCESSES = there is none. */
static inline uint32_t hb_tenancy_find_slot(const struct hb_tenancy *tenancy, pid_t pid)
{
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++)
		if (tenancy->members[slot].watch && tenancy->members[slot].pid == pid)
			return slot;
	return HB_PAGE_PROCESSES;
}

static inline bool hb_tenancy_has_process(const struct hb_tenancy *tenancy, pid_t pid)
{
	return hb_tenancy_find_slot(tenancy, pid) < HB_PAGE_PROCESSES;
}

#endif
