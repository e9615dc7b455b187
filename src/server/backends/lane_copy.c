/* SPDX-License-Identifier: Apache-2.0 */
/* See lane_copy.h. */
#include "server/backends/lane_copy.h"

#include "server/backends/backend.h"
#include "server/backends/worker_outputs.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

void hb_lane_copy_init(struct hb_lane_copy *copy, const struct hb_model_config *config,
		       const struct hb_worker_memory *memory, uint32_t lane, int doorbell)
{
	copy->config = config;
	copy->memory = memory;
	copy->lane = hb_worker_memory_lane(memory, lane);
	copy->doorbell = doorbell;
}

/* ---- places ---- */

static const struct hb_tensor *find_input(const struct hb_inference *infer, const char *name)
{
	for (uint32_t i = 0; i < infer->n_inputs; i++)
		if (strcmp(infer->inputs[i].name, name) == 0)
			return &infer->inputs[i];
	return NULL;
}

/* Sets the place of one input of all requests of the batch, one behind the other. False: not enough room. */
static bool place_input(struct hb_lane_copy *copy, const struct hb_scheduler_batch *batch, uint32_t input,
			uint64_t *offset)
{
	struct hb_worker_tensor out = {.offset = *offset};
	uint64_t room = copy->memory->out_offset - copy->memory->in_offset;
	for (uint32_t r = 0; r < batch->n_requests; r++) {
		const struct hb_tensor *tensor = find_input(hb_backend_inference(batch->cookies[r]),
							    copy->config->inputs[input].name);
		if (!tensor)
			continue;
		if (tensor->bytes > room - out.offset - out.bytes)
			return false;
		out.bytes += tensor->bytes;
		out.n_dims = tensor->n_dims;
		memcpy(out.dims, tensor->dims, sizeof(out.dims));
	}
	if (copy->config->max_batch)
		out.dims[0] = batch->items;
	copy->tensors[input] = copy->lane->inputs[input] = out;
	*offset = out.offset + hb_worker_aligned(out.bytes);
	return *offset <= room + 63;
}

uint32_t hb_lane_copy_place_inputs(struct hb_lane_copy *copy, const struct hb_scheduler_batch *batch)
{
	uint64_t offset = 0;
	uint32_t input = 0;
	copy->outputs = false;
	while (input < copy->config->n_inputs && place_input(copy, batch, input, &offset))
		input++;
	return input;
}

uint32_t hb_lane_copy_place_outputs(struct hb_lane_copy *copy, uint32_t items)
{
	uint32_t output = 0;
	copy->outputs = true;
	copy->dropped = copy->lane->dropped;
	memcpy(copy->tensors, copy->lane->outputs, sizeof(copy->tensors));
	while (output < copy->config->n_outputs &&
	       hb_worker_output_fits(copy->config, output, items, copy->memory->out_bytes, &copy->tensors[output]))
		output++;
	return output;
}

/* ---- copies ---- */

static void copy_inputs(const struct hb_lane_copy *copy)
{
	const struct hb_scheduler_batch *batch = copy->batch;
	for (uint32_t i = 0; i < copy->config->n_inputs; i++) {
		char *at = (char *)copy->lane + copy->memory->in_offset + copy->tensors[i].offset;
		for (uint32_t r = 0; r < batch->n_requests; r++) {
			const struct hb_tensor *tensor = find_input(hb_backend_inference(batch->cookies[r]),
								    copy->config->inputs[i].name);
			if (tensor)
				at = (char *)memcpy(at, tensor->data, tensor->bytes) + tensor->bytes;
		}
	}
}

static void copy_outputs(struct hb_lane_copy *copy)
{
	const struct hb_scheduler_batch *batch = copy->batch;
	const char *data = (const char *)copy->lane + copy->memory->out_offset;
	uint32_t first = 0;
	for (uint32_t r = 0; r < batch->n_requests; r++) {
		struct hb_inference *infer = hb_backend_inference(batch->cookies[r]);
		copy->results[r] = hb_worker_outputs_copy(copy->config, batch->items, copy->tensors, data,
							  copy->dropped, infer, first, &copy->wrong[r]);
		first += infer->items;
	}
}

static void copy_all(void *copy_)
{
	struct hb_lane_copy *copy = copy_;
	if (copy->outputs)
		copy_outputs(copy);
	else
		copy_inputs(copy);
	atomic_store(&copy->done, true);
}

static void copy_on_thread(void *copy_)
{
	struct hb_lane_copy *copy = copy_;
	int doorbell = copy->doorbell;
	copy_all(copy);
	while (eventfd_write(doorbell, 1) != 0 && errno == EINTR)
		;
}

void hb_lane_copy_begin(struct hb_lane_copy *copy, const struct hb_scheduler_batch *batch, struct hb_job_thread *thread)
{
	uint32_t n = copy->outputs ? copy->config->n_outputs : copy->config->n_inputs;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < n; i++)
		bytes += copy->tensors[i].bytes;
	copy->batch = batch;
	atomic_store(&copy->done, false);
	copy->job = (struct hb_job){.run = copy_on_thread, .owner = copy};
	if (thread && bytes > HB_LANE_COPY_AT_ONCE_BYTES)
		hb_job_thread_submit(thread, &copy->job);
	else
		copy_all(copy);
}

void hb_lane_copy_note_failures(const struct hb_lane_copy *copy)
{
	for (uint32_t r = 0; r < copy->batch->n_requests; r++) {
		struct hb_inference *infer = hb_backend_inference(copy->batch->cookies[r]);
		if (copy->results[r] < 0 && !infer->answered)
			hb_worker_outputs_refuse(copy->config, copy->results[r], copy->wrong[r], infer);
	}
}
