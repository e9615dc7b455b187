/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel is bound by, read from its name: neither traces nor closed
 * libraries tell more. Used for bandwidth contention in the GPU model and by the
 * interference rule of Orion, in the simulator and in the shim.
 */
#ifndef HB_CORE_KERNEL_CLASS_H
#define HB_CORE_KERNEL_CLASS_H

#include "core/core.h"

enum hb_class hb_kernel_class(const char *name);
/* Share of the GPU's memory bandwidth such a kernel uses when it fills the GPU. */
double hb_kernel_memory_share(enum hb_class class);

/*
 * Blocks per cluster where the name tells (cuBLAS writes it: nvjet_..._2x4_...);
 * recorded traces have no column for it. 1 = none, or not known.
 */
uint32_t hb_kernel_cluster(const char *name);

#endif
