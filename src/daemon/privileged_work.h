/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does what a request to the helper process asks for (privileged_request.h). Runs in the helper process with the rights of
 * root (helper.c), or in the daemon itself where there is no helper (privileged.c). A request must have passed
 * hb_privileged_request_parse(), or come from this process.
 */
#ifndef HB_DAEMON_PRIVILEGED_WORK_H
#define HB_DAEMON_PRIVILEGED_WORK_H

#include "daemon/command.h"
#include "daemon/mps_place.h"
#include "daemon/privileged_request.h"

/* The answer to a request for a fact. A descriptor may come with it. */
struct hb_privileged_fact {
	uint64_t number;
	int64_t value;     /* a number, a truth value, or a negative errno */
	char program[256]; /* SERVER_PAGE: the name of the server's program */
};

/* Answers a request for a fact. *fd: SERVER_PAGE opens the page; else -1. Takes at most 0.2 s. */
void hb_privileged_answer(struct hb_mps_place *place, const struct hb_privileged_request *request,
			  struct hb_privileged_fact *fact, int *fd);
/* Starts the program that a request asks for; as hb_command_run(). */
int hb_privileged_start(struct hb_mps_place *place, uv_loop_t *loop, const struct hb_privileged_request *request,
			hb_command_done *done, void *argument);

#endif
