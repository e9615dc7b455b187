/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HB_FAULT(name) marks a row of fault_points.def. In builds with HB_FAULT_POINTS
 * (tests/fault only), a process with HB_FAULT=name in its environment is killed
 * there as by kill -9; with HB_FAULT=name:stop it stops there once, as by
 * kill -STOP, until it gets SIGCONT. In other builds it compiles to nothing.
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
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void hb_fault(const char *name)
{
	static bool has_stopped;
	const char *wanted = getenv("HB_FAULT");
	size_t length = strlen(name);
	if (!wanted || strncmp(wanted, name, length) != 0)
		return;
	if (wanted[length] == '\0')
		raise(SIGKILL);
	if (strcmp(wanted + length, ":stop") != 0 || has_stopped)
		return;
	has_stopped = true;
	kill(getpid(), SIGSTOP);
}
#define HB_FAULT(name) ((void)HB_FAULT_##name, hb_fault(#name))
#else
#define HB_FAULT(name) ((void)HB_FAULT_##name)
#endif

#endif
