/* SPDX-License-Identifier: Apache-2.0 */
/* See allocation.h. */
#include "k8s/allocation.h"

#include "base/uuid.h"
#include "grpc/rpc_link.h"
#include "k8s/message_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_MAX (HB_K8S_GPUS_MAX * HB_K8S_UNITS_MAX)

/* ---- units ---- */

char *hb_unit_format(const unsigned char uuid[16], uint32_t unit, char id[static HB_UNIT_ID_SIZE])
{
	char text[HB_UUID_TEXT_SIZE];
	snprintf(id, HB_UNIT_ID_SIZE, "%s-%u", hb_uuid_format(uuid, text), unit);
	return id;
}

/* Returns the index of the unit's GPU, or -1 with *error. */
static int find_gpu(const struct hb_unit_rule *rule, const char *id, struct hb_error *error)
{
	char text[HB_UUID_TEXT_SIZE], written[HB_UNIT_ID_SIZE];
	unsigned char uuid[16];
	snprintf(text, sizeof(text), "%s", id);
	unsigned long unit = strlen(id) > sizeof(text) ? strtoul(id + sizeof(text), NULL, 10) : rule->units;
	if (hb_uuid_parse(text, uuid) == 0 && unit < rule->units &&
	    strcmp(hb_unit_format(uuid, (uint32_t)unit, written), id) == 0) {
		int gpu = hb_node_view_gpu(rule->view, uuid);
		if (gpu < 0)
			hb_error_format(error, "%s: this node has no such GPU now", id);
		return gpu;
	}
	hb_error_format(error, "'%.80s' is not a unit of " HB_K8S_DOMAIN "/%s", id, rule->resource);
	return -1;
}

/* ---- what a container gets ---- */

static void add_variable(V1beta1__ContainerAllocateResponse *answer, const char *name, size_t length, const char *value)
{
	V1beta1__Variable *variable = hb_part_new(sizeof(*variable));
	v1beta1__variable__init(variable);
	variable->key = hb_part_new(length + 1);
	memcpy(variable->key, name, length);
	variable->value = hb_part_text(value);
	hb_part_append(&answer->envs, &answer->n_envs, variable);
}

static void add_cdi_device(V1beta1__ContainerAllocateResponse *answer, const char *kind, const char *name)
{
	char text[HB_K8S_RESOURCE_NAME + 64];
	V1beta1__CDIDevice *device = hb_part_new(sizeof(*device));
	v1beta1__cdidevice__init(device);
	snprintf(text, sizeof(text), "%s=%s", kind, name);
	device->name = hb_part_text(text);
	hb_part_append(&answer->cdi_devices, &answer->n_cdi_devices, device);
}

static bool is_read_only(json_t *options)
{
	size_t i;
	json_t *option;
	json_array_foreach(options, i, option)
	{
		const char *text = json_string_value(option);
		if (text && strcmp(text, "ro") == 0)
			return true;
	}
	return false;
}

/* Adds what a part of the specification says. False: it is not as `hb cdi generate` writes it. */
static bool add_edits(V1beta1__ContainerAllocateResponse *answer, json_t *edits)
{
	size_t i;
	json_t *item;
	json_array_foreach(json_object_get(edits, "env"), i, item)
	{
		const char *text = json_string_value(item), *value = text ? strchr(text, '=') : NULL;
		if (!value)
			return false;
		add_variable(answer, text, (size_t)(value - text), value + 1);
	}
	json_array_foreach(json_object_get(edits, "mounts"), i, item)
	{
		const char *from = json_string_value(json_object_get(item, "hostPath"));
		const char *to = json_string_value(json_object_get(item, "containerPath"));
		if (!from || !to)
			return false;
		V1beta1__Mount *mount = hb_part_new(sizeof(*mount));
		v1beta1__mount__init(mount);
		mount->host_path = hb_part_text(from);
		mount->container_path = hb_part_text(to);
		mount->read_only = is_read_only(json_object_get(item, "options"));
		hb_part_append(&answer->mounts, &answer->n_mounts, mount);
	}
	return true;
}

static void grant_gpus(const struct hb_unit_rule *rule, uint64_t gpus, V1beta1__ContainerAllocateResponse *answer)
{
	char list[HB_K8S_GPUS_MAX * HB_UUID_TEXT_SIZE] = "", uuid[HB_UUID_TEXT_SIZE];
	for (uint32_t i = 0; i < rule->view->n_gpus; i++) {
		if (!(gpus >> i & 1))
			continue;
		hb_uuid_format(rule->view->uuids[i], uuid);
		if (rule->config->grant == HB_GRANT_CDI)
			add_cdi_device(answer, "nvidia.com/gpu", uuid);
		if (list[0])
			strcat(list, ",");
		strcat(list, uuid);
	}
	if (rule->config->grant == HB_GRANT_VARIABLE)
		add_variable(answer, "NVIDIA_VISIBLE_DEVICES", strlen("NVIDIA_VISIBLE_DEVICES"), list);
}

static int answer_container(const struct hb_unit_rule *rule, const V1beta1__ContainerAllocateRequest *request,
			    V1beta1__ContainerAllocateResponse *answer, struct hb_error *error)
{
	uint64_t gpus = 0;
	json_t *edits = hb_node_view_device(rule->view, rule->resource);
	for (size_t i = 0; i < request->n_devices_ids; i++) {
		int gpu = find_gpu(rule, request->devices_ids[i], error);
		if (gpu < 0)
			return HB_RPC_INVALID_ARGUMENT;
		gpus |= UINT64_C(1) << gpu;
	}
	if (!edits) {
		hb_error_format(error, "%s has no device %s: run `hb cdi generate` on this node",
				rule->config->cdi_file, rule->resource);
		return HB_RPC_FAILED_PRECONDITION;
	}
	if (!rule->config->answers_mounts)
		add_cdi_device(answer, HB_K8S_CDI_KIND, rule->resource);
	else if (!add_edits(answer, json_object_get(rule->view->cdi, "containerEdits")) || !add_edits(answer, edits)) {
		hb_error_format(error, "%s: a variable or mount of device %s is not valid: run `hb cdi generate`",
				rule->config->cdi_file, rule->resource);
		return HB_RPC_FAILED_PRECONDITION;
	}
	grant_gpus(rule, gpus, answer);
	return HB_RPC_OK;
}

