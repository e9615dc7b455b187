/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders to LP tenants to move elastic memory: one of a tenant and GPU at a time,
 * written to the records of its processes (struct hb_page_elastic). The result of an
 * order becomes an event of the GPU's core. Called by gpu_elastic.c and gpu_peers.c.
 */
#ifndef HB_DAEMON_GPU_ORDERS_H
#define HB_DAEMON_GPU_ORDERS_H

#include "daemon/gpu_record.h"

struct hb_order_wish {
	enum hb_order_direction direction;
	uint64_t bytes;      /* all together */
	uint64_t peer_bytes; /* HB_ORDER_AWAY: the part for the peer */
	bool wake;           /* the processes wait for the order, also for one of no bytes */
	struct hb_gpu *left; /* HB_ORDER_LEAVE: the GPU that the memory leaves */
};

/* Replaces an order that is not answered. */
void hb_gpu_order_give(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_order_wish *wish,
		       int64_t now_ns);
/* Reads results. */
void hb_gpu_order_poll(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns);
/* The driver has said how much memory is free: a move for HP counts up to what that has grown by. */
void hb_gpu_order_credit(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint64_t free_bytes, int64_t now_ns);
/* Forgets the order without an event. */
void hb_gpu_order_drop(struct hb_gpu *gpu, uint32_t index);

#endif
