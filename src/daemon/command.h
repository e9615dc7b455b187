/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a short program in the event loop: writes its input, collects the
 * beginning of its output, and calls back when it has ended or was killed at its
 * time limit. Used by privileged_work.c and gpu_trial.c.
 */
#ifndef HB_DAEMON_COMMAND_H
#define HB_DAEMON_COMMAND_H

#include <stdint.h>
#include <uv.h>

/* The longest output is that of the search for GPCs, about 70 bytes for each group. */
#define HB_COMMAND_OUTPUT_MAX 8192

struct hb_command_result {
	int status;                         /* exit status; 128 + n = killed by signal n */
	char output[HB_COMMAND_OUTPUT_MAX]; /* stdout and stderr, NUL-terminated, cut to fit */
};

typedef void hb_command_done(void *argument, const struct hb_command_result *result);

/*
 * `arguments` and `environment` end with NULL. All is copied by the start, of
 * `input` the first 79 bytes. 0, or negative errno when it could not be started
 * (`done` is not called then).
 */
int hb_command_run(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		   hb_command_done *done, void *argument);

struct hb_command;
/* Does the same. *started may be killed until `done` is called. */
int hb_command_start(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		     hb_command_done *done, void *argument, struct hb_command **started);
/* Kills the program; `done` is called afterwards. */
void hb_command_kill(struct hb_command *command);

#endif
