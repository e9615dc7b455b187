/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of elastic memory on the tenant pages (struct hb_page_elastic): what the
 * processes report, and how much memory of the host each may use. All values are
 * untrusted: a process can write anything to its tenant's page.
 */
#ifndef HB_DAEMON_ELASTIC_RECORDS_H
#define HB_DAEMON_ELASTIC_RECORDS_H

#include "daemon/tenant_record.h"

/* Elastic memory of a tenant on one GPU, all its processes together, in bytes. */
struct hb_elastic_bytes {
	uint32_t records; /* processes with such memory; the rest is 0 if there is none */
	uint64_t local, peer, host;
	uint64_t
		away; /* can return: what is on peers, and the part of `host` that the daemon has granted, and so believes */
	uint64_t movable; /* can move now: as much as the processes have prepared host memory for */
	uint64_t held;    /* could move, but there is no prepared host memory for it */
	uint64_t spare, leaked;
	uint64_t over; /* the part of `host` that does not count against the lease */
	uint64_t host_limit;
	uint32_t parked,
		waits; /* records whose process is parked (enum hb_page_parked); those that wait for their memory */
	uint64_t stays[HB_N_PAGE_STAYS]; /* cannot move, by enum hb_page_stay */
};

/* Whether the tenant was started with elastic memory. */
bool hb_tenancy_is_elastic(const struct hb_tenancy *tenancy);
/* Whether the record belongs to a running process of the tenant and to this GPU of the page. */
bool hb_elastic_owns(const struct hb_tenancy *tenancy, uint32_t record, uint32_t gpu_index);
struct hb_elastic_bytes hb_elastic_count(const struct hb_tenancy *tenancy, uint32_t gpu_index);
/* Whether the record belongs to the process in this slot, on any GPU. */
bool hb_elastic_is_of(const struct hb_tenancy *tenancy, uint32_t record, uint32_t slot);
/* Returns how many bytes of one process, by its slot, are not on this GPU although the tenant's account has them. */
uint64_t hb_elastic_away(const struct hb_tenancy *tenancy, uint32_t slot, uint32_t gpu_index);
/* Returns how many bytes of the record are on the host and can return: not what does not count against the lease. */
uint64_t hb_elastic_returning(const struct hb_tenancy *tenancy, uint32_t record);
/* Returns how many bytes of the record are on its peer; the part of them for which host memory is prepared, so that they can leave. */
uint64_t hb_elastic_on_peer(const struct hb_tenancy *tenancy, uint32_t record);
uint64_t hb_elastic_leaving(const struct hb_tenancy *tenancy, uint32_t record);
/* The record is about to get an order to move so much to its peer, which has total_bytes: then that much is believed to be there. */
void hb_elastic_order_to_peer(struct hb_tenancy *tenancy, uint32_t record, uint64_t bytes, uint64_t total_bytes);
/* The record's peer was found again after a restart of the daemon. */
void hb_elastic_limit_peer(struct hb_tenancy *tenancy, uint32_t record, uint64_t total_bytes);
/* Returns how many bytes the record's process can move away now: host memory is prepared for them, also if they go to a peer. */
uint64_t hb_elastic_movable(const struct hb_tenancy *tenancy, uint32_t record);
/* The page was made by an earlier daemon: its grants stay in force until the next tick. */
void hb_elastic_adopt(struct hb_tenancy *tenancy);
/* The process has left its slot: frees its records. */
void hb_elastic_leave(struct hb_tenancy *tenancy, uint32_t slot);
/* Every HB_TICK_MS: divides the host memory of the configuration among the records of all tenants. */
void hb_elastic_grant_host(struct hb_daemon *daemon);
/* Bytes of host memory that all records may use together. */
uint64_t hb_elastic_granted(const struct hb_daemon *daemon);

#endif
