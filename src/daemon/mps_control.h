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
 * Queues one command: runs the control program with `option` or, if that is NULL, with `input` (at most 79 bytes) on its
 * standard input, when all earlier commands have ended. An attempt may take `limit_ms`; a refused command is repeated until
 * `limit_ms` after its first attempt. `done` is called as by hb_command_run(), with status 127 if the program could not be
 * started later. Returns 0, or a negative errno if the command could not be started at once; then `done` is not called.
 */
int hb_mps_control_run(struct hb_mps_place *place, uv_loop_t *loop, const char *option, const char *input,
		       uint64_t limit_ms, hb_command_done *done, void *argument);

#endif
