/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC methods for the configuration of models and for the model repository: index, load and unload. See grpc_call.h. */
#include "kserve.pb-c.h"
#include "server/grpc/grpc_call.h"
#include "server/models/model_info.h"

#include <stdlib.h>
#include <string.h>

/* ---- configuration of a model ---- */

struct grpc_model_config {
	Inference__ModelConfig message;
	Inference__ModelConfig__VersionPolicy policy;
	Inference__ModelConfig__Latest latest;
	Inference__ModelConfig__DynamicBatching batching;
	Inference__ModelConfig__Input inputs[HB_TENSORS_MAX], *input_pointers[HB_TENSORS_MAX];
	Inference__ModelConfig__Output outputs[HB_TENSORS_MAX], *output_pointers[HB_TENSORS_MAX];
};

static void set_config_tensors(struct grpc_model_config *out, const struct hb_model_config *model)
{
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		Inference__ModelConfig__Input *input = out->input_pointers[i] = &out->inputs[i];
		inference__model_config__input__init(input);
		input->name = (char *)model->inputs[i].name;
		input->data_type = hb_dtype_config_number((enum hb_dtype)model->inputs[i].dtype);
		input->n_dims = model->inputs[i].n_dims;
		input->dims = (int64_t *)model->inputs[i].dims;
	}
	for (uint32_t i = 0; i < model->n_outputs; i++) {
		Inference__ModelConfig__Output *output = out->output_pointers[i] = &out->outputs[i];
		inference__model_config__output__init(output);
		output->name = (char *)model->outputs[i].name;
		output->data_type = hb_dtype_config_number((enum hb_dtype)model->outputs[i].dtype);
		output->n_dims = model->outputs[i].n_dims;
		output->dims = (int64_t *)model->outputs[i].dims;
	}
	out->message.n_input = model->n_inputs;
	out->message.input = out->input_pointers;
	out->message.n_output = model->n_outputs;
	out->message.output = out->output_pointers;
}

static void set_config(struct grpc_model_config *out, const struct hb_model_config *model)
{
	inference__model_config__init(&out->message);
	inference__model_config__version_policy__init(&out->policy);
	inference__model_config__latest__init(&out->latest);
	inference__model_config__dynamic_batching__init(&out->batching);
	out->message.name = (char *)model->name;
	out->message.platform = (char *)hb_model_info_platform(model);
	out->message.version_policy = &out->policy;
	out->policy.latest = &out->latest;
	out->latest.num_versions = 1;
	out->message.max_batch_size = (int32_t)model->max_batch;
	set_config_tensors(out, model);
	if (model->max_batch == 0)
		return;
	out->message.dynamic_batching = &out->batching;
	out->batching.priority_levels = HB_SCHEDULER_PRIORITIES;
	out->batching.default_priority_level = (uint64_t)model->priority + 1; /* 1 is the highest */
}

void hb_grpc_model_config(struct hb_grpc_call *call)
{
	Inference__ModelConfigResponse answer = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
	Inference__ModelConfigRequest *request = hb_grpc_receive(call, &inference__model_config_request__descriptor);
	struct hb_dispatch *dispatch = call->grpc->config.dispatch;
	struct grpc_model_config configuration;
	if (!request)
		return;
	struct hb_served_model *model = hb_grpc_take_model(call, request->name, request->version);
	inference__model_config_request__free_unpacked(request, NULL);
	if (!model)
		return;
	set_config(&configuration, &model->config);
	answer.config = &configuration.message;
	hb_grpc_answer_with(call, &answer);
	hb_dispatch_give_model(dispatch, model);
}

/* ---- the repository ---- */

struct grpc_index {
	bool ready_only;
	size_t n;
	Inference__RepositoryIndexResponse__ModelIndex models[HB_SCHEDULER_MODELS_MAX],
		*pointers[HB_SCHEDULER_MODELS_MAX];
	char names[HB_SCHEDULER_MODELS_MAX][HB_MODEL_NAME_MAX], reasons[HB_SCHEDULER_MODELS_MAX][512];
};

