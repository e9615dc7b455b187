/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper process of a daemon that gives up the rights of root (privileges.h). It keeps these rights, and does with them
 * what the daemon asks for and privileged_request.h permits: facts about processes over one pair of sockets, programs
 * over another. It reads no other input, has no other socket, and ends when the daemon ends or breaks a rule.
 */
#ifndef HB_DAEMON_HELPER_H
#define HB_DAEMON_HELPER_H

#include "daemon/daemon.h"

#define HB_HELPER_OUTPUT_MAX 512

/* The daemon's ends. */
struct hb_helper {
	pid_t pid;
	int facts_fd, programs_fd;
};

/* The answer to a request for a program, when the program has ended. */
struct hb_helper_result {
	uint64_t number;
	int32_t status; /* as in struct hb_command_result; 127 = it could not be started, and output says why */
	char output[HB_HELPER_OUTPUT_MAX];
};

/* Starts the helper. Call it before the process has threads. 0 or negative errno. */
int hb_helper_start(const struct hb_daemon_options *options, struct hb_helper *helper);
/* The helper itself: serves requests until the other ends are closed. Returns its exit status. */
int hb_helper_serve(const struct hb_daemon_options *options, int facts_fd, int programs_fd);

#endif
