/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `hb doctor` that tries the time-slice control, in a process of
 * its own that is killed when it takes too long: makes a CUDA context on the
 * driver itself, with the shim's own watch on its channel groups, sets a slice,
 * reads it back, gives the context up, and prints what came of it as one JSON
 * object. Needs no daemon and is no tenant.
 */
#ifndef HB_CLI_DOCTOR_SLICE_H
#define HB_CLI_DOCTOR_SLICE_H

#include <stdbool.h>

/* The driver itself, not the shim; NULL: dlerror() says why. */
void *hb_doctor_open_driver(bool simulated);

/* An enum hb_exit. */
int hb_doctor_slice(bool simulated);

#endif
