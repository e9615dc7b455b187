/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends commands to the MPS control program. The program serves one command at a time and refuses others meanwhile, also
 * those that an administrator types (measured on an H200). So commands run one after the other, and a command that was
 * refused is repeated.
 */
#ifndef HB_DAEMON_MPS_CONTROL_H
#define HB_DAEMON_MPS_CONTROL_H

#include "daemon/command.h"
#include "daemon/mps_place.h"

/*
 * Runs the control program with this option or, if it is NULL, with this input (at most 79 bytes), after the commands that
 * were given before. `limit_ms` is that of one attempt, and of all attempts that are refused. As hb_command_run(); if the
 * program cannot be started later, `done` gets the status 127.
 */
int hb_mps_control_run(struct hb_mps_place *place, uv_loop_t *loop, const char *option, const char *input,
		       uint64_t limit_ms, hb_command_done *done, void *argument);

#endif
