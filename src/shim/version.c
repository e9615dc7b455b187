/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exported name that marks a libcuda.so.1 as the shim: for the shim itself, which
 * must not take another copy of itself for the driver, and for `hb doctor`.
 */
#include "shim/shim_version.h"

const unsigned hb_shim_version = HB_SHIM_VERSION;
