/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one short program in the event loop: writes its input, collects the
 * beginning of its output, and tells when it has ended or was killed for taking
 * too long. Used by mps_server.c and gpc_layout.c.
 */
#ifndef HB_DAEMON_COMMAND_H
#define HB_DAEMON_COMMAND_H

#include <stdint.h>
#include <uv.h>

/* The longest answer is that of the trial of GPCs: some 70 bytes a group. */
#define HB_COMMAND_OUTPUT_MAX 8192

struct hb_command_result {
	int status;                         /* exit status; 128 + n = killed by signal n */
	char output[HB_COMMAND_OUTPUT_MAX]; /* stdout and stderr, NUL-terminated, cut */
};

typedef void hb_command_done(void *argument, const struct hb_command_result *result);

/*
 * `arguments` and `environment` end with NULL and are copied by the start;
 * `input` must stay valid until `done`. 0, or negative errno when it could not
 * be started (`done` is not called then).
 */
int hb_command_run(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		   hb_command_done *done, void *argument);

struct hb_command;
/* The same; *started, which may be killed until `done` was called. */
int hb_command_start(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		     hb_command_done *done, void *argument, struct hb_command **started);
/* It ends soon, and `done` is called as for any other. */
void hb_command_kill(struct hb_command *command);

#endif
