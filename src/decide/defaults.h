/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that the daemon, the shim and the simulator share, one constant
 * for each row of defaults.def (HB_DEFAULT_WINDOW_NS and so on). No other file
 * may repeat such a number: the unit test test_defaults compares what the
 * daemon's configuration, the core, the shim and the simulator start with.
 */
#ifndef HB_DECIDE_DEFAULTS_H
#define HB_DECIDE_DEFAULTS_H

/* Every value fits into an int; widen before multiplying. */
enum hb_default {
#define HB_DEFAULT(NAME, value, unit, origin, larger) HB_DEFAULT_##NAME = (value),
#include "decide/defaults.def"
#undef HB_DEFAULT
};

#endif
