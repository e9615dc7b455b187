/* SPDX-License-Identifier: Apache-2.0 */
/* See device_plugin.h. The kubelet registers plugins anew when it starts: it makes a new kubelet.sock. */
#include "k8s/device_plugin.h"

#include "base/log.h"
#include "base/uuid.h"
#include "device_plugin.pb-c.h"
#include "grpc/rpc_client.h"
#include "grpc/rpc_server.h"
#include "k8s/allocation.h"
#include "k8s/message_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define API "/v1beta1.DevicePlugin/"
#define VERSION "v1beta1"
#define REGISTER_LIMIT_MS 10000

struct hb_device_plugin {
	uv_loop_t *loop;
	const struct hb_plugin_config *config;
	const struct hb_node_view *view;
	struct hb_rpc_server *server; /* NULL: the socket is not open */
	char name[HB_K8S_RESOURCE_NAME];
	uint32_t units;  /* on each GPU */
	uint32_t n_gpus; /* that were ever found: a unit that was reported is never taken back */
	unsigned char uuids[HB_K8S_GPUS_MAX][16];
	uint64_t healthy; /* a bit for each of these GPUs, as last reported */
	bool is_registering, is_registered;
	struct stat kubelet; /* the kubelet's socket at the last registration */
	char complaint[600]; /* the last error, which is logged once */
};

static void complain(struct hb_device_plugin *plugin, const char *text)
{
	if (strcmp(plugin->complaint, text) == 0)
		return;
	snprintf(plugin->complaint, sizeof(plugin->complaint), "%s", text);
	if (*text)
		hb_log_warning(HB_K8S_DOMAIN "/%s: %s", plugin->name, text);
}

/* ---- the units ---- */

/* Adds GPUs that are new. A GPU that has disappeared stays, and is not healthy. */
static void note_gpus(struct hb_device_plugin *plugin)
{
	for (uint32_t i = 0; i < plugin->view->n_gpus && plugin->n_gpus < HB_K8S_GPUS_MAX; i++) {
		uint32_t k = 0;
		while (k < plugin->n_gpus && memcmp(plugin->uuids[k], plugin->view->uuids[i], 16) != 0)
			k++;
		if (k == plugin->n_gpus)
			memcpy(plugin->uuids[plugin->n_gpus++], plugin->view->uuids[i], 16);
	}
}

static uint64_t healthy_gpus(const struct hb_device_plugin *plugin)
{
	uint64_t healthy = 0;
	if (!plugin->view->daemon_answers || !hb_node_view_device(plugin->view, plugin->name))
		return 0;
	for (uint32_t i = 0; i < plugin->n_gpus; i++)
		if (hb_node_view_gpu(plugin->view, plugin->uuids[i]) >= 0)
			healthy |= UINT64_C(1) << i;
	return healthy;
}

static V1beta1__ListAndWatchResponse *make_list(const struct hb_device_plugin *plugin)
{
	V1beta1__ListAndWatchResponse *list = hb_part_new(sizeof(*list));
	v1beta1__list_and_watch_response__init(list);
	for (uint32_t i = 0; i < plugin->n_gpus * plugin->units; i++) {
		V1beta1__Device *device = hb_part_new(sizeof(*device));
		char id[HB_UNIT_ID_SIZE];
		uint32_t gpu = i / plugin->units;
		v1beta1__device__init(device);
		device->id = hb_part_text(hb_unit_format(plugin->uuids[gpu], i % plugin->units, id));
		device->health = hb_part_text(plugin->healthy >> gpu & 1 ? "Healthy" : "Unhealthy");
		hb_part_append(&list->devices, &list->n_devices, device);
	}
	return list;
}

/* ---- what the kubelet calls ---- */

static void get_options(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	options.get_preferred_allocation_available = true;
	hb_rpc_answer(call, &options.base);
}

static void list_and_watch(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	V1beta1__ListAndWatchResponse *list = make_list(service);
	hb_rpc_answer(call, &list->base);
	protobuf_c_message_free_unpacked(&list->base, NULL);
}

static struct hb_unit_rule unit_rule(const struct hb_device_plugin *plugin)
{
	return (struct hb_unit_rule){plugin->config, plugin->view, plugin->name, plugin->units};
}

static void answer_or_fail(struct hb_rpc_call *call, int status, ProtobufCMessage *answer, const struct hb_error *error)
{
	if (status == HB_RPC_OK)
		hb_rpc_answer(call, answer);
	else
		hb_rpc_fail(call, (enum hb_rpc_status)status, "%s", error->text);
	protobuf_c_message_free_unpacked(answer, NULL);
}

static void get_preferred(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	struct hb_unit_rule rule = unit_rule(service);
	struct hb_error error;
	V1beta1__PreferredAllocationResponse *answer = hb_part_new(sizeof(*answer));
	v1beta1__preferred_allocation_response__init(answer);
	int status = hb_allocation_prefer(&rule, (const V1beta1__PreferredAllocationRequest *)request, answer, &error);
	answer_or_fail(call, status, &answer->base, &error);
}

static void allocate_units(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	struct hb_unit_rule rule = unit_rule(service);
	struct hb_error error;
	V1beta1__AllocateResponse *answer = hb_part_new(sizeof(*answer));
	v1beta1__allocate_response__init(answer);
	int status = hb_allocation_answer(&rule, (const V1beta1__AllocateRequest *)request, answer, &error);
	answer_or_fail(call, status, &answer->base, &error);
}

