/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU's scheduling core inside the daemon: makes it, posts events to it and
 * notes its decisions in hb_gpu.tenants. Nothing is written to a page here:
 * the caller posts events and then calls hb_gpu_apply() (gpu_gates.h) once.
 */
#ifndef HB_DAEMON_GPU_CORE_H
#define HB_DAEMON_GPU_CORE_H

#include "daemon/gpu_record.h"

/* Makes a core for the GPU's engine and the configuration in force. 0 or hb_core_new()'s error; then nothing has changed. */
int hb_gpu_make_core(struct hb_gpu *gpu, int64_t now_ns);
/* Posts an event and notes the decisions that follow from it. 0 or hb_core_post()'s error. */
int hb_gpu_post(struct hb_gpu *gpu, int64_t now_ns, const struct hb_event *event);
/* Posts an event that has no fields. */
int hb_gpu_post_kind(struct hb_gpu *gpu, int64_t now_ns, uint32_t tenant, enum hb_event_kind kind);
/* Lets the core's timers run and notes the decisions that follow. */
void hb_gpu_step(struct hb_gpu *gpu, int64_t now_ns);
/* LP's time slice: of the configuration, or the default. */
int64_t hb_gpu_low_slice_ns(const struct hb_gpu *gpu);

#endif
