/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that answer gRPC methods, and the table of methods that chooses one of them. ModelInfer is in grpc_infer.c;
 * the configuration of models and the repository are in grpc_repository.c.
 */
#include "base/hb-version.h"
#include "kserve.pb-c.h"
#include "server/grpc/grpc_call.h"
#include "server/models/model_info.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_ANSWER_BYTES 1024 /* larger answers are charged to the memory budget */
#define SERVICE "/inference.GRPCInferenceService/"

void hb_grpc_fail(struct hb_grpc_call *call, int status, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(call->message, sizeof(call->message), format, arguments);
	va_end(arguments);
	call->status = status;
}

struct hb_grpc_method {
	const char *name;
	void (*function)(struct hb_grpc_call *call);
	enum hb_right right;
};

bool hb_grpc_call_infers(const struct hb_grpc_call *call)
{
	return call->method && call->method->function == hb_grpc_infer;
}

uint8_t *hb_grpc_make_out(struct hb_grpc_call *call, size_t bytes)
{
	/* Small requests like ServerLive are answered even if the memory budget is used up. */
	bool charged = call->infer ? hb_inference_charge_answer(call->infer, &call->charge, bytes)
				   : bytes <= SMALL_ANSWER_BYTES || hb_memory_charge_add(&call->charge, bytes);
	if (!charged) {
		hb_grpc_fail(call, hb_answer_grpc(HB_ANSWER_MEMORY_FULL), "%s", HB_MEMORY_FULL);
		return NULL;
	}
	call->out = bytes <= UINT32_MAX ? malloc(bytes + HB_GRPC_PREFIX) : NULL;
	if (!call->out) {
		hb_grpc_fail(call, GRPC_UNAVAILABLE, "out of memory");
		return NULL;
	}
	call->out_bytes = bytes + HB_GRPC_PREFIX;
	call->out[0] = 0;
	for (int i = 0; i < 4; i++)
		call->out[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
	return call->out + HB_GRPC_PREFIX;
}

static struct hb_dispatch *get_dispatch(const struct hb_grpc_call *call)
{
	return call->grpc->config.dispatch;
}

void hb_grpc_answer_with(struct hb_grpc_call *call, const void *message)
{
	uint8_t *out = hb_grpc_make_out(call, protobuf_c_message_get_packed_size(message));
	if (out)
		protobuf_c_message_pack(message, out);
}

void *hb_grpc_receive(struct hb_grpc_call *call, const ProtobufCMessageDescriptor *type)
{
	size_t bytes;
	const uint8_t *data = hb_grpc_message(call, &bytes);
	void *message = protobuf_c_message_unpack(type, NULL, bytes, data);
	if (!message)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "the message is not a %s", type->short_name);
	return message;
}

struct hb_served_model *hb_grpc_take_model(struct hb_grpc_call *call, const char *name, const char *version)
{
	char reason[256];
	enum hb_answer why;
	struct hb_served_model *model = hb_dispatch_take_model(get_dispatch(call), name, version, &why, reason,
							       sizeof(reason));
	if (!model)
		hb_grpc_fail(call, hb_answer_grpc(why), "%s", reason);
	return model;
}

/* ---- health and metadata ---- */

static void answer_server_live(struct hb_grpc_call *call)
{
	Inference__ServerLiveResponse answer = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
	answer.live = 1;
	hb_grpc_answer_with(call, &answer);
}

static void answer_server_ready(struct hb_grpc_call *call)
{
	Inference__ServerReadyResponse answer = INFERENCE__SERVER_READY_RESPONSE__INIT;
	answer.ready = hb_dispatch_ready(get_dispatch(call));
	hb_grpc_answer_with(call, &answer);
}

static void answer_model_ready(struct hb_grpc_call *call)
{
	Inference__ModelReadyResponse answer = INFERENCE__MODEL_READY_RESPONSE__INIT;
	Inference__ModelReadyRequest *request = hb_grpc_receive(call, &inference__model_ready_request__descriptor);
	char reason[256];
	enum hb_answer why;
	if (!request)
		return;
	struct hb_served_model *model = hb_dispatch_take_model(get_dispatch(call), request->name, request->version,
							       &why, reason, sizeof(reason));
	answer.ready = model != NULL;
	hb_dispatch_give_model(get_dispatch(call), model);
	inference__model_ready_request__free_unpacked(request, NULL);
	hb_grpc_answer_with(call, &answer);
}

