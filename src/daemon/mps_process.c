/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_process.h. */
#include "daemon/mps_process.h"

#include "daemon/process.h"
#include "gpu/provider.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t hb_mps_read_program(pid_t pid, char name[256])
{
	char path[32], target[4096];
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	const char *slash = strrchr(target, '/');
	snprintf(name, 256, "%.255s", slash ? slash + 1 : target);
	return strlen(name);
}

static bool runs_program(pid_t pid, const char *program)
{
	char path[32], target[PATH_MAX];
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	size_t length = strlen(program);
	/* The kernel adds " (deleted)" when an update of the driver has replaced the file meanwhile. */
	return strncmp(target, program, length) == 0 && (!target[length] || strcmp(target + length, " (deleted)") == 0);
}

static bool is_control_of_ours(pid_t pid, const char *program)
{
	uid_t uid;
	gid_t gid;
	return hb_process_user(pid, &uid, &gid) && uid == geteuid() && runs_program(pid, program);
}

/* The server has the control program's name with "server" in place of "control". */
static bool has_server_name(pid_t pid, const char *program)
{
	char name[256], expected[256];
	const char *slash = strrchr(program, '/'), *kind = strstr(slash ? slash : program, "control");
	hb_mps_read_program(pid, name);
	name[strcspn(name, " ")] = '\0'; /* "(deleted)" may follow */
	if (!slash || !kind)
		return false;
	snprintf(expected, sizeof expected, "%.*sserver", (int)(kind - slash - 1), slash + 1);
	return strcmp(name, expected) == 0;
}

/*
 * The user of a server can read its environment and could start programs with the same variables. So the token alone
 * does not identify the server. Only the control program starts servers, and no other user can run a process as root's.
 */
bool hb_mps_is_server(bool simulated, pid_t pid)
{
	char found[PATH_MAX], program[PATH_MAX];
	const char *why;
	if (hb_provider_of(simulated)->mps_control(found, sizeof found, &why) < 0 || !realpath(found, program))
		return false;
	pid_t parent = hb_process_parent(pid);
	return parent > 1 && is_control_of_ours(parent, program) && has_server_name(pid, program) &&
	       hb_process_parent(pid) == parent;
}
