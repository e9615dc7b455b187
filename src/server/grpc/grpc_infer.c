/* SPDX-License-Identifier: Apache-2.0 */
/* ModelInfer over gRPC: reads the message, submits the request, waits and answers. See grpc_call.h. */
#include "base/clock.h"
#include "kserve.pb-c.h"
#include "server/grpc/grpc_call.h"
#include "server/models/inference_check.h"

#include <stdlib.h>
#include <string.h>

#define MALLOC_OVERHEAD 16

#define MODEL_NAME_TAG 0x0a  /* field 1 of ModelInferRequest, encoded with its length */
#define LONG_LENGTH_MIN 0x80 /* smallest length whose encoding takes more than one byte */

typedef Inference__ModelInferRequest infer_message;
typedef Inference__ModelInferRequest__InferInputTensor input_message;

/* The memory that the inputs of a request point into. */
struct grpc_source {
	infer_message *message;
	struct hb_memory_charge *charge; /* the request's charge */
	bool memory_full;
	void *more[HB_TENSORS_MAX];
};

static void free_source(void *source_)
{
	struct grpc_source *source = source_;
	for (uint32_t i = 0; i < HB_TENSORS_MAX; i++)
		free(source->more[i]);
	if (source->message)
		inference__model_infer_request__free_unpacked(source->message, NULL);
	free(source);
}