static void add_to_index(void *argument, struct hb_served_model *model)
{
	struct grpc_index *index = argument;
	if (index->ready_only && model->state != HB_SERVED_MODEL_READY)
		return;
	size_t n = index->n++;
	Inference__RepositoryIndexResponse__ModelIndex *one = index->pointers[n] = &index->models[n];
	inference__repository_index_response__model_index__init(one);
	memcpy(index->names[n], model->config.name, sizeof(index->names[n]));
	memcpy(index->reasons[n], model->why, sizeof(index->reasons[n]));
	one->name = index->names[n];
	one->version = (char *)"1";
	one->state = (char *)hb_model_info_state(model);
	one->reason = index->reasons[n];
}

void hb_grpc_repository_index(struct hb_grpc_call *call)
{
	Inference__RepositoryIndexResponse answer = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
	Inference__RepositoryIndexRequest *request = hb_grpc_receive(call,
								     &inference__repository_index_request__descriptor);
	struct grpc_index *index = calloc(1, sizeof(*index));
	if (request && index) {
		index->ready_only = request->ready;
		hb_dispatch_each_model(call->grpc->config.dispatch, add_to_index, index);
		answer.n_models = index->n;
		answer.models = index->pointers;
		hb_grpc_answer_with(call, &answer);
	} else if (request) {
		hb_grpc_fail(call, GRPC_UNAVAILABLE, "out of memory");
	}
	free(index);
	inference__repository_index_request__free_unpacked(request, NULL);
}

static void finish_load(struct hb_grpc_call *call)
{
	Inference__RepositoryModelLoadResponse answer = INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
	if (call->load->result < 0)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, HB_LOAD_FAILED, call->load->name, call->load->error.text);
	else
		hb_grpc_answer_with(call, &answer);
}

static void resume_load(struct hb_load *load)
{
	hb_grpc_resume(load->owner);
}

/* Returns why a load request is refused; NULL = the request is accepted. */
static const char *find_load_error(const Inference__RepositoryModelLoadRequest *request)
{
	for (size_t i = 0; i < request->n_parameters; i++)
		if (hb_parameter_overrides(request->parameters[i]->key))
			return HB_LOAD_OVERRIDES;
	return hb_served_model_name_fits(request->model_name) ? NULL : HB_LOAD_NO_NAME;
}

void hb_grpc_model_load(struct hb_grpc_call *call)
{
	Inference__RepositoryModelLoadRequest *request = hb_grpc_receive(
		call, &inference__repository_model_load_request__descriptor);
	struct hb_error error = {.text = ""};
	if (!request)
		return;
	const char *why = find_load_error(request);
	if (why)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, HB_LOAD_FAILED, request->model_name, why);
	else
		call->load = hb_load_new(request->model_name, resume_load, call);
	inference__repository_model_load_request__free_unpacked(request, NULL);
	if (why)
		return;
	call->finish = finish_load;
	call->waits = true;
	call->grpc->n_waiting++;
	if (call->load && hb_dispatch_load(call->grpc->config.dispatch, call->load, &error) == 0)
		return;
	call->waits = false;
	call->grpc->n_waiting--;
	hb_grpc_fail(call, GRPC_UNAVAILABLE, "%s", call->load ? error.text : "out of memory");
}

void hb_grpc_model_unload(struct hb_grpc_call *call)
{
	Inference__RepositoryModelUnloadResponse answer = INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
	Inference__RepositoryModelUnloadRequest *request = hb_grpc_receive(
		call, &inference__repository_model_unload_request__descriptor);
	struct hb_error error = {.text = ""};
	if (!request)
		return;
	if (hb_dispatch_unload(call->grpc->config.dispatch, request->model_name, &error) < 0)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT, "%s", error.text);
	else
		hb_grpc_answer_with(call, &answer);
	inference__repository_model_unload_request__free_unpacked(request, NULL);
}
