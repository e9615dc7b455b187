/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the memory that LP tenants may use on a GPU: the GPU's memory without the
 * reserve for HP. The unused part of it is divided into leases on the tenant pages
 * (struct hb_page_gpu). A tenant that needs more asks (message MEMORY) and
 * gets it from the unused leases of the others.
 *
 * Trust. A tenant reports what it uses on its own page. A report counts only up to
 * the GPU's memory; and if the driver twice sees clearly less than a tenant
 * reports, then for a minute only up to what the driver sees. So a tenant that
 * reports too much does not keep memory from the others. Without figures of the
 * driver each tenant gets at least an equal part, whatever others report. The total is what the
 * driver reports; a tenant's own figure counts for that tenant only, and only if
 * the driver gives none.
 */
#ifndef HB_DAEMON_GPU_MEMORY_H
#define HB_DAEMON_GPU_MEMORY_H

#include "daemon/gpu_record.h"

/* Memory of the GPU as it counts for this tenant; 0 = unknown. */
uint64_t hb_gpu_memory_total(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t gpu_index);

/* Computes and writes the leases of all tenants, and the sum on the GPU page. At each tick, and after changes. */
void hb_gpu_memory_share(struct hb_gpu *gpu, int64_t now_ns);

/*
 * The tenant needs `bytes` more than its lease allows. 0: its lease is large enough now; -EAGAIN: the driver was asked
 * what the others really use, ask again in some ms; -ENOMEM: there is not as much; -ENOENT: it does not use the GPU.
 */
int hb_gpu_memory_ask(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint64_t bytes, int64_t now_ns);

/* Around a question to the driver about all GPUs: before it, and with its answer in gpu->use. */
void hb_gpu_memory_begin_sample(struct hb_gpu *gpu, int64_t now_ns);
void hb_gpu_memory_end_sample(struct hb_gpu *gpu, int64_t now_ns);

#endif