static struct hb_parameter read_parameter(const Inference__InferParameter *value)
{
	struct hb_parameter out = {.kind = HB_PARAMETER_OTHER};
	if (!value)
		return out;
	if (value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
		out = (struct hb_parameter){.kind = HB_PARAMETER_BOOL, .truth = value->bool_param};
	else if (value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
		out = (struct hb_parameter){.kind = HB_PARAMETER_INT, .number = value->int64_param};
	else if (value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM)
		out = (struct hb_parameter){.kind = HB_PARAMETER_INT,
					    .number = value->uint64_param > INT64_MAX ? INT64_MAX
										      : (int64_t)value->uint64_param};
	else if (value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
		out = (struct hb_parameter){.kind = HB_PARAMETER_TEXT, .text = value->string_param};
	return out;
}

static enum hb_answer read_tensor_parameters(struct hb_inference *infer, const char *tensor, size_t n,
					     Inference__ParametersEntry *const *entries,
					     struct hb_tensor_parameters *out)
{
	for (size_t i = 0; i < n; i++) {
		struct hb_parameter value = read_parameter(entries[i]->value);
		if (hb_parameter_of_tensor(infer, tensor, entries[i]->key, &value, out) != HB_ANSWER_OK)
			return infer->answer;
	}
	return HB_ANSWER_OK;
}

/* ---- typed contents ---- */

/* Copies n numbers into elements of a smaller type. False: one of them does not fit. */
static bool narrow_numbers(const void *from, size_t from_bytes, bool is_signed, size_t n, void *to, size_t to_bytes)
{
	for (size_t i = 0; i < n; i++) {
		int64_t value = 0;
		memcpy(&value, (const char *)from + i * from_bytes, from_bytes);
		if (is_signed)
			value = (int32_t)value;
		int64_t most = (INT64_C(1) << (8 * to_bytes - is_signed)) - 1, least = is_signed ? -most - 1 : 0;
		if (value < least || value > most)
			return false;
		memcpy((char *)to + i * to_bytes, &value, to_bytes);
	}
	return true;
}

static enum hb_answer pack_strings(struct hb_inference *infer, const Inference__InferTensorContents *contents,
				   struct hb_tensor *tensor, void **memory)
{
	uint64_t all = 0;
	for (size_t i = 0; i < contents->n_bytes_contents; i++)
		all += 4 + contents->bytes_contents[i].len;
	if (hb_inference_allocate(infer, all + 1, memory) != HB_ANSWER_OK)
		return infer->answer;
	char *at = *memory;
	for (size_t i = 0; i < contents->n_bytes_contents; i++) {
		uint32_t length = (uint32_t)contents->bytes_contents[i].len;
		memcpy(at, &length, 4);
		if (length)
			memcpy(at + 4, contents->bytes_contents[i].data, length);
		at += 4 + (size_t)length;
	}
	tensor->data = *memory;
	tensor->bytes = all;
	return HB_ANSWER_OK;
}

/* The n elements of a message field, of `bytes` bytes each. */
struct typed_contents {
	const void *data;
	size_t n, bytes;
};

static struct typed_contents find_contents(const Inference__InferTensorContents *from, enum hb_dtype dtype)
{
	switch (dtype) {
	case HB_DTYPE_BOOL:
		return (struct typed_contents){from->bool_contents, from->n_bool_contents, sizeof(protobuf_c_boolean)};
	case HB_DTYPE_INT8:
	case HB_DTYPE_INT16:
	case HB_DTYPE_INT32:
		return (struct typed_contents){from->int_contents, from->n_int_contents, 4};
	case HB_DTYPE_UINT8:
	case HB_DTYPE_UINT16:
	case HB_DTYPE_UINT32:
		return (struct typed_contents){from->uint_contents, from->n_uint_contents, 4};
	case HB_DTYPE_INT64:
		return (struct typed_contents){from->int64_contents, from->n_int64_contents, 8};
	case HB_DTYPE_UINT64:
		return (struct typed_contents){from->uint64_contents, from->n_uint64_contents, 8};
	case HB_DTYPE_FP32:
		return (struct typed_contents){from->fp32_contents, from->n_fp32_contents, 4};
	case HB_DTYPE_FP64:
		return (struct typed_contents){from->fp64_contents, from->n_fp64_contents, 8};
	default:
		return (struct typed_contents){NULL, 0, 0};
	}
}

static enum hb_answer read_contents(struct hb_inference *infer, const Inference__InferTensorContents *from,
				    struct hb_tensor *tensor, void **memory)
{
	struct typed_contents contents = find_contents(from, tensor->dtype);
	size_t size = hb_dtype_bytes(tensor->dtype);
	bool is_signed = tensor->dtype >= HB_DTYPE_INT8 && tensor->dtype <= HB_DTYPE_INT64;
	if (tensor->dtype == HB_DTYPE_BYTES)
		return pack_strings(infer, from, tensor, memory);
	if (!contents.data && contents.bytes == 0)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": data of type %s must be in raw_input_contents", tensor->name,
					 hb_dtype_name(tensor->dtype));
	tensor->data = contents.data;
	tensor->bytes = contents.n * size;
	if (contents.bytes == size)
		return HB_ANSWER_OK;
	if (hb_inference_allocate(infer, tensor->bytes + 1, memory) != HB_ANSWER_OK)
		return infer->answer;
	tensor->data = *memory;
	if (!narrow_numbers(contents.data, contents.bytes, is_signed, contents.n, *memory, size))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "input \"%s\": a value does not fit the type %s",
					 tensor->name, hb_dtype_name(tensor->dtype));
	return HB_ANSWER_OK;
}

/* ---- the request ---- */

static enum hb_answer read_description(struct hb_inference *infer, const input_message *from, struct hb_tensor *tensor)
{
	*tensor = (struct hb_tensor){.n_dims = (uint32_t)from->n_shape};
	if (!from->name[0] || strlen(from->name) >= sizeof(tensor->name) || from->n_shape > HB_TENSOR_DIMS_MAX)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "an input needs a name of up to %d characters and up to %d dimensions",
					 HB_TENSOR_NAME_MAX - 1, HB_TENSOR_DIMS_MAX);
	strcpy(tensor->name, from->name);
	for (uint32_t i = 0; i < tensor->n_dims; i++)
		tensor->dims[i] = from->shape[i];
	tensor->dtype = hb_dtype_parse(from->datatype);
	if (tensor->dtype == HB_DTYPES)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": data type \"%.32s\" does not exist", tensor->name,
					 from->datatype);
	return HB_ANSWER_OK;
}

