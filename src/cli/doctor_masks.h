/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor --masks`, run as a child process: tries SM masks in a context of its own, directly on the driver. A mask
 * belongs to one launch and ends with it, so the trial changes nothing for other programs.
 */
#ifndef HB_CLI_DOCTOR_MASKS_H
#define HB_CLI_DOCTOR_MASKS_H

#include "nvidia/launch_mask.h"

#include <stdbool.h>

/*
 * Tries masks on the first GPU of the opened driver, in a context that exists until the process ends. Returns NULL with the
 * outcome in *state, or the name of the first call that failed (its CUDA error in *code) or is missing (*code 0).
 */
const char *hb_doctor_try_masks(void *library, enum hb_mask_state *state, int *code);

/* Prints one JSON object {works, state: a row of nvidia/mask_states.def, found}. Returns an exit status. */
int hb_doctor_masks(bool simulated);

#endif
