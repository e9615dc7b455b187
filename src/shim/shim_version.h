/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim's version, as the exported symbol hb_shim_version holds it: major *
 * 1,000,000 + minor * 1000 + patch.
 */
#ifndef HB_SHIM_SHIM_VERSION_H
#define HB_SHIM_SHIM_VERSION_H

#include "hummingbird/hummingbird.h"

#define HB_SHIM_VERSION (HB_VERSION_MAJOR * 1000000 + HB_VERSION_MINOR * 1000 + HB_VERSION_PATCH)

extern __attribute__((visibility("default"))) const unsigned hb_shim_version;

#endif
