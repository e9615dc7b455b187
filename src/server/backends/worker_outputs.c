/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a worker's outputs to requests; see worker_outputs.h. */
#include "server/backends/worker_outputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool hb_worker_output_fits(const struct hb_model_config *config, uint32_t index, uint32_t items, uint64_t room,
			   const struct hb_worker_tensor *out)
{
	const struct hb_tensor_spec *spec = &config->outputs[index];
	uint32_t batched = config->max_batch > 0;
	enum hb_dtype dtype = (enum hb_dtype)spec->dtype;
	if (out->offset > room || out->bytes > room - out->offset || out->n_dims != spec->n_dims + batched ||
	    out->n_dims > HB_TENSOR_DIMS_MAX)
		return false;
	int64_t elements = hb_tensor_elements(out->dims, out->n_dims);
	for (uint32_t i = 0; i < spec->n_dims; i++)
		if (spec->dims[i] >= 0 && out->dims[i + batched] != spec->dims[i])
			return false;
	return elements >= 0 && (dtype == HB_DTYPE_BYTES || hb_tensor_size_matches(dtype, elements, out->bytes)) &&
	       (!batched || out->dims[0] == (int64_t)items);
}

static void copy_output(struct hb_inference *infer, const struct hb_tensor_spec *spec,
			const struct hb_worker_tensor *out, uint64_t bytes, char *at, const char *from, bool batched)
{
	struct hb_tensor *tensor = &infer->outputs[infer->n_outputs++];
	*tensor = (struct hb_tensor){
		.dtype = (enum hb_dtype)spec->dtype, .n_dims = out->n_dims, .data = at, .bytes = bytes};
	memcpy(tensor->name, spec->name, sizeof(tensor->name));
	memcpy(tensor->dims, out->dims, sizeof(tensor->dims));
	if (batched)
		tensor->dims[0] = infer->items;
	memcpy(at, from, bytes);
}

/*
 * Returns the bytes of the first `strings` elements of a BYTES tensor (4 bytes of length, then the content); at most
 * `bytes`.
 */
static uint64_t measure_strings(const char *data, uint64_t bytes, uint64_t strings)
{
	uint64_t at = 0;
	uint32_t length;
	for (; strings && bytes - at >= sizeof(length); strings--) {
		memcpy(&length, data + at, sizeof(length));
		at += sizeof(length);
		at += length < bytes - at ? length : bytes - at;
	}
	return at;
}

/* Returns the bytes of the first `items` batch items of an output that has `of_items` items and begins at `data`. */
static uint64_t measure_items(const struct hb_tensor_spec *spec, const struct hb_worker_tensor *out, const char *data,
			      uint64_t bytes, uint32_t items, uint32_t of_items)
{
	if (of_items == items)
		return bytes;
	if (hb_dtype_bytes((enum hb_dtype)spec->dtype))
		return out->bytes / of_items * items;
	return measure_strings(data, bytes, (uint64_t)hb_tensor_elements(out->dims, out->n_dims) / of_items * items);
}

/*
 * Returns whether a BYTES output has as many elements as its shape. Checked in the request's copy, which the worker
 * cannot change.
 */
static bool has_all_strings(const struct hb_tensor *tensor)
{
	return hb_tensor_has_strings(tensor, hb_tensor_elements(tensor->dims, tensor->n_dims));
}

int hb_worker_outputs_copy(const struct hb_model_config *config, uint32_t items, const struct hb_worker_tensor *outputs,
			   const char *data, uint32_t dropped, struct hb_inference *infer, uint32_t first,
			   uint32_t *wrong)
{
	_Static_assert(HB_SCHEDULER_BATCH_MAX <= 32, "dropped has a bit for each item");
	uint64_t mine = ((UINT64_C(1) << infer->items) - 1) << first;
	if (dropped & mine)
		return -ENOSPC;
	uint64_t all = 0, begin[HB_TENSORS_MAX], share[HB_TENSORS_MAX];
	for (uint32_t i = 0; i < config->n_outputs; i++) {
		const struct hb_worker_tensor *out = &outputs[i];
		const char *from = data + out->offset;
		begin[i] = measure_items(&config->outputs[i], out, from, out->bytes, first, items);
		share[i] = measure_items(&config->outputs[i], out, from + begin[i], out->bytes - begin[i], infer->items,
					 items);
		all += hb_worker_aligned(share[i]);
	}
	if (!hb_inference_reserve_outputs(infer, all, config->n_outputs))
		return -ENOBUFS;
	char *at = infer->output_data = malloc(all + 1);
	if (!at)
		return -ENOMEM;
	infer->n_outputs = 0;
	for (uint32_t i = 0; i < config->n_outputs; i++) {
		copy_output(infer, &config->outputs[i], &outputs[i], share[i], at, data + outputs[i].offset + begin[i],
			    config->max_batch > 0);
		at += hb_worker_aligned(share[i]);
		*wrong = i;
		if (!hb_dtype_bytes((enum hb_dtype)config->outputs[i].dtype) && !has_all_strings(&infer->outputs[i]))
			return -EINVAL;
	}
	return 0;
}

void hb_worker_outputs_refuse(const struct hb_model_config *config, int result, uint32_t wrong,
			      struct hb_inference *infer)
{
	if (result == -ENOBUFS)
		hb_inference_fail_memory_full(infer);
	else if (result == -ENOMEM)
		hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
	else if (result == -ENOSPC)
		hb_inference_fail(infer, HB_ANSWER_BROKEN,
				  "model %s: its outputs are too large: raise \"room\" in model.yaml", config->name);
	else
		hb_inference_fail(
			infer, HB_ANSWER_BROKEN,
			"model %s: output \"%s\" of its worker does not have the strings that its shape needs",
			config->name, config->outputs[wrong].name);
}
