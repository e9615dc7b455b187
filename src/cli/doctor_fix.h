/* SPDX-License-Identifier: Apache-2.0 */
/* `hb doctor --fix`: prints what can be repaired on this machine (repair_plan.h), and repairs it with `--yes`. */
#ifndef HB_CLI_DOCTOR_FIX_H
#define HB_CLI_DOCTOR_FIX_H

#include <stdbool.h>

/*
 * Prints each repair and its command. With `yes` it also runs the commands, and then looks again whether the problem is
 * gone. Returns HB_EXIT_OK if nothing is left to repair, else HB_EXIT_FAILURE.
 */
int hb_doctor_fix(bool simulated, bool yes);

#endif
