/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HB_FAULT(name) marks a row of fault_points.def. In builds with HB_FAULT_POINTS
 * (tests/fault only), a process with HB_FAULT=name in its environment is killed
 * there as by kill -9. In other builds it compiles to nothing.
 */
#ifndef HB_BASE_FAULT_POINT_H
#define HB_BASE_FAULT_POINT_H

enum hb_fault_point {
#define HB_FAULT_POINT(area, name) HB_FAULT_##name,
#include "base/fault_points.def"
#undef HB_FAULT_POINT
	HB_N_FAULTS
};

#ifdef HB_FAULT_POINTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static inline void hb_fault(const char *name)
{
	const char *wanted = getenv("HB_FAULT");
	if (wanted && strcmp(wanted, name) == 0)
		raise(SIGKILL);
}
#define HB_FAULT(name) ((void)HB_FAULT_##name, hb_fault(#name))
#else
#define HB_FAULT(name) ((void)HB_FAULT_##name)
#endif

#endif
