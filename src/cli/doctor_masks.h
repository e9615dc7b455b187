/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `hb doctor` that tries SM masks: in a context of its own, on the
 * driver itself (`hb doctor --masks`, run as a child). A mask is a launch's own
 * and ends with it.
 */
#ifndef HB_CLI_DOCTOR_MASKS_H
#define HB_CLI_DOCTOR_MASKS_H

#include "nvidia/launch_mask.h"

#include <stdbool.h>

/*
 * Tries masks with the first GPU of the opened driver, in a context that stays until the process ends. NULL: *state says
 * whether they work; else the first call that failed, with *code, or is missing (0).
 */
const char *hb_doctor_try_masks(void *library, enum hb_mask_state *state, int *code);

/* Prints one JSON object: works, found. An exit status. */
int hb_doctor_masks(bool simulated);

#endif
