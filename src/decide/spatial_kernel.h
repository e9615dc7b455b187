/* SPDX-License-Identifier: Apache-2.0 */
/* Between spatial_low.c (decisions) and spatial_kernel.c (what is known of kernels); nobody else includes it. */
#ifndef HB_CORE_SLACK_KERNEL_H
#define HB_CORE_SLACK_KERNEL_H

#include "decide/spatial_low.h"

/* Taken for the duration of a kernel that was never measured. */
#define HB_SPATIAL_GUESS_NS 20000

/* The kernel's place in the table, made if it was not there. */
uint32_t hb_spatial_place(struct hb_spatial_low *low, const struct hb_spatial_shape *shape);
/* The place for a launch of it that follows `after`, made likewise. */
uint32_t hb_spatial_spot(struct hb_spatial_low *low, const uint64_t after[HB_SPATIAL_AFTER], uint64_t key);
/* Mask and stretch for this reserve. */
void hb_spatial_fit(const struct hb_spatial_low *low, struct hb_spatial_kernel *kernel, uint32_t reserve);
/* A measured duration on the whole GPU, or no more than a bound. */
void hb_spatial_note_duration(struct hb_spatial_low *low, uint32_t kernel, uint32_t spot, int64_t duration_ns,
			      bool bound);
/* A measured duration behind the mask. */
void hb_spatial_note_masked(struct hb_spatial_low *low, uint32_t kernel, uint32_t spot, int64_t duration_ns);
/* What the request that has ended says of the kernels that ran beside it. */
void hb_spatial_note_excess(struct hb_spatial_low *low, int64_t excess_ns);

#endif
