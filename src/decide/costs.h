/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of one GPU's mechanisms that decisions rest on: the defaults of
 * hb_core_config, all measured on an H200 (driver 580.159, CUDA 13.0). The
 * daemon replaces those it can probe. Nothing else in the core names a number
 * of hardware.
 */
#ifndef HB_CORE_COSTS_H
#define HB_CORE_COSTS_H

#define HB_H200_SMS 132

/* Context switch, HP's launch to HP running: 190 us beside 20 us blocks (160 us beside one idle-ish block). */
#define HB_H200_SWITCH_NS INT64_C(190000)

/* Two hold kernels this early bring HP's added latency from 190 us to 5 us; 250 us gives the same within 1 us, 400 us
 * leaves room for the switch being late (p99 260 us). */
#define HB_H200_HOLD_LEAD_NS INT64_C(400000)

/* Holds this much ahead hide the switch also when it is late (p99 of the switch 260 us); what the learned decision aims
 * at, where the 400 us above also cover a hint that is not exact. */
#define HB_H200_HOLD_READY_NS INT64_C(260000)

/* A context without work keeps the GPU this long: kernels started 3 us after the last one ended stay together, 6 us
 * apart they do not. */
#define HB_H200_YIELD_NS INT64_C(4000)

/* What LP's time is worth against HP's delay when a hold is weighed. Chosen: ten ns of LP for one of HP. */
#define HB_TAKEOVER_WEIGHT_PPM 100000

/* What holds may take of LP's time, and what may be saved up: one second's worth. Chosen. */
#define HB_TAKEOVER_BUDGET_PPM 20000
#define HB_TAKEOVER_BUDGET_CAP_NS INT64_C(20000000)

/* LP's compute slice: 1 us gives HP p99 240 to 250 us, 20 us 260 us, the default 2048 us 2300 us. */
#define HB_H200_LOW_SLICE_NS INT64_C(1000)

/* Copy slices of all LP processes together: 20 us each of two gave 50.8 of 54.8 GB/s and HP p99 88 us; 1 us each gave
 * 40.6 GB/s, 100 us each 54.5 GB/s and 249 us. */
#define HB_H200_COPY_ROUND_NS INT64_C(40000)

/* A copy engine stays this much longer than the slice on each process: slices of 10 and 30 us shared PCIe as 1 : 2.59. */
#define HB_H200_COPY_OVERRUN_NS INT64_C(2600)

/* libcuda's own compute slice, in force where nothing was set. */
#define HB_H200_DEFAULT_SLICE_NS INT64_C(2048000)

/* And its copy slice, a copy engine. */
#define HB_H200_DEFAULT_COPY_SLICE_NS INT64_C(1024000)

/* HP's slice: longer than any request of the recorded models (up to 40 ms), so that a request is never cut; what LP
 * can lose by it is bounded by HP's own work, since a group without work gives the GPU up at once. */
#define HB_HIGH_SLICE_NS INT64_C(100000000)

/* A hint later than this was wrong: two switches' worth of LP time and then some. Chosen, not measured. */
#define HB_TAKEOVER_GRACE_NS INT64_C(1000000)

#endif
