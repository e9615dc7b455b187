/* SPDX-License-Identifier: Apache-2.0 */
/* See demand_batch.h. */
#include "server/models/demand_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZEROS_MAX (UINT64_C(1) << 30)
#define LENGTH_BYTES 4 /* a BYTES element of zeros is the empty string: only its length */
#define SLOT 0

/* Describes one input of a batch of zeros; a dimension of any size is 1. */
static void describe_input(const struct hb_model_config *model, const struct hb_tensor_spec *spec, uint32_t items,
			   struct hb_tensor *out)
{
	uint32_t element = hb_dtype_bytes((enum hb_dtype)spec->dtype);
	*out = (struct hb_tensor){.dtype = (enum hb_dtype)spec->dtype, .bytes = element ? element : LENGTH_BYTES};
	snprintf(out->name, sizeof(out->name), "%s", spec->name);
	if (model->max_batch) {
		out->dims[out->n_dims++] = items;
		out->bytes *= items;
	}
	for (uint32_t i = 0; i < spec->n_dims; i++) {
		int64_t size = spec->dims[i] > 0 ? spec->dims[i] : 1;
		out->dims[out->n_dims++] = size;
		out->bytes *= (uint64_t)size; /* at most 2^30 elements (model_config.c), 32 items and 8 bytes */
	}
}

int hb_demand_batch_init(struct hb_demand_batch *batch, const struct hb_model_config *model, struct hb_error *error)
{
	struct hb_tensor input;
	*batch = (struct hb_demand_batch){.zeros = NULL};
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		describe_input(model, &model->inputs[i], model->max_batch ? (uint32_t)model->max_batch : 1, &input);
		batch->zero_bytes = input.bytes > batch->zero_bytes ? input.bytes : batch->zero_bytes;
	}
	if (batch->zero_bytes > ZEROS_MAX)
		return hb_error_set(error, -EFBIG, "the inputs of its largest batch are too large");
	batch->zeros = calloc(1, batch->zero_bytes);
	return batch->zeros ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
}

void hb_demand_batch_fini(struct hb_demand_batch *batch)
{
	hb_inference_free(batch->infer);
	free(batch->zeros);
	*batch = (struct hb_demand_batch){.zeros = NULL};
}

int hb_demand_batch_start(struct hb_demand_batch *batch, const struct hb_model_config *model,
			  const struct hb_backend *backend, uint32_t items, int64_t now_ns, struct hb_error *error)
{
	struct hb_inference *infer = hb_inference_new();
	if (!infer)
		return hb_error_set(error, -ENOMEM, "out of memory");
	infer->priority = HB_SCHEDULER_LOW;
	infer->items = items;
	infer->n_inputs = model->n_inputs;
	for (uint32_t i = 0; i < model->n_inputs; i++) {
		describe_input(model, &model->inputs[i], items, &infer->inputs[i]);
		infer->inputs[i].data = batch->zeros;
	}
	const struct hb_scheduler_batch started = {.items = items,
						   .n_requests = 1,
						   .priority = HB_SCHEDULER_LOW,
						   .begun_ns = now_ns,
						   .deadline_ns = INT64_MAX,
						   .cookies = {(uintptr_t)infer},
						   .used = true};
	batch->infer = infer;
	batch->begun_ns = now_ns;
	batch->run_ns = batch->out_ns = 0;
	int result = backend->ops->start(backend->self, now_ns, SLOT, 0, &started);
	if (result < 0) {
		hb_error_set(error, result, "%s", infer->reason[0] ? infer->reason : strerror(-result));
		hb_inference_free(infer);
		batch->infer = NULL;
	}
	return result;
}

static void end_batch(struct hb_demand_batch *batch, int64_t end_ns, bool complete,
		      struct hb_demand_batch_result *result)
{
	int64_t run_ns = batch->run_ns ? batch->run_ns : batch->begun_ns,
		out_ns = batch->out_ns ? batch->out_ns : end_ns;
	*result = (struct hb_demand_batch_result){.complete = complete && batch->infer->answer == HB_ANSWER_OK};
	result->copies[HB_STAGE_IN] = batch->run_ns != 0;
	result->copies[HB_STAGE_RUN] = true;
	result->copies[HB_STAGE_OUT] = batch->out_ns != 0;
	result->stage_ns[HB_STAGE_IN] = (double)(run_ns - batch->begun_ns);
	result->stage_ns[HB_STAGE_RUN] = (double)(out_ns - run_ns);
	result->stage_ns[HB_STAGE_OUT] = (double)(end_ns - out_ns);
	if (!result->complete)
		snprintf(result->why, sizeof(result->why), "%s",
			 batch->infer->reason[0] ? batch->infer->reason : "its worker failed");
	hb_inference_free(batch->infer);
	batch->infer = NULL;
}

bool hb_demand_batch_poll(struct hb_demand_batch *batch, const struct hb_backend *backend, int64_t now_ns,
			  struct hb_demand_batch_result *result)
{
	struct hb_scheduler_provider_event event;
	bool ended = false;
	while (backend->ops->poll(backend->self, now_ns, &event)) {
		if (!batch->infer || event.slot != SLOT)
			continue;
		if (event.stage == HB_STAGE_RUN)
			batch->run_ns = event.at_ns;
		else if (event.stage == HB_STAGE_OUT)
			batch->out_ns = event.at_ns;
		else if (event.stage == HB_STAGES) {
			end_batch(batch, event.at_ns, event.complete, result);
			ended = true;
		}
	}
	return ended;
}

void hb_demand_batch_cancel(struct hb_demand_batch *batch, const struct hb_backend *backend, int64_t now_ns)
{
	if (batch->infer && backend->ops->cancel)
		backend->ops->cancel(backend->self, now_ns, SLOT);
}
