/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hbd --end-processes`, which the daemon starts when the supervisor of a tenant was killed: ends the processes that
 * were started with the tenant's token or have a slot on its page. It reads their environments. That may take for ever, because a process can put
 * its memory on a file system that does not answer. So another process does it, which the daemon does not wait for.
 */
#ifndef HB_DAEMON_END_PROCESSES_H
#define HB_DAEMON_END_PROCESSES_H

#define HB_END_PROCESSES_OPTION "--end-processes"

/* Reads "UID TOKEN PAGE" from standard input, prints how many processes it sent SIGKILL. Returns the exit status. */
int hb_end_processes_main(void);

#endif
