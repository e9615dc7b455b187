/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads inference requests; see kserve_json.h. The text is scanned once, without
 * building a tree. The members of an object can
 * have any order, so if an input's data precede its shape or type, the place of
 * the data is kept and they are decoded later.
 */
#include "server/http/kserve_json.h"

#include "base/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct hb_http_body *hb_http_body_new(void)
{
	return calloc(1, sizeof(struct hb_http_body));
}

void hb_http_body_clear(struct hb_http_body *body)
{
	free(body->data);
	body->data = NULL;
	body->bytes = body->json_bytes = 0;
	hb_memory_charge_end(&body->charge);
}

void hb_http_body_free(void *body_)
{
	struct hb_http_body *body = body_;
	if (!body)
		return;
	for (uint32_t i = 0; i < HB_TENSORS_MAX; i++)
		free(body->more[i]);
	hb_http_body_clear(body);
	free(body);
}

static enum hb_answer fail_request(struct hb_inference *infer, const char *what)
{
	return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "%s", what);
}

/* State of reading one request. */
struct json_reader {
	struct hb_json_scan scan;
	struct hb_inference *infer;
	struct hb_http_body *body;
	struct hb_shared_memory *memory;
	size_t binary_at;                  /* place of the next binary input, behind the JSON */
	bool binary_given[HB_TENSORS_MAX]; /* for each output: the request says whether the output is binary */
};

/*
 * Reads a key. Returns its index in `names`, which is marked in *seen; -1 = another key, whose value must be skipped.
 */
static int read_key(struct json_reader *reader, const char *const *names, uint32_t *seen)
{
	char key[32];
	if (!hb_json_scan_key(&reader->scan, key, sizeof(key)))
		return -1;
	for (int i = 0; names[i]; i++) {
		if (strcmp(names[i], key) != 0)
			continue;
		if (*seen & 1U << i)
			hb_json_scan_fail(&reader->scan, "a key occurs twice in one object");
		*seen |= 1U << i;
		return i;
	}
	return -1;
}

static enum hb_answer skip_value(struct json_reader *reader)
{
	reader->scan.nul = true;
	hb_json_scan_skip(&reader->scan);
	reader->scan.nul = false;
	return HB_ANSWER_OK; /* the scan remembers an error */
}

/* ---- parameters ---- */

static struct hb_parameter read_parameter(struct hb_json_scan *scan, char *text, size_t size)
{
	struct hb_parameter out = {.kind = HB_PARAMETER_OTHER};
	struct hb_json_number number;
	size_t length;
	switch (hb_json_scan_kind(scan)) {
	case HB_JSON_TRUE:
	case HB_JSON_FALSE:
		out = (struct hb_parameter){.kind = HB_PARAMETER_BOOL, .truth = *scan->at == 't'};
		hb_json_scan_skip(scan);
		break;
	case HB_JSON_NUMBER:
		if (hb_json_scan_number(scan, &number) && number.integer && number.magnitude <= INT64_MAX)
			out = (struct hb_parameter){.kind = HB_PARAMETER_INT,
						    .number = number.negative ? -(int64_t)number.magnitude
									      : (int64_t)number.magnitude};
		break;
	case HB_JSON_TEXT:
		if (hb_json_scan_text(scan, text, size - 1, &length) && length < size) {
			text[length] = '\0';
			out = (struct hb_parameter){.kind = HB_PARAMETER_TEXT, .text = text};
		}
		break;
	default:
		hb_json_scan_skip(scan);
	}
	return out;
}

/* Reads the parameters of a tensor into *out, or those of the request if tensor is NULL. */
static enum hb_answer read_parameters(struct json_reader *reader, const char *tensor, struct hb_tensor_parameters *out)
{
	char name[64], text[256];
	enum hb_answer answer = HB_ANSWER_OK;
	hb_json_scan_enter(&reader->scan, '{');
	while (answer == HB_ANSWER_OK && hb_json_scan_more(&reader->scan, '}')) {
		if (!hb_json_scan_key(&reader->scan, name, sizeof(name)))
			break;
		struct hb_parameter given = read_parameter(&reader->scan, text, sizeof(text));
		if (reader->scan.wrong)
			break;
		answer = tensor ? hb_parameter_of_tensor(reader->infer, tensor, name, &given, out)
				: hb_parameter_of_request(reader->infer, name, &given);
	}
	return answer;
}

