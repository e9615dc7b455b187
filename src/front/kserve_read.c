/* SPDX-License-Identifier: Apache-2.0 */
/* Reading inference requests; see kserve_json.h. */
#include "front/kserve_json.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct hb_body *hb_body_new(void)
{
	return calloc(1, sizeof(struct hb_body));
}

void hb_body_free(void *body_)
{
	struct hb_body *body = body_;
	if (!body)
		return;
	for (uint32_t i = 0; i < HB_TENSORS_MAX; i++)
		free(body->more[i]);
	free(body->data);
	free(body);
}

static enum hb_answer bad(struct hb_infer *infer, const char *what)
{
	return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "%s", what);
}

static struct hb_parameter parameter_of(const json_t *value)
{
	struct hb_parameter out = {.kind = HB_PARAMETER_OTHER};
	if (json_is_boolean(value))
		out = (struct hb_parameter){.kind = HB_PARAMETER_BOOL, .truth = json_is_true(value)};
	else if (json_is_integer(value))
		out = (struct hb_parameter){.kind = HB_PARAMETER_INT, .number = json_integer_value(value)};
	else if (json_is_string(value))
		out = (struct hb_parameter){.kind = HB_PARAMETER_TEXT, .text = json_string_value(value)};
	return out;
}

/* ---- data in JSON: numbers nested in any way, in row-major order ---- */

struct decoder {
	enum hb_dtype dtype;
	char *at, *end;
	uint64_t left; /* elements */
};

static bool put(struct decoder *decoder, const void *value, size_t bytes)
{
	if (decoder->left == 0 || (size_t)(decoder->end - decoder->at) < bytes)
		return false;
	memcpy(decoder->at, value, bytes);
	decoder->at += bytes;
	decoder->left--;
	return true;
}

static bool put_integer(struct decoder *decoder, const json_t *value)
{
	size_t bytes = hb_dtype_bytes(decoder->dtype);
	bool is_signed = decoder->dtype >= HB_DTYPE_INT8 && decoder->dtype <= HB_DTYPE_INT64;
	int64_t number = json_integer_value(value);
	int64_t most = bytes == 8 ? INT64_MAX : (INT64_C(1) << (8 * bytes - is_signed)) - 1;
	int64_t least = !is_signed ? 0 : bytes == 8 ? INT64_MIN : -most - 1;
	/* Little-endian: the low bytes come first. */
	return json_is_integer(value) && number >= least && number <= most && put(decoder, &number, bytes);
}

static bool put_real(struct decoder *decoder, const json_t *value)
{
	double number = json_number_value(value);
	float single = (float)number;
	if (!json_is_number(value))
		return false;
	return decoder->dtype == HB_DTYPE_FP32 ? put(decoder, &single, sizeof(single))
					       : put(decoder, &number, sizeof(number));
}

static bool put_text(struct decoder *decoder, const json_t *value)
{
	uint32_t length = (uint32_t)json_string_length(value);
	if (!json_is_string(value) || decoder->left == 0 || (size_t)(decoder->end - decoder->at) < 4 + (size_t)length)
		return false;
	memcpy(decoder->at, &length, 4);
	memcpy(decoder->at + 4, json_string_value(value), length);
	decoder->at += 4 + (size_t)length;
	decoder->left--;
	return true;
}

static bool put_element(struct decoder *decoder, const json_t *value)
{
	char truth = (char)json_is_true(value);
	switch (decoder->dtype) {
	case HB_DTYPE_BOOL:
		return json_is_boolean(value) && put(decoder, &truth, 1);
	case HB_DTYPE_FP32:
	case HB_DTYPE_FP64:
		return put_real(decoder, value);
	case HB_DTYPE_BYTES:
		return put_text(decoder, value);
	case HB_DTYPE_FP16:
	case HB_DTYPE_BF16:
		return false;
	default:
		return put_integer(decoder, value);
	}
}

static bool put_all(struct decoder *decoder, const json_t *value, int depth)
{
	size_t i;
	const json_t *element;
	if (!json_is_array(value))
		return put_element(decoder, value);
	if (depth == 0)
		return false;
	json_array_foreach(value, i, element) if (!put_all(decoder, element, depth - 1)) return false;
	return true;
}

