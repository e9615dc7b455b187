/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of /proc/PID/stat; see proc_stat.h. */
#include "base/proc_stat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hb_proc_stat(pid_t pid, int number, char line[HB_PROC_STAT_LINE])
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return NULL;
	char *read = fgets(line, HB_PROC_STAT_LINE, file);
	fclose(file);
	/* The second field is the program's name and may contain any text: fields are counted from its last parenthesis. */
	char *field = read ? strrchr(line, ')') : NULL;
	for (int i = 2; field && i < number; i++)
		field = strchr(field + 1, ' ');
	return field ? field + 1 : NULL;
}

uint64_t hb_proc_start_ticks(pid_t pid)
{
	char line[HB_PROC_STAT_LINE];
	const char *field = hb_proc_stat(pid, 22, line);
	return field ? strtoull(field, NULL, 10) : 0;
}
