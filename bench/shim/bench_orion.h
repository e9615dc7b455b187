/* SPDX-License-Identifier: Apache-2.0 */
/* What an HP process reports to LP processes for Orion's rule; see bench_orion.c. */
#ifndef HB_BENCH_ORION_H
#define HB_BENCH_ORION_H

#include <stdatomic.h>
#include <stdint.h>

/* Value of high_alone_ns while HP measures its time alone: LP launches wait. */
#define HB_ORION_LEARNING UINT32_MAX

/* The file named by HB_BENCH_ORION, mapped by all programs of a benchmark. All zero at first. */
struct hb_orion_file {
	_Atomic(uint32_t) high_class;    /* enum hb_class of HP's last kernel */
	_Atomic(uint32_t) high_alone_ns; /* time of a request alone; 0 = unknown */
};

#endif