/* ---- data in JSON: values in row-major order, nested or flat ---- */

/* The tensor that the values are stored in. */
struct json_decoder {
	enum hb_dtype dtype;
	char *at, *end;
	uint64_t left; /* elements that are still missing */
};

static bool store_bytes(struct json_decoder *decoder, const void *value, size_t bytes)
{
	if (decoder->left == 0 || (size_t)(decoder->end - decoder->at) < bytes)
		return false;
	memcpy(decoder->at, value, bytes);
	decoder->at += bytes;
	decoder->left--;
	return true;
}

static bool store_integer(struct json_decoder *decoder, const struct hb_json_number *number)
{
	size_t bytes = hb_dtype_bytes(decoder->dtype);
	bool is_signed = decoder->dtype >= HB_DTYPE_INT8 && decoder->dtype <= HB_DTYPE_INT64;
	uint64_t most = UINT64_MAX >> (64 - 8 * bytes + is_signed);
	uint64_t value = number->negative ? -number->magnitude : number->magnitude;
	if (number->negative)
		most = is_signed ? most + 1 : 0;
	/* Little-endian: the low bytes are the first. */
	return number->integer && number->magnitude <= most && store_bytes(decoder, &value, bytes);
}

static bool store_number(struct json_decoder *decoder, struct hb_json_scan *scan)
{
	struct hb_json_number number;
	if (hb_json_scan_kind(scan) != HB_JSON_NUMBER || !hb_json_scan_number(scan, &number))
		return false;
	float single = (float)number.real;
	return decoder->dtype == HB_DTYPE_FP32   ? isfinite(single) && store_bytes(decoder, &single, sizeof(single))
	       : decoder->dtype == HB_DTYPE_FP64 ? store_bytes(decoder, &number.real, sizeof(number.real))
						 : store_integer(decoder, &number);
}

static bool store_string(struct json_decoder *decoder, struct hb_json_scan *scan)
{
	size_t room = (size_t)(decoder->end - decoder->at), length = 0;
	if (room < 4 || decoder->left == 0)
		return false;
	scan->nul = true; /* an element may contain NUL bytes: its length is stored */
	bool read = hb_json_scan_text(scan, decoder->at + 4, room - 4, &length);
	scan->nul = false;
	if (!read || length > room - 4)
		return false;
	uint32_t prefix = (uint32_t)length;
	memcpy(decoder->at, &prefix, 4);
	decoder->at += 4 + length;
	decoder->left--;
	return true;
}

static bool store_element(struct json_decoder *decoder, struct hb_json_scan *scan)
{
	enum hb_json_kind kind;
	char truth;
	switch (decoder->dtype) {
	case HB_DTYPE_BOOL:
		kind = hb_json_scan_kind(scan);
		truth = kind == HB_JSON_TRUE;
		return (truth || kind == HB_JSON_FALSE) && hb_json_scan_skip(scan) && store_bytes(decoder, &truth, 1);
	case HB_DTYPE_BYTES:
		return hb_json_scan_kind(scan) == HB_JSON_TEXT && store_string(decoder, scan);
	case HB_DTYPE_FP16:
	case HB_DTYPE_BF16:
		return false;
	default:
		return store_number(decoder, scan);
	}
}

static bool store_values(struct json_decoder *decoder, struct hb_json_scan *scan, int depth)
{
	if (hb_json_scan_kind(scan) != HB_JSON_ARRAY)
		return depth <= HB_TENSOR_DIMS_MAX && store_element(decoder, scan);
	if (depth == 0)
		return false;
	hb_json_scan_enter(scan, '[');
	while (hb_json_scan_more(scan, ']'))
		if (!store_values(decoder, scan, depth - 1))
			return false;
	return !scan->wrong;
}

