/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does what needs the rights of root. If the daemon has given these rights up (privileges.h), it asks its helper
 * process (helper.h); otherwise it does the work itself. If the helper has ended, every answer is the one of a process that
 * may not be read, and no program can be started; tenants are not affected. Used in the event loop only.
 */
#ifndef HB_DAEMON_PRIVILEGED_H
#define HB_DAEMON_PRIVILEGED_H

#include "daemon/command.h"
#include "daemon/daemon.h"
#include "daemon/privileged_request.h"

struct hb_mps_place;
struct hb_privileged;

int hb_privileged_new(uv_loop_t *loop, const struct hb_daemon_options *options, struct hb_privileged **privileged);
/* Programs that run may end later: their callbacks come. */
void hb_privileged_free(struct hb_privileged *privileged);
/* Returns where the MPS server of this daemon lives. */
struct hb_mps_place *hb_privileged_place(struct hb_privileged *privileged);

/* Each of these takes at most 0.3 s with a helper. A caller that asks about many processes must limit the sum. */

/* As hb_process_image(); 0 also if the helper does not answer. */
uint64_t hb_privileged_image(struct hb_privileged *privileged, pid_t pid);
/* Whether the process was started with this token of a tenant. */
bool hb_privileged_began_with(struct hb_privileged *privileged, pid_t pid, const unsigned char token[HB_TOKEN_BYTES]);
/* As hb_signal_kills(). */
bool hb_privileged_signal_kills(struct hb_privileged *privileged, pid_t pid, int signal);
/* As hb_mps_is_server(). */
bool hb_privileged_is_server(struct hb_privileged *privileged, pid_t pid);
/*
 * Opens the page of the MPS server that was started with this daemon's token. Returns a descriptor and the name of its
 * program, or negative errno; -EPERM: the process is no such server.
 */
int hb_privileged_server_page(struct hb_privileged *privileged, pid_t pid, uint64_t start_ticks, char program[256]);
/* Removes the daemon's socket. Call it with the lock of the socket. */
void hb_privileged_remove_socket(struct hb_privileged *privileged);

/*
 * Starts the program of a request for one (HB_PRIVILEGED_PROGRAM); magic and number are set here. `done` is called in the
 * loop. 0, or negative errno: `done` is not called.
 */
int hb_privileged_run(struct hb_privileged *privileged, const struct hb_privileged_request *request,
		      hb_command_done *done, void *argument);

#endif