static void answer_server_metadata(struct hb_grpc_call *call)
{
	Inference__ServerMetadataResponse answer = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
	answer.name = (char *)"hummingbird";
	answer.version = (char *)HB_VERSION;
	answer.extensions = (char **)hb_model_info_extensions;
	while (hb_model_info_extensions[answer.n_extensions])
		answer.n_extensions++;
	hb_grpc_answer_with(call, &answer);
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;

struct grpc_metadata {
	tensor_metadata tensors[2 * HB_TENSORS_MAX], *pointers[2 * HB_TENSORS_MAX];
	int64_t dims[2 * HB_TENSORS_MAX][HB_TENSOR_DIMS_MAX + 1];
};

static void describe_tensor(struct grpc_metadata *metadata, uint32_t at, const struct hb_tensor_spec *spec,
			    bool batched)
{
	tensor_metadata *tensor = metadata->pointers[at] = &metadata->tensors[at];
	inference__model_metadata_response__tensor_metadata__init(tensor);
	metadata->dims[at][0] = -1;
	memcpy(&metadata->dims[at][batched], spec->dims, spec->n_dims * sizeof(*spec->dims));
	tensor->name = (char *)spec->name;
	tensor->datatype = (char *)hb_dtype_name((enum hb_dtype)spec->dtype);
	tensor->shape = metadata->dims[at];
	tensor->n_shape = spec->n_dims + batched;
}

static void send_metadata(struct hb_grpc_call *call, const struct hb_model_config *model)
{
	Inference__ModelMetadataResponse answer = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
	struct grpc_metadata metadata;
	char *versions[] = {(char *)"1"};
	for (uint32_t i = 0; i < model->n_inputs; i++)
		describe_tensor(&metadata, i, &model->inputs[i], model->max_batch > 0);
	for (uint32_t i = 0; i < model->n_outputs; i++)
		describe_tensor(&metadata, HB_TENSORS_MAX + i, &model->outputs[i], model->max_batch > 0);
	answer.name = (char *)model->name;
	answer.n_versions = 1;
	answer.versions = versions;
	answer.platform = (char *)hb_model_info_platform(model);
	answer.n_inputs = model->n_inputs;
	answer.inputs = metadata.pointers;
	answer.n_outputs = model->n_outputs;
	answer.outputs = metadata.pointers + HB_TENSORS_MAX;
	hb_grpc_answer_with(call, &answer);
}

static void answer_model_metadata(struct hb_grpc_call *call)
{
	Inference__ModelMetadataRequest *request = hb_grpc_receive(call,
								   &inference__model_metadata_request__descriptor);
	if (!request)
		return;
	struct hb_served_model *model = hb_grpc_take_model(call, request->name, request->version);
	if (model)
		send_metadata(call, &model->config);
	hb_dispatch_give_model(get_dispatch(call), model);
	inference__model_metadata_request__free_unpacked(request, NULL);
}

/* ---- statistics ---- */

struct grpc_statistics {
	Inference__ModelStatistics message;
	Inference__InferStatistics inference;
	Inference__StatisticDuration durations[8], batch_durations[HB_SCHEDULER_BATCH_MAX + 1][3];
	Inference__InferBatchStatistics batches[HB_SCHEDULER_BATCH_MAX + 1],
		*batch_pointers[HB_SCHEDULER_BATCH_MAX + 1];
	char name[HB_MODEL_NAME_MAX];
};

struct grpc_statistics_list {
	const char *name; /* name of the model; "" = all models */
	size_t n;
	struct grpc_statistics *models[HB_SCHEDULER_MODELS_MAX];
	Inference__ModelStatistics *pointers[HB_SCHEDULER_MODELS_MAX];
};

static Inference__StatisticDuration *set_duration(Inference__StatisticDuration *out, const struct hb_duration *from)
{
	inference__statistic_duration__init(out);
	out->count = from->count;
	out->ns = from->ns;
	return out;
}

static void set_batches(struct grpc_statistics *out, const struct hb_served_model_stats *stats)
{
	for (uint32_t i = 1; i <= HB_SCHEDULER_BATCH_MAX; i++) {
		Inference__InferBatchStatistics *batch = &out->batches[i];
		if (!stats->batch[i].infer.count)
			continue;
		inference__infer_batch_statistics__init(batch);
		batch->batch_size = i;
		batch->compute_input = set_duration(&out->batch_durations[i][0], &stats->batch[i].input);
		batch->compute_infer = set_duration(&out->batch_durations[i][1], &stats->batch[i].infer);
		batch->compute_output = set_duration(&out->batch_durations[i][2], &stats->batch[i].output);
		out->batch_pointers[out->message.n_batch_stats++] = batch;
	}
	out->message.batch_stats = out->batch_pointers;
}

static void set_statistics(struct grpc_statistics *out, const struct hb_served_model *model)
{
	static const struct hb_duration none;
	const struct hb_served_model_stats *stats = &model->stats;
	inference__model_statistics__init(&out->message);
	inference__infer_statistics__init(&out->inference);
	strcpy(out->name, model->config.name);
	out->message.name = out->name;
	out->message.version = (char *)"1";
	out->message.last_inference = stats->ended_ms;
	out->message.inference_count = stats->inferences;
	out->message.execution_count = stats->executions;
	out->message.inference_stats = &out->inference;
	out->inference.success = set_duration(&out->durations[0], &stats->success);
	out->inference.fail = set_duration(&out->durations[1], &stats->fail);
	out->inference.queue = set_duration(&out->durations[2], &stats->queue);
	out->inference.compute_input = set_duration(&out->durations[3], &stats->input);
	out->inference.compute_infer = set_duration(&out->durations[4], &stats->infer);
	out->inference.compute_output = set_duration(&out->durations[5], &stats->output);
	out->inference.cache_hit = set_duration(&out->durations[6], &none);
	out->inference.cache_miss = set_duration(&out->durations[7], &none);
	set_batches(out, stats);
}

static void add_statistics(void *argument, struct hb_served_model *model)
{
	struct grpc_statistics_list *list = argument;
	if ((list->name[0] && strcmp(list->name, model->config.name) != 0) || model->state == HB_SERVED_MODEL_UNLOADED)
		return;
	struct grpc_statistics *out = calloc(1, sizeof(*out));
	if (!out)
		return;
	set_statistics(out, model);
	list->models[list->n] = out;
	list->pointers[list->n++] = &out->message;
}

static void answer_model_statistics(struct hb_grpc_call *call)
{
	Inference__ModelStatisticsResponse answer = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
	Inference__ModelStatisticsRequest *request = hb_grpc_receive(call,
								     &inference__model_statistics_request__descriptor);
	if (!request)
		return;
	struct grpc_statistics_list list = {.name = request->name};
	hb_dispatch_each_model(get_dispatch(call), add_statistics, &list);
	answer.n_model_stats = list.n;
	answer.model_stats = list.pointers;
	if (list.n == 0 && request->name[0])
		hb_grpc_fail(call, hb_answer_grpc(HB_ANSWER_NOT_FOUND), "no model \"%.64s\" is loaded", request->name);
	else
		hb_grpc_answer_with(call, &answer);
	for (size_t i = 0; i < list.n; i++)
		free(list.models[i]);
	inference__model_statistics_request__free_unpacked(request, NULL);
}

/* ---- shared memory ---- */

struct grpc_region_list {
	struct hb_shared_region regions[HB_SHARED_REGIONS_MAX];
	Inference__SystemSharedMemoryStatusResponse__RegionStatus status[HB_SHARED_REGIONS_MAX];
	Inference__SystemSharedMemoryStatusResponse__RegionsEntry entries[HB_SHARED_REGIONS_MAX],
		*pointers[HB_SHARED_REGIONS_MAX];
};

static void send_regions(struct hb_grpc_call *call, struct grpc_region_list *list, int n)
{
	Inference__SystemSharedMemoryStatusResponse answer = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
	for (int i = 0; i < n; i++) {
		inference__system_shared_memory_status_response__region_status__init(&list->status[i]);
		inference__system_shared_memory_status_response__regions_entry__init(&list->entries[i]);
		list->status[i].name = list->entries[i].key = list->regions[i].name;
		list->status[i].key = list->regions[i].key;
		list->status[i].offset = list->regions[i].offset;
		list->status[i].byte_size = list->regions[i].bytes;
		list->entries[i].value = &list->status[i];
		list->pointers[i] = &list->entries[i];
	}
	answer.n_regions = (size_t)n;
	answer.regions = list->pointers;
	hb_grpc_answer_with(call, &answer);
}

static void answer_regions_status(struct hb_grpc_call *call)
{
	Inference__SystemSharedMemoryStatusRequest *request = hb_grpc_receive(
		call, &inference__system_shared_memory_status_request__descriptor);
	struct grpc_region_list *list = calloc(1, sizeof(*list));
	struct hb_error error = {.text = "out of memory"};
	if (request) {
		int n = list ? hb_shared_memory_list(call->grpc->config.shared_memory, call->caller.id, request->name,
						     list->regions, HB_SHARED_REGIONS_MAX, &error)
			     : -1;
		if (n < 0)
			hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "%s", error.text);
		else
			send_regions(call, list, n);
	}
	free(list);
	inference__system_shared_memory_status_request__free_unpacked(request, NULL);
}

