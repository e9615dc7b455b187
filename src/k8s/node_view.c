/* SPDX-License-Identifier: Apache-2.0 */
/* See node_view.h. */
#include "k8s/node_view.h"

#include "base/json.h"
#include "gpu/provider.h"
#include "protocol/daemon_client.h"
#include "protocol/socket_path.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define DAEMON_LIMIT_MS 2000

static void ask_daemon(struct hb_node_view *view, bool simulated, struct hb_error *error)
{
	char path[HB_PATH_MAX];
	int result = hb_socket_path(simulated, path);
	if (result < 0) {
		hb_error_set(error, result, "HB_SOCKET: the path of the daemon's socket is too long");
		return;
	}
	int socket = hb_client_open(path, DAEMON_LIMIT_MS, error);
	view->daemon_answers = socket >= 0;
	if (socket >= 0)
		close(socket);
}

static void list_gpus(struct hb_node_view *view, bool simulated, struct hb_error *error)
{
	int n = hb_provider_of(simulated)->gpu_list(view->uuids, HB_K8S_GPUS_MAX);
	if (n < 0)
		hb_error_set(error, n,
			     "the driver does not list the GPUs: its library is missing in this container, or "
			     "MIG divides a GPU");
	view->n_gpus = n < 0 ? 0 : (uint32_t)n;
}

static void load_cdi(struct hb_node_view *view, const char *file, struct hb_error *error)
{
	json_t *root, *devices, *common;
	const char *kind;
	if (hb_json_load(file, &root, error) < 0)
		return;
	if (hb_json_unpack(root, file, error, "{s:s, s:o, s:o}", "kind", &kind, "devices", &devices, "containerEdits",
			   &common) == 0) {
		if (strcmp(kind, HB_K8S_CDI_KIND) == 0 && json_is_array(devices))
			view->cdi = json_incref(root);
		else
			hb_error_set(error, -EINVAL,
				     "%s: \"kind\" is not \"" HB_K8S_CDI_KIND
				     "\", or \"devices\" is not an array; write it with `hb cdi generate`",
				     file);
	}
	json_decref(root);
}

void hb_node_view_read(struct hb_node_view *view, const char *cdi_file, bool simulated)
{
	struct hb_error errors[3] = {{""}, {""}, {""}};
	*view = (struct hb_node_view){0};
	list_gpus(view, simulated, &errors[0]);
	load_cdi(view, cdi_file, &errors[1]);
	ask_daemon(view, simulated, &errors[2]);
	for (int i = 2; i >= 0; i--)
		if (errors[i].text[0])
			view->error = errors[i];
}

void hb_node_view_fini(struct hb_node_view *view)
{
	json_decref(view->cdi);
	view->cdi = NULL;
}

json_t *hb_node_view_device(const struct hb_node_view *view, const char *name)
{
	size_t i;
	json_t *device;
	json_array_foreach(json_object_get(view->cdi, "devices"), i, device)
	{
		const char *found = json_string_value(json_object_get(device, "name"));
		if (found && strcmp(found, name) == 0)
			return json_object_get(device, "containerEdits");
	}
	return NULL;
}

int hb_node_view_gpu(const struct hb_node_view *view, const unsigned char uuid[16])
{
	for (uint32_t i = 0; i < view->n_gpus; i++)
		if (memcmp(view->uuids[i], uuid, 16) == 0)
			return (int)i;
	return -1;
}