/* GetDevicePluginOptions says that this is not necessary; there is nothing to do. */
static void pre_start(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	V1beta1__PreStartContainerResponse answer = V1BETA1__PRE_START_CONTAINER_RESPONSE__INIT;
	hb_rpc_answer(call, &answer.base);
}

static const struct hb_rpc_method methods[] = {
	{API "GetDevicePluginOptions", &v1beta1__empty__descriptor, get_options, false},
	{API "ListAndWatch", &v1beta1__empty__descriptor, list_and_watch, true},
	{API "GetPreferredAllocation", &v1beta1__preferred_allocation_request__descriptor, get_preferred, false},
	{API "Allocate", &v1beta1__allocate_request__descriptor, allocate_units, false},
	{API "PreStartContainer", &v1beta1__pre_start_container_request__descriptor, pre_start, false},
	{NULL, NULL, NULL, false}};

/* ---- registration ---- */

static void name_endpoint(const struct hb_device_plugin *plugin, char name[HB_K8S_RESOURCE_NAME + 32])
{
	snprintf(name, HB_K8S_RESOURCE_NAME + 32, "hummingbird-%s.sock", plugin->name);
}

static void note_registered(void *argument, int status, const char *text)
{
	struct hb_device_plugin *plugin = argument;
	char complaint[600];
	plugin->is_registering = false;
	plugin->is_registered = status == 0;
	if (status == 0) {
		complain(plugin, "");
		hb_log_info(HB_K8S_DOMAIN "/%s: registered with the kubelet", plugin->name);
		return;
	}
	snprintf(complaint, sizeof(complaint), "the kubelet did not register the plugin: %s", text);
	complain(plugin, complaint);
}

static void register_plugin(struct hb_device_plugin *plugin, const char *kubelet)
{
	char endpoint[HB_K8S_RESOURCE_NAME + 32], resource[HB_K8S_RESOURCE_NAME + 32];
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
	name_endpoint(plugin, endpoint);
	snprintf(resource, sizeof(resource), HB_K8S_DOMAIN "/%s", plugin->name);
	options.get_preferred_allocation_available = true;
	request.version = (char *)VERSION;
	request.endpoint = endpoint;
	request.resource_name = resource;
	request.options = &options;
	plugin->is_registering = hb_rpc_request(plugin->loop, kubelet, "/v1beta1.Registration/Register", &request.base,
						REGISTER_LIMIT_MS, note_registered, plugin) == 0;
}

static bool is_same_socket(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void check_kubelet(struct hb_device_plugin *plugin)
{
	char kubelet[HB_RPC_SOCKET_PATH_MAX];
	struct stat found;
	snprintf(kubelet, sizeof(kubelet), "%s/kubelet.sock", plugin->config->kubelet_folder);
	if (stat(kubelet, &found) < 0) {
		plugin->is_registered = false;
		complain(plugin,
			 "the kubelet's socket does not exist: it has not started, or --kubelet names another folder");
		return;
	}
	if (plugin->is_registering || (plugin->is_registered && is_same_socket(&found, &plugin->kubelet)))
		return;
	plugin->kubelet = found;
	plugin->is_registered = false;
	register_plugin(plugin, kubelet);
}

static bool check_server(struct hb_device_plugin *plugin)
{
	char endpoint[HB_K8S_RESOURCE_NAME + 32], path[512];
	struct hb_error error;
	if (plugin->server && hb_rpc_server_is_reachable(plugin->server))
		return true;
	hb_rpc_server_close(plugin->server);
	plugin->server = NULL;
	plugin->is_registered = false;
	name_endpoint(plugin, endpoint);
	snprintf(path, sizeof(path), "%s/%s", plugin->config->kubelet_folder, endpoint);
	if (hb_rpc_server_open(plugin->loop, path, methods, plugin, &plugin->server, &error) == 0)
		return true;
	complain(plugin, error.text);
	return false;
}

void hb_device_plugin_check(struct hb_device_plugin *plugin)
{
	uint32_t n_gpus = plugin->n_gpus;
	note_gpus(plugin);
	uint64_t healthy = healthy_gpus(plugin);
	bool changed = n_gpus != plugin->n_gpus || healthy != plugin->healthy;
	plugin->healthy = healthy;
	if (!check_server(plugin))
		return;
	if (changed) {
		V1beta1__ListAndWatchResponse *list = make_list(plugin);
		hb_log_info(HB_K8S_DOMAIN "/%s: %u units, %u of %u GPUs are healthy", plugin->name,
			    plugin->n_gpus * plugin->units, (unsigned)__builtin_popcountll(healthy), plugin->n_gpus);
		hb_rpc_server_publish(plugin->server, &list->base);
		protobuf_c_message_free_unpacked(&list->base, NULL);
	}
	check_kubelet(plugin);
}

struct hb_device_plugin *hb_device_plugin_new(uv_loop_t *loop, const struct hb_plugin_config *config,
					      const struct hb_node_view *view, const char *name, uint32_t units)
{
	struct hb_device_plugin *plugin = hb_part_new(sizeof(*plugin));
	plugin->loop = loop;
	plugin->config = config;
	plugin->view = view;
	plugin->units = units;
	snprintf(plugin->name, sizeof(plugin->name), "%s", name);
	return plugin;
}

void hb_device_plugin_close(struct hb_device_plugin *plugin)
{
	hb_rpc_server_close(plugin->server);
	plugin->server = NULL;
}

void hb_device_plugin_free(struct hb_device_plugin *plugin)
{
	free(plugin);
}
