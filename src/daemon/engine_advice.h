/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says when the other engine would serve low priority better. The temporal engine gives LP the time in which no request of
 * HP is present; the spatial engine gives LP what HP's kernels leave of the GPU. So two measurements decide: the part of
 * the time in which a request is present, and the part in which HP's kernels run (NVML's utilization of the process).
 * On an H200 the spatial engine gave LP 76 % where HP's kernels took 15 to 21 % of the time, and 91 % where they took 4
 * to 6 % (docs/spatial-programs.md), so the text says "about".
 */
#ifndef HB_DAEMON_ENGINE_ADVICE_H
#define HB_DAEMON_ENGINE_ADVICE_H

#include "daemon/gpu_record.h"

/* Holds what was measured of an HP tenant on one GPU. Begins all zero. */
struct hb_engine_advice {
	int64_t sampled_ns;    /* time of the last sample; 0 = none yet */
	uint64_t requests_ns;  /* summed latency of all requests at the last sample */
	uint32_t samples;      /* that the two means contain */
	uint32_t presence_ppm; /* mean part of the time with a request present */
	uint32_t busy_ppm;     /* mean part of the time with kernels of the tenant on the GPU */
};

/* The driver has answered how busy each process kept the GPU: takes a sample of each HP tenant. */
void hb_engine_advice_update(struct hb_gpu *gpu, int64_t now_ns);
/* Writes one line for the status, or "" if there is nothing to say or too little was measured. */
void hb_engine_advice_text(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, char *text, size_t size);

#endif
