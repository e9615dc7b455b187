/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal of a supervised command (hb_supervisor.c). The command has a process
 * group of its own, and the supervisor stays in the group that the shell made, so
 * that Ctrl-C and Ctrl-Z reach the supervisor first. When the command reads from
 * the terminal or changes its settings, the kernel stops it; the supervisor then
 * makes the command's group the terminal's foreground group, and takes that back
 * after a moment. A program that has started to read continues to read.
 */
#ifndef HB_CLI_RUN_TERMINAL_H
#define HB_CLI_RUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct hb_run_terminal {
	int fd;        /* -1 = not opened yet, or there is none */
	pid_t command; /* process group of the command */
	bool given;    /* the command's group may be the foreground group */
};

#define HB_RUN_TERMINAL_NONE(command_group) \
	{ \
		.fd = -1, .command = (command_group) \
	}

/* Gives the terminal to the command. False: hb is in the background, or there is no terminal. */
bool hb_run_terminal_give(struct hb_run_terminal *terminal);
/*
 * Makes the supervisor's group the foreground group again if the command's group is. With `if_idle` only if the terminal is
 * in its usual mode: a program that handles single keys needs the terminal all the time.
 */
void hb_run_terminal_take(struct hb_run_terminal *terminal, bool if_idle);

#endif