static enum hb_answer decode_data(struct json_reader *reader, struct hb_json_scan *scan, struct hb_tensor *tensor,
				  void **memory)
{
	const struct hb_http_body *body = reader->body;
	int64_t elements = hb_tensor_elements(tensor->dims, tensor->n_dims);
	/* Each element takes at least one byte of text. So a shape cannot make the server allocate much more than was sent. */
	if (elements < 0 || (uint64_t)elements > body->json_bytes)
		return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": the shape has more elements than \"data\"", tensor->name);
	size_t size = hb_dtype_bytes(tensor->dtype);
	size_t room = size ? (size_t)elements * size : (size_t)elements * 4 + body->json_bytes;
	struct json_decoder decoder = {.dtype = tensor->dtype, .left = (uint64_t)elements};
	enum hb_answer answer = hb_inference_allocate(reader->infer, room + 1, memory);
	if (answer != HB_ANSWER_OK)
		return answer;
	decoder.at = *memory;
	decoder.end = decoder.at + room;
	if (!store_values(&decoder, scan, HB_TENSOR_DIMS_MAX + 1) || decoder.left)
		return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": \"data\" is not %lld elements of %s%s", tensor->name,
					 (long long)elements, hb_dtype_name(tensor->dtype),
					 tensor->dtype == HB_DTYPE_FP16 || tensor->dtype == HB_DTYPE_BF16
						 ? ", a type that JSON cannot express: send binary data"
						 : "");
	tensor->data = *memory;
	tensor->bytes = (uint64_t)(decoder.at - (char *)*memory);
	return HB_ANSWER_OK;
}

/* ---- tensors ---- */

static enum hb_answer read_name(struct json_reader *reader, const char *what, char *out)
{
	size_t length = 0;
	if (hb_json_scan_kind(&reader->scan) != HB_JSON_TEXT ||
	    !hb_json_scan_text(&reader->scan, out, HB_TENSOR_NAME_MAX - 1, &length) || length == 0 ||
	    length >= HB_TENSOR_NAME_MAX)
		return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
					 "an %s needs a \"name\" of up to %d characters", what, HB_TENSOR_NAME_MAX - 1);
	out[length] = '\0';
	return HB_ANSWER_OK;
}

static enum hb_answer read_datatype(struct json_reader *reader, struct hb_tensor *tensor)
{
	char name[33] = "";
	size_t length = 0;
	if (hb_json_scan_kind(&reader->scan) != HB_JSON_TEXT)
		skip_value(reader);
	else if (hb_json_scan_text(&reader->scan, name, sizeof(name) - 1, &length))
		name[length < sizeof(name) ? length : sizeof(name) - 1] = '\0';
	tensor->dtype = hb_dtype_parse(name);
	return tensor->dtype < HB_DTYPES
		       ? HB_ANSWER_OK
		       : hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
					   "input \"%s\": \"datatype\" \"%.32s\" does not exist", tensor->name, name);
}

static enum hb_answer read_shape(struct json_reader *reader, struct hb_tensor *tensor)
{
	struct hb_json_number number;
	if (hb_json_scan_kind(&reader->scan) != HB_JSON_ARRAY)
		return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST, "input \"%s\": \"shape\" must be a list",
					 tensor->name);
	hb_json_scan_enter(&reader->scan, '[');
	while (hb_json_scan_more(&reader->scan, ']')) {
		if (tensor->n_dims == HB_TENSOR_DIMS_MAX)
			return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
						 "input \"%s\": \"shape\" can have at most %d numbers", tensor->name,
						 HB_TENSOR_DIMS_MAX);
		if (hb_json_scan_kind(&reader->scan) != HB_JSON_NUMBER ||
		    !hb_json_scan_number(&reader->scan, &number) || !number.integer || number.negative ||
		    number.magnitude > INT64_MAX)
			return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
						 "input \"%s\": \"shape\" must be a list of integers from 0",
						 tensor->name);
		tensor->dims[tensor->n_dims++] = (int64_t)number.magnitude;
	}
	return HB_ANSWER_OK;
}

/* Sets an input's data, which are in the JSON (and already decoded), behind the JSON, or in shared memory. */
static enum hb_answer set_data(struct json_reader *reader, struct hb_tensor *tensor,
			       const struct hb_tensor_parameters *given, bool in_json)
{
	struct hb_inference *infer = reader->infer;
	const struct hb_http_body *body = reader->body;
	size_t left = body->bytes - reader->binary_at;
	if (in_json + (given->data_bytes >= 0) + (given->part.region[0] != '\0') != 1)
		return hb_inference_fail(
			infer, HB_ANSWER_BAD_REQUEST,
			"input \"%s\" needs exactly one of \"data\", binary data and a shared-memory region",
			tensor->name);
	tensor->part = given->part;
	if (in_json)
		return HB_ANSWER_OK;
	if (given->part.region[0])
		return hb_shared_memory_read_input(infer, reader->memory, tensor, &reader->body->more[infer->n_inputs]);
	if ((uint64_t)given->data_bytes > left)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": binary_data_size is %lld, but only %zu bytes are left",
					 tensor->name, (long long)given->data_bytes, left);
	tensor->data = body->data + reader->binary_at;
	tensor->bytes = (uint64_t)given->data_bytes;
	reader->binary_at += tensor->bytes;
	return HB_ANSWER_OK;
}

