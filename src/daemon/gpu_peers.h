/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU's LP tenants on another GPU, its peer (docs/decisions/0025-elastic-memory.md).
 *
 *	the peer	is one GPU at a time: the one with the most free memory beyond the
 *			reserve when HP needs room, until all memory has left it
 *	guests		is this memory, seen from the peer. Host memory is prepared for it,
 *			so that it can leave at once when a tenant of the peer needs the room
 *
 * Called by gpu_elastic.c and gpu_orders.c.
 */
#ifndef HB_DAEMON_GPU_PEERS_H
#define HB_DAEMON_GPU_PEERS_H

#include "daemon/gpu_record.h"

/* Free memory of the GPU in the driver's last answer. False: the driver does not say. */
bool hb_peers_read_free(const struct hb_gpu *gpu, uint64_t *bytes);
/* Chooses the GPU's peer. Returns how much memory it has room for; 0: there is no peer. */
uint64_t hb_peers_choose(struct hb_gpu *gpu);
/* Bytes of guests on this GPU; `leaving`: only those that can leave now. */
uint64_t hb_peers_count_guests(const struct hb_gpu *gpu, bool leaving);
/* Bytes that one process, by its slot, has on this GPU as a guest. */
uint64_t hb_peers_count_process(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t slot);
/* The core's action memory_evict: its event memory_evicted follows from hb_peers_poll(). */
void hb_peers_evict(struct hb_gpu *gpu, const struct hb_tenancy *asker, uint64_t bytes, int64_t now_ns);
/*
 * An LP tenant of this GPU asks for memory, which guests may have. 0: there is nothing to wait for; -EAGAIN: ask again;
 * -EALREADY: memory was taken back, so the driver should be called again.
 */
int hb_peers_take_back(struct hb_gpu *gpu, uint64_t bytes, int64_t now_ns);
/* An order to leave this GPU has ended. */
void hb_peers_end_order(struct hb_gpu *gpu, uint64_t bytes);
void hb_peers_poll(struct hb_gpu *gpu, int64_t now_ns);
/* Every HB_TICK_MS: finds the peer after a restart of the daemon, and forgets one that has no memory any more. */
void hb_peers_tick(struct hb_gpu *gpu);
/* The GPU is about to be freed. */
void hb_peers_forget(struct hb_gpu *gpu);

#endif