static enum hb_answer decode(struct hb_infer *infer, struct hb_tensor *tensor, const json_t *data, struct hb_body *body,
			     void **memory)
{
	int64_t elements = hb_tensor_elements(tensor->dims, tensor->n_dims);
	/* Each element takes a byte of text at least, so a shape cannot ask for more memory than was sent. */
	if (elements < 0 || (uint64_t)elements > body->json_bytes)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
				     "input \"%s\": its shape has more elements than its data", tensor->name);
	size_t size = hb_dtype_bytes(tensor->dtype);
	size_t room = size ? (size_t)elements * size : (size_t)elements * 4 + body->json_bytes;
	struct decoder decoder = {.dtype = tensor->dtype, .left = (uint64_t)elements};
	*memory = malloc(room + 1);
	if (!*memory)
		return hb_infer_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
	decoder.at = *memory;
	decoder.end = decoder.at + room;
	if (!json_is_array(data) || !put_all(&decoder, data, HB_TENSOR_DIMS_MAX + 1) || decoder.left)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
				     "input \"%s\": \"data\" does not hold %lld elements of %s%s", tensor->name,
				     (long long)elements, hb_dtype_name(tensor->dtype),
				     tensor->dtype == HB_DTYPE_FP16 || tensor->dtype == HB_DTYPE_BF16
					     ? ", which JSON cannot carry: send it as binary data"
					     : "");
	tensor->data = *memory;
	tensor->bytes = (uint64_t)(decoder.at - (char *)*memory);
	return HB_ANSWER_OK;
}

/* ---- tensors ---- */

static enum hb_answer read_name(struct hb_infer *infer, const json_t *object, const char *what, char *out)
{
	const char *name = json_string_value(json_object_get(object, "name"));
	if (!name || !name[0] || strlen(name) >= HB_TENSOR_NAME_MAX)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "an %s needs a \"name\" of up to %d characters",
				     what, HB_TENSOR_NAME_MAX - 1);
	strcpy(out, name);
	return HB_ANSWER_OK;
}

static enum hb_answer read_shape(struct hb_infer *infer, const json_t *shape, struct hb_tensor *tensor)
{
	size_t i;
	const json_t *dim;
	if (!json_is_array(shape) || json_array_size(shape) > HB_TENSOR_DIMS_MAX)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "input \"%s\": \"shape\" must have up to %d numbers",
				     tensor->name, HB_TENSOR_DIMS_MAX);
	json_array_foreach(shape, i, dim)
	{
		if (!json_is_integer(dim) || json_integer_value(dim) < 0)
			return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
					     "input \"%s\": \"shape\" must have numbers, 0 or more", tensor->name);
		tensor->dims[i] = json_integer_value(dim);
	}
	tensor->n_dims = (uint32_t)json_array_size(shape);
	return HB_ANSWER_OK;
}

static enum hb_answer read_parameters(struct hb_infer *infer, const json_t *object, const char *tensor,
				      struct hb_tensor_parameters *out)
{
	json_t *parameters = json_object_get(object, "parameters");
	const char *name;
	json_t *value;
	if (parameters && !json_is_object(parameters))
		return bad(infer, "\"parameters\" must be an object");
	json_object_foreach(parameters, name, value)
	{
		struct hb_parameter given = parameter_of(value);
		enum hb_answer answer = tensor ? hb_parameter_of_tensor(infer, tensor, name, &given, out)
					       : hb_parameter_of_request(infer, name, &given);
		if (answer != HB_ANSWER_OK)
			return answer;
	}
	return HB_ANSWER_OK;
}

/* Where an input's bytes are: after the JSON, in a region, or in the JSON. */
static enum hb_answer read_data(struct hb_infer *infer, const json_t *object, struct hb_body *body,
				struct hb_regions *regions, struct hb_tensor *tensor,
				const struct hb_tensor_parameters *given, size_t *binary_at)
{
	const json_t *data = json_object_get(object, "data");
	uint32_t index = infer->n_inputs;
	if ((data != NULL) + (given->data_bytes >= 0) + (given->part.region[0] != '\0') != 1)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
				     "input \"%s\": one of \"data\", binary data and a region is needed", tensor->name);
	tensor->part = given->part;
	if (data)
		return decode(infer, tensor, data, body, &body->more[index]);
	if (given->part.region[0])
		return hb_region_fetch(infer, regions, tensor, &body->more[index]);
	if ((uint64_t)given->data_bytes > body->bytes - *binary_at)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
				     "input \"%s\": binary_data_size %lld, but only %zu bytes follow", tensor->name,
				     (long long)given->data_bytes, body->bytes - *binary_at);
	tensor->data = body->data + *binary_at;
	tensor->bytes = (uint64_t)given->data_bytes;
	*binary_at += tensor->bytes;
	return HB_ANSWER_OK;
}

