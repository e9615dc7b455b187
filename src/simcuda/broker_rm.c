/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource manager of the simulated GPU: objects and controls with the
 * real driver's numbers, layouts and status codes, as far as Hummingbird uses
 * them. A time slice of a channel group sets the model's time slice of the
 * context that owns the group. Objects are found only through the connection that made
 * them, as the real driver finds them only through the same open file.
 * What the model cannot do (suspend a group, change its preemption) is refused
 * with NV_ERR_NOT_SUPPORTED, never accepted without effect.
 */
#include "nvidia/nvidia_rm_abi.h"
#include "simcuda/broker.h"
#include "simcuda/sim_rm_abi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct broker_rm_object *find_object(struct broker_client *client, uint32_t root, uint32_t handle)
{
	for (size_t i = 0; i < client->n_rm; i++)
		if (client->rm[i].client == root && client->rm[i].handle == handle)
			return &client->rm[i];
	return NULL;
}

static bool is_copy(const struct broker_rm_object *group)
{
	return group->engine >= HB_RM_ENGINE_COPY_FIRST;
}

static uint64_t default_us(const struct broker *broker, const struct broker_rm_object *group)
{
	const struct hb_gpu_spec *spec = &broker->gpu[0].spec;
	return (uint64_t)((is_copy(group) ? spec->copy_slice_ns : spec->slice_ns) / 1000.0);
}

static uint32_t alloc(struct broker *broker, struct broker_client *client, const struct hb_rm_alloc *call,
		      const struct sim_rm_call *message)
{
	uint32_t root = call->class_id == SIM_RM_CLASS_ROOT ? call->object : call->client;
	if (find_object(client, root, call->object))
		return SIM_NV_INSERT_DUPLICATE_NAME;
	if (call->class_id != SIM_RM_CLASS_ROOT && !find_object(client, call->client, call->client))
		return SIM_NV_INVALID_CLIENT;
	if (call->class_id != SIM_RM_CLASS_ROOT && !find_object(client, call->client, call->parent))
		return SIM_NV_INVALID_OBJECT_PARENT;
	if (client->n_rm == client->rm_room) {
		size_t room = client->rm_room ? client->rm_room * 2 : 32;
		struct broker_rm_object *bigger = realloc(client->rm, room * sizeof *bigger);
		if (!bigger)
			return SIM_NV_NO_MEMORY;
		client->rm = bigger;
		client->rm_room = room;
	}
	struct broker_rm_object *object = &client->rm[client->n_rm++];
	*object = (struct broker_rm_object){
		.client = root, .handle = call->object, .parent = call->parent, .class_id = call->class_id};
	const struct broker_rm_object *parent = find_object(client, root, call->parent);
	if (call->class_id == HB_RM_CLASS_DEVICE && message->params_size >= 4)
		memcpy(&object->engine, message->params, 4); /* a device object stores its GPU's number */
	else if (call->class_id == HB_RM_CLASS_SUBDEVICE && parent)
		object->engine = parent->engine;
	if (call->class_id == HB_RM_CLASS_GROUP && message->params_size >= sizeof(struct hb_rm_group_params)) {
		struct hb_rm_group_params params;
		memcpy(&params, message->params, sizeof params);
		object->engine = params.engine_type;
		object->group_id = ++broker->gpu[0].next_group_id;
		object->slice_us = default_us(broker, object);
	}
	return SIM_NV_OK;
}

/* Children are freed with their parent. */
static uint32_t release(struct broker_client *client, uint32_t root, uint32_t handle)
{
	if (!find_object(client, root, handle))
		return SIM_NV_INVALID_OBJECT_HANDLE;
	for (size_t i = 0; i < client->n_rm;) {
		struct broker_rm_object *object = &client->rm[i];
		if (object->client == root && object->parent == handle && object->handle != handle) {
			release(client, root, object->handle);
			i = 0;
		} else {
			i++;
		}
	}
	struct broker_rm_object *object = find_object(client, root, handle);
	*object = client->rm[--client->n_rm];
	return SIM_NV_OK;
}

void broker_rm_slices(struct broker *broker, struct broker_client *client, const struct broker_context *context,
		      int64_t *slice_ns, int64_t *copy_slice_ns)
{
	uint64_t compute_us = 0, copy_us = UINT64_MAX;
	for (size_t i = 0; i < client->n_rm; i++) {
		const struct broker_rm_object *object = &client->rm[i];
		if (object->class_id != HB_RM_CLASS_GROUP)
			continue;
		for (int k = 0; k < 4; k++) {
			if (!object->handle || object->handle != context->groups[k])
				continue;
			if (!is_copy(object))
				compute_us = object->slice_us;
			else if (object->slice_us < copy_us)
				copy_us = object->slice_us;
		}
	}
	(void)broker;
	*slice_ns = (int64_t)compute_us * 1000;
	*copy_slice_ns = copy_us == UINT64_MAX ? 0 : (int64_t)copy_us * 1000;
}

void broker_rm_bind(struct broker *broker, struct broker_client *client, struct broker_context *context)
{
	(void)broker;
	for (size_t i = 0; i < client->n_rm; i++)
		for (int k = 0; k < 4; k++)
			if (client->rm[i].class_id == HB_RM_CLASS_GROUP && client->rm[i].handle == context->groups[k])
				client->rm[i].context = context;
}

