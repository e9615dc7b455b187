/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves of LP's memory on one GPU (docs/decisions/0025-elastic-memory.md), outside of
 * the core. An allocation of HP that did not fit becomes an event of the core; its
 * actions become orders on tenant pages (struct hb_page_elastic); results become events,
 * and the core's answer goes back to HP. The core decides, this file carries and checks:
 *
 *	free memory	is what the driver says after the question that this file asks for
 *			each need, and again after each move
 *	a move		counts up to what the GPU's free memory has grown by, whatever the
 *			process says
 *	time		is limited by the core (memory_moves.c), and by NEED_LIMIT_NS here if
 *			the driver does not answer or the core was replaced
 */
#ifndef HB_DAEMON_GPU_ELASTIC_H
#define HB_DAEMON_GPU_ELASTIC_H

#include "daemon/gpu_record.h"

struct json_t;

struct hb_elastic_gpu;

/* NULL: out of memory. */
struct hb_elastic_gpu *hb_gpu_elastic_new(void);
void hb_gpu_elastic_free(struct hb_elastic_gpu *elastic);

/*
 * An allocation of the HP tenant needs `bytes`. -EINPROGRESS: hb_server_answer_memory() will be called; -EAGAIN: another
 * allocation of the tenant waits; or a negative errno with *why, which the GPU's status then shows.
 */
int hb_gpu_elastic_need(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint64_t bytes, int64_t now_ns,
			const char **why);
/* Carries out an action of the core: memory_move, memory_return or memory_answer. */
void hb_gpu_elastic_act(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct hb_action *action, int64_t now_ns);
/* Whenever the GPU is served, and every HB_TICK_MS: reads results of orders, and tells the core what can move. */
void hb_gpu_elastic_poll(struct hb_gpu *gpu, int64_t now_ns);
void hb_gpu_elastic_tick(struct hb_gpu *gpu, int64_t now_ns);
/* Around a question to the driver: when it begins, and with the answer in gpu->use. */
void hb_gpu_elastic_begin_sample(struct hb_gpu *gpu, int64_t now_ns);
void hb_gpu_elastic_end_sample(struct hb_gpu *gpu, int64_t now_ns);
/* The tenant leaves the GPU's core, or gets another core: its need is answered, and its orders are forgotten. */
void hb_gpu_elastic_forget(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns);

/* The tenant does not use the GPU any more: another tenant may get its index. */
void hb_gpu_elastic_reset(struct hb_gpu *gpu, uint32_t index);

/* Whether an order waits for its result, which the doorbell reports. */
bool hb_gpu_elastic_is_waiting(const struct hb_gpu *gpu);
/* Whether a process is parked; the doorbell reports when it wants to run. */
bool hb_gpu_elastic_is_any_parked(const struct hb_gpu *gpu);
/* Whether LP may take no more memory now, because HP is about to take what LP has made free. */
bool hb_gpu_elastic_holds(const struct hb_gpu *gpu, int64_t now_ns);

/* {"host_pool", "host_granted", "needs", ...} of the GPU for the status, and of one tenant on it; NULL when out of memory. */
struct json_t *hb_gpu_elastic_json(const struct hb_gpu *gpu, int64_t now_ns);
struct json_t *hb_tenant_elastic_json(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t now_ns);
/* The same in words. LP: where its memory is. HP: why its last allocation found no room. False: there is nothing to say. */
bool hb_gpu_elastic_describe(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *works, char *why,
			     size_t size);

#endif