static enum hb_answer read_input(struct hb_infer *infer, const json_t *object, struct hb_body *body,
				 struct hb_regions *regions, size_t *binary_at)
{
	struct hb_tensor *tensor = &infer->inputs[infer->n_inputs];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	const char *datatype = json_string_value(json_object_get(object, "datatype"));
	*tensor = (struct hb_tensor){.n_dims = 0};
	enum hb_answer answer = read_name(infer, object, "input", tensor->name);
	if (answer == HB_ANSWER_OK) {
		tensor->dtype = hb_dtype_parse(datatype ? datatype : "");
		if (tensor->dtype == HB_DTYPES)
			answer = hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST,
					       "input \"%s\": no \"datatype\" \"%.32s\" is known", tensor->name,
					       datatype ? datatype : "");
	}
	if (answer == HB_ANSWER_OK)
		answer = read_shape(infer, json_object_get(object, "shape"), tensor);
	if (answer == HB_ANSWER_OK)
		answer = read_parameters(infer, object, tensor->name, &given);
	if (answer == HB_ANSWER_OK)
		answer = read_data(infer, object, body, regions, tensor, &given, binary_at);
	infer->n_inputs++;
	return answer;
}

static enum hb_answer read_wish(struct hb_infer *infer, const json_t *object)
{
	struct hb_wish *wish = &infer->wishes[infer->n_wishes];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	*wish = (struct hb_wish){.binary = false};
	enum hb_answer answer = read_name(infer, object, "output", wish->name);
	if (answer == HB_ANSWER_OK)
		answer = read_parameters(infer, object, wish->name, &given);
	wish->binary = given.binary_given ? given.binary : infer->binary_outputs;
	wish->part = given.part;
	infer->n_wishes++;
	return answer;
}

static enum hb_answer read_lists(struct hb_infer *infer, const json_t *root, struct hb_body *body,
				 struct hb_regions *regions)
{
	const json_t *inputs = json_object_get(root, "inputs"), *outputs = json_object_get(root, "outputs"), *one;
	size_t i, binary_at = body->json_bytes;
	enum hb_answer answer = HB_ANSWER_OK;
	if (!json_is_array(inputs) || json_array_size(inputs) > HB_TENSORS_MAX ||
	    (outputs && (!json_is_array(outputs) || json_array_size(outputs) > HB_TENSORS_MAX)))
		return bad(infer, "\"inputs\" must be a list of 1 to 16 tensors, \"outputs\" one of up to 16");
	json_array_foreach(inputs, i, one) if (answer == HB_ANSWER_OK)
		answer = read_input(infer, one, body, regions, &binary_at);
	json_array_foreach(outputs, i, one) if (answer == HB_ANSWER_OK) answer = read_wish(infer, one);
	if (answer == HB_ANSWER_OK && binary_at != body->bytes)
		answer = hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "%zu bytes of binary data belong to no input",
				       body->bytes - binary_at);
	return answer;
}

static enum hb_answer read_root(struct hb_infer *infer, const json_t *root, struct hb_body *body,
				struct hb_regions *regions)
{
	const json_t *id = json_object_get(root, "id");
	enum hb_answer answer;
	if (!json_is_object(root))
		return bad(infer, "the request must be a JSON object");
	if (id && (!json_is_string(id) || json_string_length(id) >= HB_REQUEST_ID_MAX))
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "\"id\" must be text of up to %d bytes",
				     HB_REQUEST_ID_MAX - 1);
	if (id)
		strcpy(infer->id, json_string_value(id));
	answer = read_parameters(infer, root, NULL, NULL);
	return answer == HB_ANSWER_OK ? read_lists(infer, root, body, regions) : answer;
}

enum hb_answer hb_kserve_read(struct hb_infer *infer, struct hb_body *body, struct hb_regions *regions)
{
	struct hb_error error = {.text = ""};
	json_t *root = NULL;
	if (hb_json_parse(body->data, body->json_bytes, "request", &root, &error) < 0)
		return hb_infer_fail(infer, HB_ANSWER_BAD_REQUEST, "%s", error.text);
	enum hb_answer answer = read_root(infer, root, body, regions);
	json_decref(root);
	return answer;
}