void broker_rm_unbind(struct broker_client *client, const struct broker_context *context)
{
	for (size_t i = 0; i < client->n_rm; i++)
		if (client->rm[i].context == context)
			client->rm[i].context = NULL;
}

static uint32_t set_slice(struct broker *broker, struct broker_client *client, struct broker_rm_object *group,
			  uint64_t slice_us)
{
	if (slice_us > SIM_RM_SLICE_MAX_US)
		return SIM_NV_INVALID_ARGUMENT;
	/* The hardware treats a period of zero as about 1 us. */
	group->slice_us = slice_us;
	struct broker_context *context = group->context;
	if (context) {
		int64_t slice_ns, copy_slice_ns;
		broker_rm_slices(broker, client, context, &slice_ns, &copy_slice_ns);
		if (hb_gpu_model_set_slice(broker->gpu[context->gpu].model, context->model_context,
					   slice_ns > 0 ? slice_ns : 1000,
					   copy_slice_ns > 0 ? copy_slice_ns : 1000) < 0)
			return SIM_NV_INVALID_ARGUMENT;
	}
	return SIM_NV_OK;
}

static uint32_t group_control(struct broker *broker, struct broker_client *client, struct broker_rm_object *group,
			      uint32_t command, struct sim_rm_call *message)
{
	uint64_t value = 0;
	memcpy(&value, message->params, message->params_size < 8 ? message->params_size : 8);
	switch (command) {
	case HB_RM_GROUP_SCHEDULE:
		return (value & 0xff) ? SIM_NV_OK : SIM_NV_NOT_SUPPORTED;
	case SIM_RM_GROUP_BIND:
		return SIM_NV_OK;
	case HB_RM_GROUP_SET_TIMESLICE:
		return message->params_size == 8 ? set_slice(broker, client, group, value)
						 : SIM_NV_INVALID_PARAM_STRUCT;
	case HB_RM_GROUP_GET_TIMESLICE:
		if (message->params_size != 8)
			return SIM_NV_INVALID_PARAM_STRUCT;
		memcpy(message->params, &group->slice_us, 8);
		return SIM_NV_OK;
	case SIM_RM_GROUP_INFO:
		if (message->params_size < 4)
			return SIM_NV_INVALID_PARAM_STRUCT;
		memcpy(message->params, &group->group_id, 4);
		return SIM_NV_OK;
	case SIM_RM_GROUP_SET_INTERLEAVE:
	case SIM_RM_GROUP_REALTIME:
		return client->uid == 0 ? SIM_NV_NOT_SUPPORTED : SIM_NV_INSUFFICIENT_PERMISSIONS;
	default:
		return SIM_NV_NOT_SUPPORTED;
	}
}

static uint32_t subdevice_control(const struct broker_rm_object *subdevice, uint32_t command,
				  struct sim_rm_call *message)
{
	struct hb_rm_gid_params gid;
	if (command != HB_RM_SUBDEVICE_GET_GID)
		return SIM_NV_NOT_SUPPORTED;
	if (message->params_size != sizeof gid)
		return SIM_NV_INVALID_PARAM_STRUCT;
	memcpy(&gid, message->params, sizeof gid);
	if (!(gid.flags & HB_RM_GID_BINARY))
		return SIM_NV_NOT_SUPPORTED;
	gid.length = 16;
	sim_gpu_uuid(subdevice->engine, gid.data);
	memcpy(message->params, &gid, sizeof gid);
	return SIM_NV_OK;
}

static uint32_t control(struct broker *broker, struct broker_client *client, const struct hb_rm_control *call,
			struct sim_rm_call *message)
{
	if (!find_object(client, call->client, call->client))
		return SIM_NV_INVALID_CLIENT;
	struct broker_rm_object *object = find_object(client, call->client, call->object);
	if (!object)
		return SIM_NV_INVALID_OBJECT_HANDLE;
	/* The upper half of a command is its class. */
	if (object->class_id != call->command >> 16)
		return SIM_NV_NOT_SUPPORTED;
	if (object->class_id == HB_RM_CLASS_GROUP)
		return group_control(broker, client, object, call->command, message);
	if (object->class_id == HB_RM_CLASS_SUBDEVICE)
		return subdevice_control(object, call->command, message);
	return SIM_NV_NOT_SUPPORTED;
}

void broker_rm_serve(struct broker *broker, struct broker_client *client, struct sim_rm_call *message)
{
	if (message->params_size > SIM_RM_PARAMS || message->size > sizeof message->escape)
		return;
	if (message->number == HB_RM_NR_CONTROL) {
		struct hb_rm_control call;
		memcpy(&call, message->escape, sizeof call);
		call.status = control(broker, client, &call, message);
		memcpy(message->escape, &call, sizeof call);
	} else if (message->number == HB_RM_NR_ALLOC) {
		struct hb_rm_alloc_rights call;
		struct hb_rm_alloc head;
		memcpy(&call, message->escape, sizeof call);
		memcpy(&head, message->escape, sizeof head);
		uint32_t status = alloc(broker, client, &head, message);
		head.status = call.status = status;
		if (message->size == sizeof call)
			memcpy(message->escape, &call, sizeof call);
		else
			memcpy(message->escape, &head, sizeof head);
	} else if (message->number == HB_RM_NR_FREE) {
		struct hb_rm_free call;
		memcpy(&call, message->escape, sizeof call);
		call.status = release(client, call.client, call.object);
		memcpy(message->escape, &call, sizeof call);
	}
}
