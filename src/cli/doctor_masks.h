/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `hb doctor` that tries SM masks: in a context of its own, on the
 * driver itself (`hb doctor --masks`, run as a child). A mask is a launch's own
 * and ends with it.
 */
#ifndef HB_CLI_DOCTOR_MASKS_H
#define HB_CLI_DOCTOR_MASKS_H

#include <stdbool.h>

/* Prints one JSON object: works, found. An exit status. */
int hb_doctor_masks(bool simulated);

#endif
