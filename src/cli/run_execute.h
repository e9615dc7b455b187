/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the command of `hb run`, in the process of hb or in a child of its supervisor. */
#ifndef HB_CLI_RUN_EXECUTE_H
#define HB_CLI_RUN_EXECUTE_H

/*
 * Exit codes of hb's own errors, as env, nohup and timeout use them, so that they differ from most exit codes of
 * commands.
 */
enum { HB_RUN_FAILED = 125, HB_RUN_NOT_EXECUTABLE = 126, HB_RUN_NOT_FOUND = 127 };

/* Returns only if that is impossible: 126 or 127, after a message. */
int hb_run_execute(char **command);

#endif
