/* SPDX-License-Identifier: Apache-2.0 */
/* See slice.h. */
#include "k8s/slice.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/usage_mean.h"
#include "base/uuid.h"
#include "gpu/provider.h"
#include "k8s/claim_terms.h"
#include "protocol/daemon_client.h"
#include "protocol/socket_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICES "/apis/resource.k8s.io/v1/resourceslices"
#define PATH_MAX_BYTES 512
#define CHECK_PERIOD_NS (60 * HB_NS_PER_S)
#define TRY_PERIOD_NS (2 * HB_NS_PER_S)
#define DAEMON_LIMIT_MS 2000
#define IDLE_STEP 5 /* points by which a share must change to be published */
#define PPM_IN_PERCENT 10000

/* ---- the GPUs ---- */

uint32_t hb_slice_idle_percent(const json_t *status, const char *uuid)
{
	const json_t *gpu = hb_usage_find(status, uuid);
	int64_t high = hb_usage_mean_ppm(gpu, "high_ppm"), other = hb_usage_mean_ppm(gpu, "not_managed_ppm");
	if (high >= 0) {
		int64_t busy = (high + (other > 0 ? other : 0)) / PPM_IN_PERCENT;
		return busy > 100 ? 0 : (uint32_t)(100 - busy);
	}
	return 100; /* no tenant is on the GPU */
}

static json_t *read_status(bool simulated)
{
	char path[HB_PATH_MAX], *text = NULL;
	struct hb_error error;
	json_t *root = NULL;
	int socket = hb_socket_path(simulated, path) < 0 ? -1 : hb_client_open(path, DAEMON_LIMIT_MS, &error);
	if (socket >= 0 && hb_client_status(socket, &text, &error) == 0)
		hb_json_parse(text, strlen(text), path, &root, &error);
	if (socket >= 0)
		close(socket);
	free(text);
	return root;
}

static void read_idle(struct hb_slice_publisher *publisher, bool simulated)
{
	json_t *status = read_status(simulated);
	for (uint32_t i = 0; status && i < publisher->n_gpus; i++) {
		char uuid[HB_UUID_TEXT_SIZE];
		struct hb_slice_gpu *gpu = &publisher->gpus[i];
		uint32_t idle = hb_slice_idle_percent(status, hb_uuid_format(gpu->uuid, uuid));
		uint32_t change = idle > gpu->idle_percent ? idle - gpu->idle_percent : gpu->idle_percent - idle;
		if (change >= IDLE_STEP)
			gpu->idle_percent = idle;
	}
	json_decref(status);
}

static struct hb_slice_gpu *find_slice_gpu(struct hb_slice_publisher *publisher, const unsigned char uuid[16])
{
	for (uint32_t i = 0; i < publisher->n_gpus; i++)
		if (memcmp(publisher->gpus[i].uuid, uuid, 16) == 0)
			return &publisher->gpus[i];
	return NULL;
}

/* A GPU that is gone keeps its place, so that it has the same facts when it returns. */
static void add_gpu(struct hb_slice_publisher *publisher, const unsigned char uuid[16], bool simulated)
{
	struct hb_slice_gpu *gpu = find_slice_gpu(publisher, uuid);
	const struct hb_provider *provider = hb_provider_of(simulated);
	if (!gpu && publisher->n_gpus == HB_K8S_GPUS_MAX)
		return;
	if (!gpu) {
		gpu = &publisher->gpus[publisher->n_gpus++];
		*gpu = (struct hb_slice_gpu){.idle_percent = 100};
		memcpy(gpu->uuid, uuid, 16);
		provider->gpu_name(uuid, gpu->name, sizeof(gpu->name));
	}
	if (gpu->memory_bytes)
		return;
	struct hb_gpu_use *use = calloc(1, sizeof(*use));
	if (use && provider->gpu_use(uuid, use) == 0)
		gpu->memory_bytes = use->total_bytes;
	free(use);
}

void hb_slice_read_gpus(struct hb_slice_publisher *publisher, const struct hb_node_view *view, bool simulated,
			int64_t now_ns)
{
	for (uint32_t i = 0; i < view->n_gpus; i++)
		add_gpu(publisher, view->uuids[i], simulated);
	if (publisher->idle_ns && now_ns - publisher->idle_ns < publisher->config->idle_period_ns)
		return;
	publisher->idle_ns = now_ns;
	read_idle(publisher, simulated);
}

