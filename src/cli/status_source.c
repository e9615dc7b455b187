/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the daemon's status and changes tenants; see status_source.h. */
#include "cli/status_source.h"

#include "base/json.h"
#include "cli/daemon_link.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 1

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

/* Returns whether this JSON is a status; other JSON would be shown as a daemon without GPUs and tenants. */
static bool is_status(const json_t *root)
{
	return json_integer_value(json_object_get(root, "version")) == VERSION &&
	       json_is_object(json_object_get(root, "daemon")) && json_is_array(json_object_get(root, "gpus")) &&
	       json_is_array(json_object_get(root, "tenants"));
}

int hb_status_load(const char *file, json_t **root, struct hb_error *error)
{
	json_t *read;
	bool standard_input = strcmp(file, "-") == 0;
	int result = hb_json_load(standard_input ? "/dev/stdin" : file, &read, error);
	if (result < 0)
		return result;
	if (!is_status(read)) {
		json_decref(read);
		return hb_error_set(
			error, -EINVAL,
			"%s: this file was not written by hb status --json of this version: \"version\" %d, "
			"\"daemon\", \"gpus\" or \"tenants\" is missing",
			standard_input ? "standard input" : file, VERSION);
	}
	*root = read;
	return 0;
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