enum { INPUT_NAME, INPUT_DATATYPE, INPUT_SHAPE, INPUT_PARAMETERS, INPUT_DATA };
#define DESCRIBED (1U << INPUT_NAME | 1U << INPUT_DATATYPE | 1U << INPUT_SHAPE)

/* Reads one member of an input. Data that precede the input's name, type or shape are skipped; *later is their place. */
static enum hb_answer read_input_member(struct json_reader *reader, struct hb_tensor *tensor,
					struct hb_tensor_parameters *given, uint32_t *seen, struct hb_json_scan *later)
{
	static const char *const names[] = {"name", "datatype", "shape", "parameters", "data", NULL};
	switch (read_key(reader, names, seen)) {
	case INPUT_NAME:
		return read_name(reader, "input", tensor->name);
	case INPUT_DATATYPE:
		return read_datatype(reader, tensor);
	case INPUT_SHAPE:
		return read_shape(reader, tensor);
	case INPUT_PARAMETERS:
		return read_parameters(reader, tensor->name, given);
	case INPUT_DATA:
		if (hb_json_scan_kind(&reader->scan) == HB_JSON_ARRAY && (*seen & DESCRIBED) == DESCRIBED)
			return decode_data(reader, &reader->scan, tensor, &reader->body->more[reader->infer->n_inputs]);
		*later = reader->scan;
		return skip_value(reader);
	default:
		return skip_value(reader);
	}
}

static enum hb_answer check_described(struct json_reader *reader, const struct hb_tensor *tensor, uint32_t seen)
{
	static const char *const names[] = {"name", "datatype", "shape"};
	for (int i = 0; i <= INPUT_SHAPE; i++)
		if (!(seen & 1U << i))
			return hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST, "input %u \"%s\" has no \"%s\"",
						 reader->infer->n_inputs + 1, tensor->name, names[i]);
	return HB_ANSWER_OK;
}

static enum hb_answer read_input(struct json_reader *reader)
{
	struct hb_inference *infer = reader->infer;
	struct hb_tensor *tensor = &infer->inputs[infer->n_inputs];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	struct hb_json_scan later = {.at = NULL};
	enum hb_answer answer = HB_ANSWER_OK;
	uint32_t seen = 0;
	*tensor = (struct hb_tensor){.n_dims = 0};
	hb_json_scan_enter(&reader->scan, '{');
	while (answer == HB_ANSWER_OK && hb_json_scan_more(&reader->scan, '}'))
		answer = read_input_member(reader, tensor, &given, &seen, &later);
	if (reader->scan.wrong || answer != HB_ANSWER_OK)
		return answer;
	answer = check_described(reader, tensor, seen);
	if (answer == HB_ANSWER_OK && later.at)
		answer = decode_data(reader, &later, tensor, &reader->body->more[infer->n_inputs]);
	if (answer == HB_ANSWER_OK)
		answer = set_data(reader, tensor, &given, (seen & 1U << INPUT_DATA) != 0);
	infer->n_inputs++;
	return answer;
}

static enum hb_answer read_requested_output(struct json_reader *reader)
{
	static const char *const names[] = {"name", "parameters", NULL};
	struct hb_inference *infer = reader->infer;
	struct hb_output_request *request = &infer->requested[infer->n_requested];
	struct hb_tensor_parameters given = {.data_bytes = -1};
	enum hb_answer answer = HB_ANSWER_OK;
	uint32_t seen = 0;
	*request = (struct hb_output_request){.binary = false};
	hb_json_scan_enter(&reader->scan, '{');
	while (answer == HB_ANSWER_OK && hb_json_scan_more(&reader->scan, '}')) {
		int which = read_key(reader, names, &seen);
		answer = which == 0   ? read_name(reader, "output", request->name)
			 : which == 1 ? read_parameters(reader, request->name, &given)
				      : skip_value(reader);
	}
	if (answer == HB_ANSWER_OK && !reader->scan.wrong && !request->name[0])
		answer = fail_request(infer, "an output needs a \"name\"");
	request->binary = given.binary;
	request->part = given.part;
	reader->binary_given[infer->n_requested++] = given.binary_given;
	return answer;
}

