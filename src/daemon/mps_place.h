/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says where the MPS server of a daemon lives: its folders and who may enter them, the file with its token, and the environment
 * of its control program. Used by mps_server.c and, with the rights of root, by privileged_work.c.
 */
#ifndef HB_DAEMON_MPS_PLACE_H
#define HB_DAEMON_MPS_PLACE_H

#include "daemon/daemon.h"
#include "protocol/daemon_client.h"

struct hb_mps_command;

struct hb_mps_place {
	bool simulated, system_mode;
	char socket[HB_PATH_MAX];
	char pipe_dir[HB_PATH_MAX + 16], log_dir[HB_PATH_MAX + 16];
	bool has_token;
	unsigned char token[HB_TOKEN_BYTES]; /* by which the server's shim registers */
	struct hb_mps_command *commands;     /* mps_control.c */
};

void hb_mps_place_init(struct hb_mps_place *place, const struct hb_daemon_options *options);
/* Makes the folders, and admits this user to them, and the user's server to the daemon's socket. 0 or negative errno. */
int hb_mps_place_prepare(const struct hb_mps_place *place, uid_t uid);
/* The server may run longer than its daemon, so the token is stored in a file for the next one. False: there is none. */
bool hb_mps_place_read_token(struct hb_mps_place *place);
/* Does the same, and makes a token if there is none. 0 or negative errno. */
int hb_mps_place_make_token(struct hb_mps_place *place);
/* The environment for the control program and the server that it starts. NULL = out of memory. */
char **hb_mps_place_environment(const struct hb_mps_place *place);
void hb_mps_environment_free(char **list);

#endif
