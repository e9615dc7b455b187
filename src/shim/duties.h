/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bit makes which file act on a driver call.
 *
 * Duties belong to a function: its row in hooks.def names them, and forward.c
 * carries them out before and after the call.
 *
 * | duty    | before the call                                | after the call                |
 * |---------|------------------------------------------------|-------------------------------|
 * | GATE    | gate_wait.c: waits while the gate is closed;   | as the alerts require         |
 * |         | then what the alerts below require             |                               |
 * | REFRESH | shim_tenant.c: applies changes of the pages    |                               |
 * | CONTEXT | shim_tenant.c: forgets the thread's GPU        |                               |
 * | WIDE    | takeover.c: releases takeovers, allows none    | takeover.c: allows them again |
 * | DOUBT   | takeover.c: notes the begin of the call        | takeover.c: forgets it        |
 * | IDLE    | (with READ) shim_spatial_high.c: HP waits now  | shim_foresight.c: GPU is idle |
 * | KEEP    | shim_foresight.c: may keep the GPU after the   | shim_foresight.c: wait ended  |
 * |         | work that the call waits for                   |                               |
 * | READ    | shim_spatial_high.c: HP waits for its work now |                               |
 * |         | shim_foresight.c: as KEEP, if it has waited    | shim_foresight.c: learns that |
 * | SIGN    | shim_foresight.c: a sign, if the GPU was idle  |                               |
 * | GRAPH   | shim_spatial_low.c: sets the mask for LP       | shim_spatial_low.c: resets it |
 *
 * Alerts belong to the process: other files set them in hb_shim_alert, the one
 * word that each call with GATE reads (relaxed; 0 in the common case).
 *
 * | alert   | set by                                  | what happens at a launch                      |
 * |---------|-----------------------------------------|-----------------------------------------------|
 * | TAKEN,  | takeover.c: one bit per context that    | takeover.c: takeover kernels stay a little    |
 * | KEPT    | took its GPU over or keeps it           | longer; released after a launch that needs a  |
 * |         |                                         | whole SM                                      |
 * | FIRST   | shim_foresight.c: the GPU is idle       | shim_foresight.c: a request begins            |
 * | SPATIAL | shim_spatial_rows.c: spatial engine     | HP: shim_spatial_high.c counts the launch.    |
 * |         |                                         | LP: shim_spatial_low.c waits, masks or splits |
 * | SPLIT   | an extension (extension.h)              | split_launch.c: every launch may be split     |
 * | ELASTIC | hold.c: the process has elastic memory   | hold.c: waits while memory moves; so do       |
 * |         |                                         | copies, memsets, host functions               |
 * | TRACE   | launch_trace.c: the daemon records      | launch_trace.c: records the launch            |
 */
#ifndef HB_SHIM_DUTIES_H
#define HB_SHIM_DUTIES_H

#include <stdatomic.h>
#include <stdint.h>

enum hb_duty {
	HB_DUTY_FREE = 0,    /* none: the call must never wait, because it waits itself or running work may need it */
	HB_DUTY_GATE = 1,    /* a launch */
	HB_DUTY_REFRESH = 2, /* slow by nature */
	HB_DUTY_CONTEXT = 4, /* may change the thread's current context */
	HB_DUTY_WIDE = 8,    /* may wait for all work of the context, takeover kernels included */
	HB_DUTY_DOUBT = 16,  /* should not wait for takeover kernels; if it takes long, they are released */
	HB_DUTY_IDLE = 32,   /* the GPU is idle after success, unless another thread launched meanwhile */
	HB_DUTY_SIGN = 64,   /* may be the first call of a request */
	HB_DUTY_GRAPH = 128, /* writes launch descriptors that run later */
	HB_DUTY_KEEP = 256,  /* waits for a stream or an event */
	HB_DUTY_READ = 512,  /* may wait for earlier launches, as a copy to memory that is not pinned does */
};

enum { HB_TAKEOVER_CONTEXTS = 8 };

enum hb_alert {
	HB_ALERT_TAKEN = (1 << HB_TAKEOVER_CONTEXTS) - 1,
	HB_ALERT_KEPT = (HB_ALERT_TAKEN << HB_TAKEOVER_CONTEXTS) | (HB_ALERT_TAKEN << 2 * HB_TAKEOVER_CONTEXTS),
	HB_ALERT_TAKEOVER = HB_ALERT_TAKEN | HB_ALERT_KEPT,
	HB_ALERT_ELASTIC = 1 << 26,
	HB_ALERT_TRACE = 1 << 27,
	HB_ALERT_SPLIT = 1 << 28,
	HB_ALERT_SPATIAL = 1 << 29,
	HB_ALERT_FIRST = 1 << 30,
};

/* takeover.c */
extern _Atomic(uint32_t) hb_shim_alert;

static inline uint32_t hb_alert_read(void)
{
	return atomic_load_explicit(&hb_shim_alert, memory_order_relaxed);
}

#endif