static void register_region(struct hb_grpc_call *call)
{
	Inference__SystemSharedMemoryRegisterResponse answer = INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
	Inference__SystemSharedMemoryRegisterRequest *request = hb_grpc_receive(
		call, &inference__system_shared_memory_register_request__descriptor);
	struct hb_error error = {.text = "name and key must be shorter, and the name must not be empty"};
	struct hb_shared_region region = {.offset = 0};
	if (!request)
		return;
	int result = -1;
	if (strlen(request->name) < sizeof(region.name) && strlen(request->key) < sizeof(region.key) &&
	    request->name[0]) {
		strcpy(region.name, request->name);
		strcpy(region.key, request->key);
		region.offset = request->offset;
		region.bytes = request->byte_size;
		result = hb_shared_memory_register(call->grpc->config.shared_memory, call->grpc->config.access,
						   &call->caller, &region, &error);
	}
	if (result < 0)
		hb_grpc_fail(call, result == -EACCES ? GRPC_PERMISSION_DENIED : GRPC_INVALID_ARGUMENT, "%s",
			     error.text);
	else
		hb_grpc_answer_with(call, &answer);
	inference__system_shared_memory_register_request__free_unpacked(request, NULL);
}

static void unregister_region(struct hb_grpc_call *call)
{
	Inference__SystemSharedMemoryUnregisterResponse answer =
		INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
	Inference__SystemSharedMemoryUnregisterRequest *request = hb_grpc_receive(
		call, &inference__system_shared_memory_unregister_request__descriptor);
	struct hb_error error = {.text = ""};
	if (!request)
		return;
	if (hb_shared_memory_unregister(call->grpc->config.shared_memory, call->caller.id, request->name, &error) < 0)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "%s", error.text);
	else
		hb_grpc_answer_with(call, &answer);
	inference__system_shared_memory_unregister_request__free_unpacked(request, NULL);
}

