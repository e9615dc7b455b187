/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the kernel's log; see xid_log.h. */
#include "nvidia/xid_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The kernel's own limit of a record. */
#define RECORD_MAX 8192

static void copy_word(char *to, size_t size, const char *from, const char *end_marks)
{
	size_t n = strcspn(from, end_marks);
	n = n < size - 1 ? n : size - 1;
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
	to[n] = '\0';
}

int hb_xid_line_parse(const char *text, struct hb_xid_line *line)
{
	static const char mark[] = "NVRM: Xid (PCI:";
	const char *at = strstr(text, mark), *number = at ? strstr(at, "): ") : NULL;
	if (!number)
		return -ENOENT;
	*line = (struct hb_xid_line){.pid = 0};
	copy_word(line->bus, sizeof line->bus, at + sizeof mark - 1, ")");
	line->xid = (uint32_t)strtoul(number + 3, NULL, 10);
	/* Older drivers write pid='<unknown>', and nothing where no process is to blame. */
	const char *pid = strstr(number, "pid="), *name = strstr(number, "name=");
	if (pid)
		line->pid = (pid_t)strtol(pid + 4 + (pid[4] == '\''), NULL, 10);
	if (line->pid < 0)
		line->pid = 0;
	if (name && line->pid)
		copy_word(line->name, sizeof line->name, name + 5, ",\n");
	return 0;
}

/* Whether the line is about this GPU; the kernel's log leaves the function's number out. */
static bool is_about(const struct hb_xid_line *line, const char *bus, uint32_t xid)
{
	size_t length = strlen(line->bus);
	return line->xid == xid && length > 0 && strncasecmp(line->bus, bus, length) == 0;
}

int hb_xid_log_open(const char *path)
{
	int log = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return log < 0 ? -errno : log;
}

pid_t hb_xid_log_find(int log, const char *bus, uint32_t xid, char name[32])
{
	static char record[RECORD_MAX + 1]; /* used by one thread at a time */
	struct hb_xid_line line, found = {.pid = 0};
	ssize_t n = -1;
	name[0] = '\0';
	/* A read of the kernel's log returns one record; EPIPE means that older records were overwritten meanwhile. */
	bool readable = log >= 0 && lseek(log, 0, SEEK_SET) == 0;
	while (readable && ((n = read(log, record, RECORD_MAX)) > 0 || (n < 0 && errno == EPIPE))) {
		record[n > 0 ? n : 0] = '\0';
		for (const char *text = record; text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL)
			if (hb_xid_line_parse(text, &line) == 0 && is_about(&line, bus, xid))
				found = line;
	}
	strcpy(name, found.name);
	return found.pid;
}