static enum hb_answer read_list(struct json_reader *reader, enum hb_answer (*read)(struct json_reader *reader))
{
	enum hb_answer answer = HB_ANSWER_OK;
	int n = 0;
	enum hb_json_kind kind = hb_json_scan_kind(&reader->scan);
	if (kind != HB_JSON_ARRAY && kind != HB_JSON_NONE)
		return fail_request(reader->infer, "\"inputs\" and \"outputs\" must be lists");
	hb_json_scan_enter(&reader->scan, '[');
	while (answer == HB_ANSWER_OK && hb_json_scan_more(&reader->scan, ']'))
		answer = n++ < HB_TENSORS_MAX
				 ? read(reader)
				 : hb_inference_fail(reader->infer, HB_ANSWER_BAD_REQUEST,
						     "\"inputs\" and \"outputs\" can have at most %d tensors",
						     HB_TENSORS_MAX);
	return answer;
}

/* ---- the request ---- */

static enum hb_answer read_id(struct json_reader *reader)
{
	struct hb_inference *infer = reader->infer;
	size_t length = 0;
	if (hb_json_scan_kind(&reader->scan) != HB_JSON_TEXT ||
	    (hb_json_scan_text(&reader->scan, infer->id, sizeof(infer->id) - 1, &length) &&
	     length >= sizeof(infer->id)))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "\"id\" must be text of up to %d bytes",
					 HB_REQUEST_ID_MAX - 1);
	infer->id[length < sizeof(infer->id) ? length : 0] = '\0';
	return HB_ANSWER_OK;
}

enum { ROOT_ID, ROOT_PARAMETERS, ROOT_INPUTS, ROOT_OUTPUTS };

static enum hb_answer read_root(struct json_reader *reader)
{
	static const char *const names[] = {"id", "parameters", "inputs", "outputs", NULL};
	struct hb_inference *infer = reader->infer;
	enum hb_answer answer = HB_ANSWER_OK;
	uint32_t seen = 0;
	hb_json_scan_enter(&reader->scan, '{');
	while (answer == HB_ANSWER_OK && hb_json_scan_more(&reader->scan, '}')) {
		int which = read_key(reader, names, &seen);
		answer = which == ROOT_ID           ? read_id(reader)
			 : which == ROOT_PARAMETERS ? read_parameters(reader, NULL, NULL)
			 : which == ROOT_INPUTS     ? read_list(reader, read_input)
			 : which == ROOT_OUTPUTS    ? read_list(reader, read_requested_output)
						    : skip_value(reader);
	}
	if (answer != HB_ANSWER_OK || !hb_json_scan_end(&reader->scan))
		return answer;
	if (!(seen & 1U << ROOT_INPUTS))
		return fail_request(infer, "the request has no \"inputs\"");
	for (uint32_t i = 0; i < infer->n_requested; i++)
		if (!reader->binary_given[i])
			infer->requested[i].binary = infer->binary_outputs;
	if (reader->binary_at != reader->body->bytes)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "%zu bytes of binary data belong to no input",
					 reader->body->bytes - reader->binary_at);
	return HB_ANSWER_OK;
}

enum hb_answer hb_kserve_json_read(struct hb_inference *infer, struct hb_http_body *body,
				   struct hb_shared_memory *memory)
{
	struct json_reader reader = {.infer = infer, .body = body, .memory = memory, .binary_at = body->json_bytes};
	hb_json_scan_init(&reader.scan, body->data, body->json_bytes);
	enum hb_json_kind kind = hb_json_scan_kind(&reader.scan);
	if (kind != HB_JSON_OBJECT && kind != HB_JSON_NONE)
		return fail_request(infer, "the request must be a JSON object");
	enum hb_answer answer = read_root(&reader);
	if (reader.scan.wrong) /* report an error of syntax rather than the errors that it caused */
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "request:%d: %s",
					 hb_json_scan_line(&reader.scan), reader.scan.wrong);
	return answer;
}
