/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of spatial_kernel.c (knowledge about kernels) and spatial_flight.c (launches in flight) for spatial_low.c (decisions) and tests. No other file includes this header. */
#ifndef HB_DECIDE_SPATIAL_KERNEL_H
#define HB_DECIDE_SPATIAL_KERNEL_H

#include "decide/spatial_low.h"

/* Assumed duration of a kernel that was never measured. */
#define HB_SPATIAL_GUESS_NS 20000

/* Notes that a kernel runs beside the present request (spatial_flight.c). */
void hb_spatial_note_use(struct hb_spatial_low *low, uint32_t kernel, uint32_t ns, bool wide);
/* Returns the kernel's place in the table; makes an entry if there is none. */
uint32_t hb_spatial_place(struct hb_spatial_low *low, const struct hb_spatial_shape *shape);
/* The same for a launch that follows the launches `after`. */
uint32_t hb_spatial_spot(struct hb_spatial_low *low, const uint64_t after[HB_SPATIAL_AFTER], uint64_t key);
/* The SMs of a launch that leaves a reserve free; how much longer the kernel runs on `sms` SMs, judged by its shape, times 1024. */
uint32_t hb_spatial_sms_left(const struct hb_spatial_low *low, uint32_t reserve);
uint32_t hb_spatial_stretch_q10(const struct hb_spatial_low *low, const struct hb_spatial_kernel *kernel, uint32_t sms);
/* Computes mask and stretch of the kernel for a reserve. */
void hb_spatial_fit(const struct hb_spatial_low *low, struct hb_spatial_kernel *kernel, uint32_t reserve);
/* Learns a duration on the entire GPU, or an upper bound of it. */
void hb_spatial_note_duration(struct hb_spatial_low *low, uint32_t kernel, uint32_t spot, int64_t duration_ns,
			      bool bound);
/*
 * Learns a duration behind the mask. If the kernel was never measured without a mask, only a long one counts: before it runs without
 * a mask, it has to be known that its blocks are long.
 */
void hb_spatial_note_masked(struct hb_spatial_low *low, uint32_t kernel, uint32_t spot, int64_t duration_ns,
			    bool exact);
/* Learns the harm of the kernels that ran beside a request, from its excess. */
void hb_spatial_note_excess(struct hb_spatial_low *low, int64_t excess_ns);

#endif
