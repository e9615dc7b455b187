/* SPDX-License-Identifier: Apache-2.0 */
/* See inference_check.h. */
#include "server/models/inference_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNED(bytes) (((bytes) + 63) & ~UINT64_C(63)) /* each output begins on a cache line */

static const struct hb_tensor_spec *find_spec(const struct hb_tensor_spec *specs, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(specs[i].name, name) == 0)
			return &specs[i];
	return NULL;
}

static bool does_shape_fit(const struct hb_tensor *tensor, const struct hb_tensor_spec *spec, uint32_t batched)
{
	if (tensor->n_dims != spec->n_dims + batched)
		return false;
	for (uint32_t i = 0; i < spec->n_dims; i++)
		if (spec->dims[i] >= 0 && tensor->dims[i + batched] != spec->dims[i])
			return false;
	return true;
}

static void print_shape(char *text, size_t size, const int64_t *dims, uint32_t n, bool batched)
{
	size_t at = (size_t)snprintf(text, size, batched ? "[-1" : "[");
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%lld", i || batched ? "," : "", (long long)dims[i]);
	if (at < size)
		snprintf(text + at, size - at, "]");
}

static enum hb_answer check_input(struct hb_inference *infer, struct hb_tensor *tensor,
				  const struct hb_model_config *model)
{
	const struct hb_tensor_spec *spec = find_spec(model->inputs, model->n_inputs, tensor->name);
	uint32_t batched = model->max_batch > 0;
	char wanted[160], given[160];
	if (!spec)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "model %s has no input \"%s\"", model->name,
					 tensor->name);
	if (tensor->dtype != (enum hb_dtype)spec->dtype)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\" has data type %s, but the model needs %s", tensor->name,
					 hb_dtype_name(tensor->dtype), hb_dtype_name((enum hb_dtype)spec->dtype));
	if (!does_shape_fit(tensor, spec, batched)) {
		print_shape(given, sizeof(given), tensor->dims, tensor->n_dims, false);
		print_shape(wanted, sizeof(wanted), spec->dims, spec->n_dims, batched);
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\" has shape %s, but the model needs %s", tensor->name, given,
					 wanted);
	}
	int64_t elements = hb_tensor_elements(tensor->dims, tensor->n_dims);
	if (!hb_tensor_size_matches(tensor->dtype, elements, tensor->bytes) &&
	    (tensor->dtype != HB_DTYPE_BYTES || elements < 0 || !hb_tensor_has_strings(tensor, elements)))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": %llu bytes are not %lld elements of %s", tensor->name,
					 (unsigned long long)tensor->bytes, (long long)elements,
					 hb_dtype_name(tensor->dtype));
	int64_t items = batched ? tensor->dims[0] : 1;
	if (items < 1 || (batched && items > model->max_batch))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": the batch size is %lld, but the model allows 1 to %lld",
					 tensor->name, (long long)items, (long long)model->max_batch);
	if (infer->items && infer->items != (uint32_t)items)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 "input \"%s\": the batch size is %lld, but another input has %u", tensor->name,
					 (long long)items, infer->items);
	infer->items = (uint32_t)items;
	infer->open_bytes += hb_tensor_spec_is_open(spec) ? tensor->bytes : 0;
	return HB_ANSWER_OK;
}

static enum hb_answer check_names(struct hb_inference *infer, const struct hb_model_config *model)
{
	for (uint32_t i = 0; i < infer->n_inputs; i++)
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(infer->inputs[i].name, infer->inputs[k].name) == 0)
				return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "input \"%s\" is given twice",
							 infer->inputs[i].name);
	if (infer->n_inputs != model->n_inputs)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "the request has %u inputs, but model %s has %u",
					 infer->n_inputs, model->name, model->n_inputs);
	for (uint32_t i = 0; i < infer->n_requested; i++)
		if (!find_spec(model->outputs, model->n_outputs, infer->requested[i].name))
			return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "model %s has no output \"%s\"",
						 model->name, infer->requested[i].name);
	return HB_ANSWER_OK;
}

/* A caller that may use low priority only gets it without asking, also for a model of high priority. */
static enum hb_answer check_priority(struct hb_inference *infer)
{
	if (infer->low_only && infer->priority == HB_SCHEDULER_HIGH)
		return hb_inference_fail(infer, HB_ANSWER_FORBIDDEN,
					 "the token of this request allows low priority only");
	if (infer->low_only)
		infer->priority = HB_SCHEDULER_LOW;
	return HB_ANSWER_OK;
}

static void set_output_shape(struct hb_tensor *tensor, const struct hb_tensor_spec *spec, uint32_t batched,
			     uint32_t items)
{
	*tensor = (struct hb_tensor){.dtype = (enum hb_dtype)spec->dtype, .n_dims = spec->n_dims + batched};
	memcpy(tensor->name, spec->name, sizeof(tensor->name));
	tensor->dims[0] = items;
	for (uint32_t i = 0; i < spec->n_dims && i + batched < HB_TENSOR_DIMS_MAX; i++)
		tensor->dims[i + batched] = spec->dims[i] < 0 ? 1 : spec->dims[i];
	uint64_t elements = (uint64_t)hb_tensor_elements(tensor->dims, tensor->n_dims);
	/* An element of BYTES that is an empty string: only its length, 4 bytes. */
	tensor->bytes = elements * (hb_dtype_bytes(tensor->dtype) ? hb_dtype_bytes(tensor->dtype) : 4);
}

/* Sets type and shape of all outputs; a dimension of any size is 1. Returns the bytes of their data together. */
static uint64_t set_output_shapes(struct hb_inference *infer, const struct hb_model_config *model)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < model->n_outputs; i++) {
		set_output_shape(&infer->outputs[i], &model->outputs[i], model->max_batch > 0, infer->items);
		bytes += ALIGNED(infer->outputs[i].bytes);
	}
	return bytes;
}

enum hb_answer hb_inference_check(struct hb_inference *infer, const struct hb_model_config *model)
{
	if (check_priority(infer) != HB_ANSWER_OK)
		return infer->answer;
	infer->items = 0;
	infer->open_bytes = 0;
	for (uint32_t i = 0; i < infer->n_inputs; i++)
		if (check_input(infer, &infer->inputs[i], model) != HB_ANSWER_OK)
			return infer->answer;
	if (check_names(infer, model) != HB_ANSWER_OK)
		return infer->answer;
	uint64_t bytes = set_output_shapes(infer, model);
	if (hb_inference_reserve_outputs(infer, bytes, model->n_outputs))
		return HB_ANSWER_OK;
	if (hb_inference_answer_bytes(bytes, model->n_outputs) <= infer->charge.budget->limit_bytes)
		return hb_inference_fail_memory_full(infer);
	return hb_inference_fail(infer, HB_ANSWER_TOO_LARGE,
				 "the outputs of this request have %" PRIu64
				 " bytes, more than the server's memory for "
				 "all requests (--memory)",
				 bytes);
}

bool hb_inference_make_outputs(struct hb_inference *infer, const struct hb_model_config *model)
{
	infer->output_data = calloc(1, set_output_shapes(infer, model) + 1);
	if (!infer->output_data)
		return false;
	char *at = infer->output_data;
	for (uint32_t i = 0; i < model->n_outputs; i++) {
		infer->outputs[i].data = at;
		at += ALIGNED(infer->outputs[i].bytes);
	}
	infer->n_outputs = model->n_outputs;
	return true;
}
