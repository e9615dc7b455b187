/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of /proc/PID/stat. */
#ifndef HB_BASE_PROC_STAT_H
#define HB_BASE_PROC_STAT_H

#include <stdint.h>
#include <sys/types.h>

#define HB_PROC_STAT_LINE 1024

/* Reads the line and returns the text from field `number` (3 and up, see proc(5)) on; NULL = no such process. */
const char *hb_proc_stat(pid_t pid, int number, char line[HB_PROC_STAT_LINE]);
/* Returns the start time in clock ticks since boot; 0 = no such process. It differs for a later process with the same pid. */
uint64_t hb_proc_start_ticks(pid_t pid);

#endif