static void answer_cuda_status(struct hb_grpc_call *call)
{
	Inference__CudaSharedMemoryStatusResponse answer = INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;
	hb_grpc_answer_with(call, &answer);
}

/* No CUDA region exists. Unregistering all regions succeeds, because Triton's examples begin with that call. */
static void unregister_cuda_region(struct hb_grpc_call *call)
{
	Inference__CudaSharedMemoryUnregisterResponse answer = INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
	Inference__CudaSharedMemoryUnregisterRequest *request = hb_grpc_receive(
		call, &inference__cuda_shared_memory_unregister_request__descriptor);
	if (!request)
		return;
	if (request->name[0])
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "no region \"%s\" is registered", request->name);
	else
		hb_grpc_answer_with(call, &answer);
	inference__cuda_shared_memory_unregister_request__free_unpacked(request, NULL);
}

/* Refuses regions in CUDA memory: the server has no CUDA context, so it cannot open their handles. */
static void refuse_cuda(struct hb_grpc_call *call)
{
	hb_grpc_fail(call, GRPC_UNIMPLEMENTED, "CUDA shared memory is not supported; use system shared memory");
}

/* ---- the table ---- */

static const struct hb_grpc_method methods[] = {
	{"ModelInfer", hb_grpc_infer, HB_RIGHT_USE},
	{"ServerLive", answer_server_live, HB_RIGHT_HEALTH},
	{"ServerReady", answer_server_ready, HB_RIGHT_HEALTH},
	{"ModelReady", answer_model_ready, HB_RIGHT_USE},
	{"ServerMetadata", answer_server_metadata, HB_RIGHT_USE},
	{"ModelMetadata", answer_model_metadata, HB_RIGHT_USE},
	{"ModelConfig", hb_grpc_model_config, HB_RIGHT_USE},
	{"ModelStatistics", answer_model_statistics, HB_RIGHT_USE},
	{"RepositoryIndex", hb_grpc_repository_index, HB_RIGHT_USE},
	{"RepositoryModelLoad", hb_grpc_model_load, HB_RIGHT_CONTROL},
	{"RepositoryModelUnload", hb_grpc_model_unload, HB_RIGHT_CONTROL},
	{"SystemSharedMemoryStatus", answer_regions_status, HB_RIGHT_SHARED_MEMORY},
	{"SystemSharedMemoryRegister", register_region, HB_RIGHT_SHARED_MEMORY},
	{"SystemSharedMemoryUnregister", unregister_region, HB_RIGHT_SHARED_MEMORY},
	{"CudaSharedMemoryStatus", answer_cuda_status, HB_RIGHT_USE},
	{"CudaSharedMemoryRegister", refuse_cuda, HB_RIGHT_USE},
	{"CudaSharedMemoryUnregister", unregister_cuda_region, HB_RIGHT_USE},
};