static enum hb_answer read_input(struct hb_inference *infer, struct grpc_source *source, const input_message *from,
				 size_t *next_raw, struct hb_shared_memory *regions)
{
	uint32_t index = infer->n_inputs++;
	struct hb_tensor *tensor = &infer->inputs[index];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	const infer_message *message = source->message;
	if (read_description(infer, from, tensor) != HB_ANSWER_OK ||
	    read_tensor_parameters(infer, tensor->name, from->n_parameters, from->parameters, &given) != HB_ANSWER_OK)
		return infer->answer;
	tensor->part = given.part;
	if (given.part.region[0])
		return hb_shared_memory_read_input(infer, regions, tensor, &source->more[index]);
	if (from->contents)
		return read_contents(infer, from->contents, tensor, &source->more[index]);
	if (*next_raw >= message->n_raw_input_contents)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "input \"%s\" has no data", tensor->name);
	tensor->data = message->raw_input_contents[*next_raw].data;
	tensor->bytes = message->raw_input_contents[(*next_raw)++].len;
	return HB_ANSWER_OK;
}

static enum hb_answer read_requested_output(struct hb_inference *infer,
					    const Inference__ModelInferRequest__InferRequestedOutputTensor *from)
{
	struct hb_output_request *request = &infer->requested[infer->n_requested++];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	*request = (struct hb_output_request){.binary = true};
	if (!from->name[0] || strlen(from->name) >= sizeof(request->name))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "an output needs a name of up to %d characters",
					 HB_TENSOR_NAME_MAX - 1);
	strcpy(request->name, from->name);
	enum hb_answer answer = read_tensor_parameters(infer, request->name, from->n_parameters, from->parameters,
						       &given);
	request->part = given.part;
	return answer;
}

static enum hb_answer read_request(struct hb_inference *infer, struct grpc_source *source,
				   struct hb_shared_memory *regions)
{
	const infer_message *message = source->message;
	size_t next_raw = 0;
	if (message->n_inputs > HB_TENSORS_MAX || message->n_outputs > HB_TENSORS_MAX)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "the request has more than %d inputs or outputs",
					 HB_TENSORS_MAX);
	if (strlen(message->id) >= sizeof(infer->id))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "the id is longer than %d bytes",
					 HB_REQUEST_ID_MAX - 1);
	strcpy(infer->id, message->id);
	for (size_t i = 0; i < message->n_parameters; i++) {
		struct hb_parameter value = read_parameter(message->parameters[i]->value);
		if (hb_parameter_of_request(infer, message->parameters[i]->key, &value) != HB_ANSWER_OK)
			return infer->answer;
	}
	for (size_t i = 0; i < message->n_inputs; i++) {
		if (read_input(infer, source, message->inputs[i], &next_raw, regions) != HB_ANSWER_OK)
			return infer->answer;
		if (infer->inputs[i].bytes == 0)
			infer->inputs[i].data = ""; /* protobuf-c has no pointer to empty data */
	}
	for (size_t i = 0; i < message->n_outputs; i++)
		if (read_requested_output(infer, message->outputs[i]) != HB_ANSWER_OK)
			return infer->answer;
	if (next_raw != message->n_raw_input_contents)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "%zu elements of raw_input_contents belong to no input",
					 message->n_raw_input_contents - next_raw);
	return HB_ANSWER_OK;
}

/* ---- the answer ---- */

static void release_inference(struct hb_grpc_call *call)
{
	hb_dispatch_give_model(call->grpc->config.dispatch, call->infer->model);
	hb_inference_free(call->infer);
	call->infer = NULL;
}

struct infer_response {
	Inference__ModelInferResponse message;
	Inference__ModelInferResponse__InferOutputTensor outputs[HB_TENSORS_MAX], *pointers[HB_TENSORS_MAX];
	ProtobufCBinaryData raw[HB_TENSORS_MAX];
};

/* Returns whether the client asked for the output. */
static bool is_requested(const struct hb_inference *infer, const char *name, bool *in_region)
{
	*in_region = false;
	for (uint32_t i = 0; i < infer->n_requested; i++)
		if (strcmp(infer->requested[i].name, name) == 0) {
			*in_region = infer->requested[i].part.region[0] != '\0';
			return true;
		}
	return infer->n_requested == 0;
}

