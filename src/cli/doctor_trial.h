/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the trials of `hb doctor` that touch the GPU as child processes, so that a GPU or driver that hangs does not hang
 * `hb doctor`. A trial is killed at its time limit, and when `hb doctor` ends. Each trial prints one JSON object. The
 * functions return that object, or NULL with *error.
 */
#ifndef HB_CLI_DOCTOR_TRIAL_H
#define HB_CLI_DOCTOR_TRIAL_H

#include "base/json.h"

#include <stdbool.h>

/* Tries time slices; the object has "works", "context" and "found" (doctor_slice.h). */
json_t *hb_trial_slice(bool simulated, int64_t limit_ns, struct hb_error *error);
/* Tries SM masks; the object has "works" and "found" (doctor_masks.h). */
json_t *hb_trial_masks(bool simulated, int64_t limit_ns, struct hb_error *error);
/* Finds the GPCs; doctor_gpcs.h describes the object. */
json_t *hb_trial_gpcs(bool simulated, int64_t limit_ns, struct hb_error *error);
/* Runs a trial under `hb run --priority PRIORITY`; the object has "error", "tenant" and "gpus" (doctor_inside.h). */
json_t *hb_trial_inside(const char *priority, bool simulated, int64_t limit_ns, struct hb_error *error);

#endif
