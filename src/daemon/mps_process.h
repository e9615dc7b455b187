/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says of a process whether it is the MPS server. Reads /proc only, and needs the right to read other users' processes if the server belongs to another user.
 */
#ifndef HB_DAEMON_MPS_PROCESS_H
#define HB_DAEMON_MPS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Whether the process is an MPS server: its parent is the MPS control program of this process's user, and it runs the
 * server's program.
 */
bool hb_mps_is_server(bool simulated, pid_t pid);
/* Writes the program's name, which the server's shim would report as its command. Returns its length. */
size_t hb_mps_read_program(pid_t pid, char name[256]);

#endif
