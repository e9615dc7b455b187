/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of `hb doctor` that touch the GPU run as child processes, so that a
 * GPU or driver that hangs does not hang the doctor: each is killed when its
 * time is over, or with the doctor. They print one JSON object.
 */
#ifndef HB_CLI_DOCTOR_TRIAL_H
#define HB_CLI_DOCTOR_TRIAL_H

#include "base/json.h"

#include <stdbool.h>

/* doctor_slice.c's answer {"works", "context", "found"}; NULL with *error: there is none. */
json_t *hb_trial_slice(bool simulated, int64_t limit_ns, struct hb_error *error);
/* doctor_masks.c's answer {"works", "found"}; as above. */
json_t *hb_trial_masks(bool simulated, int64_t limit_ns, struct hb_error *error);
/* doctor_gpcs.c's answer; as above. */
json_t *hb_trial_gpcs(bool simulated, int64_t limit_ns, struct hb_error *error);
/* doctor_inside.c's answer {"error", "tenant", "gpus"}, under `hb run --priority PRIORITY`; NULL with *error. */
json_t *hb_trial_inside(const char *priority, bool simulated, int64_t limit_ns, struct hb_error *error);

#endif