/* ---- the devices ---- */

static json_t *make_slice_device(const struct hb_slice_gpu *gpu, bool is_high, uint32_t tenants)
{
	char name[HB_DRA_DEVICE_SIZE], uuid[HB_UUID_TEXT_SIZE];
	json_t *device = json_pack("{s:s, s:{s:{s:s}, s:{s:s}, s:{s:i}}, s:b, s:{s:{s:o, s:{s:s, s:[s]}}}}", "name",
				   hb_dra_device_format(gpu->uuid, is_high, name), "attributes", "uuid", "string",
				   hb_uuid_format(gpu->uuid, uuid), "priority", "string", is_high ? "high" : "low",
				   "idlePercent", "int", (int)gpu->idle_percent, "allowMultipleAllocations", 1,
				   "capacity", "tenants", "value", json_sprintf("%u", tenants), "requestPolicy",
				   "default", "1", "validValues", "1");
	if (gpu->name[0])
		json_object_set_new(json_object_get(device, "attributes"), "productName",
				    json_pack("{s:o}", "string", json_sprintf("%.64s", gpu->name)));
	/* A claim that requests no memory has no limit, and the scheduler reserves nothing for it. */
	if (gpu->memory_bytes)
		json_object_set_new(json_object_get(device, "capacity"), "memory",
				    json_pack("{s:o, s:{s:s, s:{s:s}}}", "value",
					      json_sprintf("%llu", (unsigned long long)gpu->memory_bytes),
					      "requestPolicy", "default", "0", "validRange", "min", "0"));
	return device;
}

json_t *hb_slice_devices(const struct hb_slice_publisher *publisher, const struct hb_node_view *view)
{
	json_t *devices = json_array();
	bool offers_high = publisher->config->high && hb_node_view_device(view, "high");
	bool offers_low = publisher->config->low && hb_node_view_device(view, "low");
	for (uint32_t i = 0; view->daemon_answers && i < publisher->n_gpus; i++) {
		const struct hb_slice_gpu *gpu = &publisher->gpus[i];
		if (hb_node_view_gpu(view, gpu->uuid) < 0)
			continue;
		if (offers_high)
			json_array_append_new(devices, make_slice_device(gpu, true, publisher->config->high));
		if (offers_low)
			json_array_append_new(devices, make_slice_device(gpu, false, publisher->config->low));
	}
	return devices;
}

/* ---- the API server ---- */

static void name_slice(const struct hb_slice_publisher *publisher, char path[PATH_MAX_BYTES])
{
	snprintf(path, PATH_MAX_BYTES, SLICES "/%s-" HB_DRA_DRIVER, publisher->config->node);
}

/* The slice is removed with its node. */
static int read_node_uid(struct hb_slice_publisher *publisher, struct hb_error *error)
{
	char path[PATH_MAX_BYTES];
	json_t *answer = NULL;
	if (publisher->node_uid[0])
		return 0;
	snprintf(path, sizeof(path), "/api/v1/nodes/%s", publisher->config->node);
	int status = hb_api_request(&publisher->config->server, "GET", path, NULL, &answer, error);
	if (status < 0)
		return status;
	const char *uid = json_string_value(json_object_get(json_object_get(answer, "metadata"), "uid"));
	if (status == 200 && uid)
		snprintf(publisher->node_uid, sizeof(publisher->node_uid), "%s", uid);
	else
		hb_api_refused(error, "GET", path, status, answer);
	json_decref(answer);
	return publisher->node_uid[0] ? 0 : -EPROTO;
}

