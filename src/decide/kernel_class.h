/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guesses from a kernel's name whether it is bound by arithmetic or by memory;
 * neither traces nor closed libraries say more. Used for bandwidth contention in the
 * GPU model and for Orion's rule.
 */
#ifndef HB_DECIDE_KERNEL_CLASS_H
#define HB_DECIDE_KERNEL_CLASS_H

#include <stdint.h>

/* What a kernel is bound by. */
enum hb_class { HB_CLASS_UNKNOWN, HB_CLASS_COMPUTE, HB_CLASS_MEMORY };

enum hb_class hb_kernel_class(const char *name);
/* Share of the GPU's memory bandwidth that such a kernel uses when it fills the GPU. */
double hb_kernel_memory_share(enum hb_class class);

/* Blocks per cluster from the names that cuBLAS gives (nvjet_..._2x4_...); traces have no column for it. 1 = none or not known. */
uint32_t hb_kernel_cluster(const char *name);

#endif
