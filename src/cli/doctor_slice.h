/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor --slice`, run as a child process with a time limit: tries to set time slices. It creates a CUDA context
 * directly on the driver, observes the context's channel groups as the shim does, sets a slice, reads it back and prints
 * the outcome as one JSON object. It needs no daemon and is no tenant.
 */
#ifndef HB_CLI_DOCTOR_SLICE_H
#define HB_CLI_DOCTOR_SLICE_H

#include <stdbool.h>

/* Opens the driver, not the shim. Returns NULL on failure; dlerror() has the reason. */
void *hb_doctor_open_driver(bool simulated);

/* Returns an enum hb_exit. */
int hb_doctor_slice(bool simulated);

#endif