/* Returns whether the data are exactly one message with its prefix. */
static bool is_one_message(const struct hb_grpc_call *call)
{
	if (call->bytes < HB_GRPC_PREFIX)
		return false;
	const uint8_t *at = call->data;
	size_t length = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
	return at[0] <= 1 && length == call->bytes - HB_GRPC_PREFIX;
}

static const struct hb_grpc_method *find_method(const char *path)
{
	size_t skip = strlen(SERVICE);
	for (size_t i = 0; strncmp(path, SERVICE, skip) == 0 && i < sizeof(methods) / sizeof(*methods); i++)
		if (strcmp(path + skip, methods[i].name) == 0)
			return &methods[i];
	return NULL;
}

bool hb_grpc_call_begin(struct hb_grpc_call *call)
{
	const struct hb_grpc_method *method = find_method(call->path);
	bool allowed = hb_grpc_check_access(call, method ? method->right : HB_RIGHT_USE);
	if (allowed && !method)
		hb_grpc_fail(call, GRPC_UNIMPLEMENTED, "method %s does not exist", call->path);
	if (allowed)
		call->method = method;
	return call->method != NULL;
}

uint64_t hb_grpc_call_size_limit(const struct hb_grpc_call *call)
{
	return hb_access_size_limit(call->method->right, hb_grpc_call_infers(call), call->grpc->config.body_bytes);
}

bool hb_grpc_call_grow(struct hb_grpc_call *call, size_t bytes)
{
	size_t capacity = hb_memory_grown_capacity(call->capacity, bytes);
	if (capacity == call->capacity)
		return true;
	size_t more = capacity - call->capacity;
	/* Small requests like ServerLive are answered even if the memory budget is used up. */
	bool free_of_charge = capacity == HB_MEMORY_FIRST_BYTES && !hb_grpc_call_infers(call);
	call->memory_full = !free_of_charge &&
			    ((hb_memory_would_use_reserve(&call->charge, more) && hb_grpc_call_is_low(call)) ||
			     !hb_memory_charge_add(&call->charge, more));
	uint8_t *data = call->memory_full ? NULL : realloc(call->data, capacity);
	if (!data)
		return false;
	call->data = data;
	call->capacity = capacity;
	return true;
}

bool hb_grpc_call_is_low(const struct hb_grpc_call *call)
{
	return hb_grpc_call_infers(call) && (call->caller.low_only || hb_grpc_infer_is_low(call));
}

void hb_grpc_announce_request(struct hb_grpc_call *call)
{
	if (!call->announced && hb_grpc_call_infers(call) && !call->caller.low_only)
		hb_grpc_infer_announce(call);
}

void hb_grpc_call_run(struct hb_grpc_call *call)
{
	/* A call without a message ends with its headers, and hb_grpc_call_begin() was not called. */
	if (!call->method && !hb_grpc_call_begin(call))
		return;
	if (call->too_large) {
		hb_grpc_fail(call, hb_answer_grpc(HB_ANSWER_TOO_LARGE), "the message is larger than the server allows");
		return;
	}
	if (call->memory_full) {
		hb_grpc_fail(call, hb_answer_grpc(HB_ANSWER_MEMORY_FULL), "%s", HB_MEMORY_FULL);
		return;
	}
	if (!is_one_message(call))
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "the call must consist of exactly one complete message");
	else if (call->data[0] != 0)
		hb_grpc_expand_message(call);
	else
		hb_grpc_call_answer(call);
}

void hb_grpc_call_answer(struct hb_grpc_call *call)
{
	call->method->function(call);
}