/* `present`: the slice that the server has, or NULL. */
static json_t *make_slice(const struct hb_slice_publisher *publisher, json_t *devices, const json_t *present)
{
	const char *node = publisher->config->node;
	json_t *metadata = json_pack("{s:o, s:[{s:s, s:s, s:s, s:s, s:b}]}", "name",
				     json_sprintf("%s-" HB_DRA_DRIVER, node), "ownerReferences", "apiVersion", "v1",
				     "kind", "Node", "name", node, "uid", publisher->node_uid, "controller", 1);
	json_t *version = json_object_get(json_object_get(present, "metadata"), "resourceVersion");
	json_t *pool = json_object_get(json_object_get(present, "spec"), "pool");
	if (version)
		json_object_set(metadata, "resourceVersion", version);
	return json_pack("{s:s, s:s, s:o, s:{s:s, s:s, s:{s:s, s:I, s:i}, s:O}}", "apiVersion", "resource.k8s.io/v1",
			 "kind", "ResourceSlice", "metadata", metadata, "spec", "driver", HB_DRA_DRIVER, "nodeName",
			 node, "pool", "name", node, "generation",
			 json_integer_value(json_object_get(pool, "generation")) + 1, "resourceSliceCount", 1,
			 "devices", devices);
}

/* An API server without consumable capacity drops the field: one claim would then take the whole device. */
static void check_sharing(struct hb_slice_publisher *publisher, const json_t *answer)
{
	const json_t *devices = json_object_get(json_object_get(answer, "spec"), "devices");
	const json_t *device = json_array_get(devices, 0);
	if (!device || json_is_true(json_object_get(device, "allowMultipleAllocations")) || publisher->has_warned)
		return;
	publisher->has_warned = true;
	hb_log_warning(
		"the API server removed allowMultipleAllocations, so each device goes to one claim only: its feature gate "
		"DRAConsumableCapacity is off (it is on by default from Kubernetes 1.36)");
}

static int write_slice(struct hb_slice_publisher *publisher, json_t *devices, const json_t *present,
		       struct hb_error *error)
{
	char path[PATH_MAX_BYTES] = SLICES;
	const char *method = present ? "PUT" : "POST";
	json_t *answer = NULL;
	int result = read_node_uid(publisher, error);
	if (result < 0)
		return result;
	if (present)
		name_slice(publisher, path);
	json_t *slice = make_slice(publisher, devices, present);
	result = hb_api_request(&publisher->config->server, method, path, slice, &answer, error);
	json_decref(slice);
	if (result == 200 || result == 201) {
		check_sharing(publisher, answer);
		json_decref(publisher->published);
		publisher->published = json_incref(devices);
		hb_log_info("published %zu devices of %u GPUs", json_array_size(devices), publisher->n_gpus);
		result = 0;
	} else if (result > 0) {
		hb_api_refused(error, method, path, result, answer);
		if (result == 404)
			hb_error_format(
				error,
				"the API server has no resource.k8s.io/v1, which needs Kubernetes 1.34 or newer");
		result = -EPROTO;
	}
	json_decref(answer);
	return result;
}

static int update_slice(struct hb_slice_publisher *publisher, json_t *devices, struct hb_error *error)
{
	char path[PATH_MAX_BYTES];
	json_t *present = NULL;
	name_slice(publisher, path);
	int result, status = hb_api_request(&publisher->config->server, "GET", path, NULL, &present, error);
	if (status < 0)
		return status;
	if (status == 404)
		result = write_slice(publisher, devices, NULL, error);
	else if (status != 200)
		hb_api_refused(error, "GET", path, status, present), result = -EPROTO;
	else
		result = json_equal(publisher->published, devices) ? 0
								   : write_slice(publisher, devices, present, error);
	json_decref(present);
	return result;
}

int hb_slice_publish(struct hb_slice_publisher *publisher, const struct hb_node_view *view, int64_t now_ns,
		     struct hb_error *error)
{
	json_t *devices = hb_slice_devices(publisher, view);
	int result = 0;
	bool has_changed = !publisher->published || !json_equal(publisher->published, devices);
	bool is_due = has_changed || now_ns - publisher->checked_ns >= CHECK_PERIOD_NS;
	if (is_due && now_ns - publisher->tried_ns >= TRY_PERIOD_NS) {
		publisher->tried_ns = now_ns;
		result = update_slice(publisher, devices, error);
		if (result == 0)
			publisher->checked_ns = now_ns;
	}
	json_decref(devices);
	return result;
}

void hb_slice_fini(struct hb_slice_publisher *publisher)
{
	json_decref(publisher->published);
	publisher->published = NULL;
}