static void add_output(struct infer_response *answer, struct hb_tensor *tensor, bool in_region)
{
	size_t n = answer->message.n_outputs++;
	Inference__ModelInferResponse__InferOutputTensor *output = &answer->outputs[n];
	inference__model_infer_response__infer_output_tensor__init(output);
	output->name = tensor->name;
	output->datatype = (char *)hb_dtype_name(tensor->dtype);
	output->n_shape = tensor->n_dims;
	output->shape = tensor->dims;
	answer->pointers[n] = output;
	/*
	 * An output in shared memory has been written there; its element stays empty, so that the others keep their
	 * order.
	 */
	answer->raw[n] = (ProtobufCBinaryData){.len = in_region ? 0 : tensor->bytes, .data = (uint8_t *)tensor->data};
}

static void write_answer(struct hb_grpc_call *call)
{
	struct hb_inference *infer = call->infer;
	struct infer_response answer;
	bool in_region;
	inference__model_infer_response__init(&answer.message);
	answer.message.model_name = infer->model->config.name;
	answer.message.model_version = (char *)"1";
	answer.message.id = infer->id;
	answer.message.outputs = answer.pointers;
	answer.message.raw_output_contents = answer.raw;
	for (uint32_t i = 0; i < infer->n_outputs; i++)
		if (is_requested(infer, infer->outputs[i].name, &in_region))
			add_output(&answer, &infer->outputs[i], in_region);
	answer.message.n_raw_output_contents = answer.message.n_outputs;
	uint8_t *out = hb_grpc_make_out(call, inference__model_infer_response__get_packed_size(&answer.message));
	if (out)
		inference__model_infer_response__pack(&answer.message, out);
	hb_inference_drop_outputs(infer);
}

/* Sets the answer, or status and message. */
static void set_answer(struct hb_grpc_call *call)
{
	struct hb_inference *infer = call->infer;
	call->written = true;
	if (infer->answer == HB_ANSWER_OK &&
	    hb_shared_memory_write_outputs(infer, call->grpc->config.shared_memory) == HB_ANSWER_OK)
		write_answer(call);
	else
		hb_grpc_fail(call, hb_answer_grpc(infer->answer), "%s", infer->reason);
}

static void finish_call(struct hb_grpc_call *call)
{
	if (!call->written)
		set_answer(call);
	release_inference(call);
}

static void write_on_thread(void *call)
{
	set_answer(call);
	hb_grpc_resume(call);
}

static void resume_call(struct hb_inference *infer)
{
	struct hb_grpc_call *call = infer->owner;
	call->writing = (struct hb_job){.run = write_on_thread, .owner = call};
	if (hb_inference_has_large_outputs(infer))
		hb_job_thread_submit(call->grpc->jobs, &call->writing);
	else
		hb_grpc_resume(call);
}

/* Charges each allocation of protobuf-c: a message of many small parts takes far more memory than its size. */
static void *allocate_part(void *source_, size_t bytes)
{
	struct grpc_source *source = source_;
	if (hb_memory_charge_add(source->charge, bytes + MALLOC_OVERHEAD))
		return malloc(bytes);
	source->memory_full = true;
	return NULL;
}

static void free_part(void *source, void *memory)
{
	free(memory); /* the charge for this memory remains until the request ends */
}

static enum hb_answer unpack_message(struct hb_grpc_call *call, struct hb_inference *infer)
{
	size_t bytes;
	const uint8_t *data = hb_grpc_message(call, &bytes);
	struct grpc_source *source = calloc(1, sizeof(*source));
	if (!source)
		return hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
	source->charge = &infer->charge;
	ProtobufCAllocator allocator = {.alloc = allocate_part, .free = free_part, .allocator_data = source};
	source->message = inference__model_infer_request__unpack(&allocator, bytes, data);
	infer->source = source;
	infer->free_source = free_source;
	free(call->data); /* the content of `data` was copied */
	call->data = NULL;
	hb_memory_charge_end(&call->charge);
	if (source->memory_full)
		return hb_inference_fail_memory_full(infer);
	return source->message
		       ? HB_ANSWER_OK
		       : hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "the message is not a ModelInferRequest");
}

