/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the command of `hb run`; see run_execute.h. */
#include "cli/run_execute.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int hb_run_execute(char **command)
{
	execvp(command[0], command);
	int status = errno == ENOENT ? HB_RUN_NOT_FOUND : HB_RUN_NOT_EXECUTABLE;
	fprintf(stderr, "hb run: %s: %s\n", command[0], strerror(errno));
	return status;
}
