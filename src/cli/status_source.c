/* SPDX-License-Identifier: Apache-2.0 */
/* See status_source.h. */
#include "cli/status_source.h"

#include "base/json.h"
#include "cli/daemon_link.h"
#include "daemon/daemon_client.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hb_status_ask(bool simulated, json_t **root, struct hb_error *error)
{
	char path[HB_PATH_MAX], *text;
	int socket = hb_daemon_link(simulated, false, path, error);
	if (socket < 0)
		return socket;
	int result = hb_client_status(socket, &text, error);
	close(socket);
	if (result < 0)
		return result;
	result = hb_json_parse(text, strlen(text), "the daemon's answer", root, error);
	free(text);
	return result;
}

int hb_status_load(const char *file, json_t **root, struct hb_error *error)
{
	return hb_json_load(strcmp(file, "-") == 0 ? "/dev/stdin" : file, root, error);
}

int hb_status_change(bool simulated, const struct hb_msg_set *change, struct hb_error *error)
{
	char path[HB_PATH_MAX];
	int socket = hb_daemon_link(simulated, false, path, error);
	if (socket < 0)
		return socket;
	int result = hb_client_set(socket, change, error);
	close(socket);
	return result;
}