static enum hb_answer prepare_request(struct hb_grpc_call *call, struct hb_inference *infer)
{
	struct grpc_source *source;
	if (unpack_message(call, infer) != HB_ANSWER_OK)
		return infer->answer;
	source = infer->source;
	infer->model = hb_dispatch_take_model(call->grpc->config.dispatch, source->message->model_name,
					      source->message->model_version, &infer->answer, infer->reason,
					      sizeof(infer->reason));
	if (!infer->model || read_request(infer, source, call->grpc->config.shared_memory) != HB_ANSWER_OK)
		return infer->answer;
	if (call->timeout_ns && (!infer->timeout_ns || call->timeout_ns < infer->timeout_ns))
		infer->timeout_ns = call->timeout_ns;
	return hb_inference_check(infer, &infer->model->config);
}

enum name_found { NAME_INCOMPLETE, NAME_UNKNOWN, NAME_FOUND };

/* Finds the model's name at the beginning of a message. Writers of protobuf put field 1, the name, first. */
static enum name_found find_name_field(const uint8_t *at, size_t bytes, const char **name, size_t *length)
{
	if (bytes < 2)
		return NAME_INCOMPLETE;
	if (at[0] != MODEL_NAME_TAG || at[1] >= HB_MODEL_NAME_MAX || at[1] >= LONG_LENGTH_MIN)
		return NAME_UNKNOWN;
	*name = (const char *)at + 2;
	*length = at[1];
	return bytes < 2 + *length ? NAME_INCOMPLETE : NAME_FOUND;
}

/* Finds the name in a message that is still arriving. In a compressed message it is not looked for. */
static enum name_found find_model_name(const struct hb_grpc_call *call, const char **name, size_t *length)
{
	if (call->bytes < HB_GRPC_PREFIX + 2)
		return NAME_INCOMPLETE;
	if (call->data[0] != 0)
		return NAME_UNKNOWN;
	return find_name_field(call->data + HB_GRPC_PREFIX, call->bytes - HB_GRPC_PREFIX, name, length);
}

bool hb_grpc_infer_check_compressed(struct hb_grpc_call *call)
{
	uint8_t begin[2 + HB_MODEL_NAME_MAX];
	char text[HB_MODEL_NAME_MAX];
	const char *name;
	size_t length, bytes = hb_coding_expand_begin(call->coding, call->data + HB_GRPC_PREFIX,
						      call->bytes - HB_GRPC_PREFIX, begin, sizeof(begin));
	if (find_name_field(begin, bytes, &name, &length) != NAME_FOUND)
		return true; /* this is checked when the message is read */
	snprintf(text, sizeof(text), "%.*s", (int)length, name);
	struct hb_served_model *model = hb_grpc_take_model(call, text, "");
	hb_dispatch_give_model(call->grpc->config.dispatch, model);
	return model != NULL;
}

bool hb_grpc_infer_is_low(const struct hb_grpc_call *call)
{
	const char *name;
	size_t length;
	return find_model_name(call, &name, &length) == NAME_FOUND &&
	       hb_dispatch_is_low(call->grpc->config.dispatch, name, length);
}

void hb_grpc_infer_announce(struct hb_grpc_call *call)
{
	const char *name;
	size_t length;
	enum name_found found = find_model_name(call, &name, &length);
	call->announced = found != NAME_INCOMPLETE;
	if (found == NAME_FOUND)
		hb_dispatch_expect(call->grpc->config.dispatch, name, length);
}

void hb_grpc_infer(struct hb_grpc_call *call)
{
	struct hb_inference *infer = call->infer = hb_inference_new();
	if (!infer) {
		hb_grpc_fail(call, hb_answer_grpc(HB_ANSWER_UNAVAILABLE), "out of memory");
		return;
	}
	infer->times.arrived_ns = hb_clock_now_ns();
	infer->owner = call;
	infer->caller = call->caller.id;
	infer->low_only = call->caller.low_only;
	infer->charge.budget = call->grpc->config.memory;
	infer->done = resume_call;
	call->finish = finish_call;
	if (prepare_request(call, infer) != HB_ANSWER_OK) {
		finish_call(call);
		return;
	}
	call->waits = true;
	call->grpc->n_waiting++;
	if (hb_dispatch_submit(call->grpc->config.dispatch, infer)) {
		call->waits = false;
		call->grpc->n_waiting--;
		finish_call(call);
	}
}