int hb_allocation_answer(const struct hb_unit_rule *rule, const V1beta1__AllocateRequest *request,
			 V1beta1__AllocateResponse *answer, struct hb_error *error)
{
	int status = HB_RPC_OK;
	for (size_t i = 0; i < request->n_container_requests && status == HB_RPC_OK; i++) {
		V1beta1__ContainerAllocateResponse *container = hb_part_new(sizeof(*container));
		v1beta1__container_allocate_response__init(container);
		hb_part_append(&answer->container_responses, &answer->n_container_responses, container);
		status = answer_container(rule, request->container_requests[i], container, error);
	}
	return status;
}

/* ---- preferences ---- */

/* The units of one request, and how many each GPU has left and has given. */
struct unit_choice {
	char **ids;
	int *gpus; /* of each ID; -1 = chosen already */
	size_t n;
	uint32_t left[HB_K8S_GPUS_MAX], given[HB_K8S_GPUS_MAX];
};

static bool is_better(const struct unit_choice *choice, size_t a, size_t b)
{
	int x = choice->gpus[a], y = choice->gpus[b];
	if (choice->given[x] != choice->given[y])
		return choice->given[x] < choice->given[y];
	return choice->left[x] > choice->left[y];
}

static void choose_unit(struct unit_choice *choice, size_t i, V1beta1__ContainerPreferredAllocationResponse *answer)
{
	int gpu = choice->gpus[i];
	choice->gpus[i] = -1;
	choice->left[gpu]--;
	choice->given[gpu]++;
	hb_part_append(&answer->deviceids, &answer->n_deviceids, hb_part_text(choice->ids[i]));
}

/* Returns the best unit that is left; choice->n = there is none. */
static size_t best_unit(const struct unit_choice *choice)
{
	size_t best = choice->n;
	for (size_t i = 0; i < choice->n; i++)
		if (choice->gpus[i] >= 0 && (best == choice->n || is_better(choice, i, best)))
			best = i;
	return best;
}

static int choose_required(struct unit_choice *choice, const V1beta1__ContainerPreferredAllocationRequest *request,
			   V1beta1__ContainerPreferredAllocationResponse *answer, struct hb_error *error)
{
	for (size_t k = 0; k < request->n_must_include_deviceids; k++) {
		size_t i = 0;
		while (i < choice->n &&
		       (choice->gpus[i] < 0 || strcmp(choice->ids[i], request->must_include_deviceids[k]) != 0))
			i++;
		if (i == choice->n) {
			hb_error_format(error, "must_include_deviceIDs: '%.80s' is not available",
					request->must_include_deviceids[k]);
			return HB_RPC_INVALID_ARGUMENT;
		}
		choose_unit(choice, i, answer);
	}
	return HB_RPC_OK;
}

static int prefer_units(const struct hb_unit_rule *rule, const V1beta1__ContainerPreferredAllocationRequest *request,
			struct unit_choice *choice, V1beta1__ContainerPreferredAllocationResponse *answer,
			struct hb_error *error)
{
	for (size_t i = 0; i < choice->n; i++) {
		choice->gpus[i] = find_gpu(rule, choice->ids[i], error);
		if (choice->gpus[i] < 0)
			return HB_RPC_INVALID_ARGUMENT;
		choice->left[choice->gpus[i]]++;
	}
	int status = choose_required(choice, request, answer, error);
	while (status == HB_RPC_OK && answer->n_deviceids < (size_t)request->allocation_size) {
		size_t best = best_unit(choice);
		if (best == choice->n)
			break;
		choose_unit(choice, best, answer);
	}
	return status;
}

static int prefer_for_container(const struct hb_unit_rule *rule,
				const V1beta1__ContainerPreferredAllocationRequest *request,
				V1beta1__ContainerPreferredAllocationResponse *answer, struct hb_error *error)
{
	struct unit_choice choice = {.ids = request->available_deviceids, .n = request->n_available_deviceids};
	if (choice.n > UNITS_MAX || request->allocation_size < 0 ||
	    (size_t)request->allocation_size > request->n_available_deviceids) {
		hb_error_format(error, "allocation_size is %d, and %zu devices are available (at most %d)",
				request->allocation_size, choice.n, UNITS_MAX);
		return HB_RPC_INVALID_ARGUMENT;
	}
	choice.gpus = hb_part_new((choice.n + 1) * sizeof(*choice.gpus));
	int status = prefer_units(rule, request, &choice, answer, error);
	free(choice.gpus);
	return status;
}

int hb_allocation_prefer(const struct hb_unit_rule *rule, const V1beta1__PreferredAllocationRequest *request,
			 V1beta1__PreferredAllocationResponse *answer, struct hb_error *error)
{
	int status = HB_RPC_OK;
	for (size_t i = 0; i < request->n_container_requests && status == HB_RPC_OK; i++) {
		V1beta1__ContainerPreferredAllocationResponse *container = hb_part_new(sizeof(*container));
		v1beta1__container_preferred_allocation_response__init(container);
		hb_part_append(&answer->container_responses, &answer->n_container_responses, container);
		status = prefer_for_container(rule, request->container_requests[i], container, error);
	}
	return status;
}
