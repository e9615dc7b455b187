/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The echo back end, without GPU and process. Each batch ends at once or after a
 * fixed delay. Output i has the data of input i if their sizes are equal, else
 * zeros. For measurements of the server itself and for tests of clients.
 */
#include "server/backends/backend.h"
#include "server/models/inference_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct echo_flight {
	int64_t end_ns;
	bool used, cancelled;
};

struct echo_backend {
	struct hb_model_config config;
	uint32_t n_flights;
	struct echo_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
};

static uint32_t count_models(void *self)
{
	return 1;
}

static int describe_model(void *self, uint32_t model, struct hb_scheduler_model *out)
{
	const struct hb_model_config *config = &((struct echo_backend *)self)->config;
	out->in_bytes = out->out_bytes = 0;
	out->run_guess_ns = (double)(config->delay_ns ? config->delay_ns : 1000);
	return 0;
}

static bool has_same_shape(const struct hb_tensor *input, const struct hb_tensor_spec *output, uint32_t batched)
{
	bool fit = input->dtype == (enum hb_dtype)output->dtype && input->n_dims == output->n_dims + batched;
	for (uint32_t i = 0; fit && i < output->n_dims; i++)
		fit = output->dims[i] < 0 || output->dims[i] == input->dims[i + batched];
	return fit;
}

/*
 * Makes the outputs of a request. An input of the same type and a fitting shape becomes the output without a copy; if only
 * the number of bytes is equal they are copied; otherwise the output is zeros.
 */
static bool make_outputs(struct hb_inference *infer, const struct hb_model_config *config)
{
	if (!hb_inference_make_outputs(infer, config))
		return false;
	for (uint32_t i = 0; i < infer->n_outputs && i < infer->n_inputs; i++)
		if (has_same_shape(&infer->inputs[i], &config->outputs[i], config->max_batch > 0)) {
			infer->outputs[i].data =
				infer->inputs[i].data; /* the request owns its inputs until it is freed */
			infer->outputs[i].bytes = infer->inputs[i].bytes;
			memcpy(infer->outputs[i].dims, infer->inputs[i].dims, sizeof(infer->outputs[i].dims));
		} else if (infer->outputs[i].bytes == infer->inputs[i].bytes) {
			memcpy((void *)infer->outputs[i].data, infer->inputs[i].data, infer->inputs[i].bytes);
		}
	return true;
}

static int start_batch(void *self, int64_t now_ns, uint32_t slot, uint32_t model,
		       const struct hb_scheduler_batch *batch)
{
	struct echo_backend *backend = self;
	for (uint32_t i = 0; i < batch->n_requests; i++)
		if (!make_outputs(hb_backend_inference(batch->cookies[i]), &backend->config))
			return -ENOMEM;
	backend->flights[slot] = (struct echo_flight){.end_ns = now_ns + backend->config.delay_ns, .used = true};
	backend->n_flights++;
	return 0;
}

static void cancel_batch(void *self, int64_t now_ns, uint32_t slot)
{
	struct echo_backend *backend = self;
	struct echo_flight *flight = &backend->flights[slot];
	if (!flight->used || flight->end_ns <= now_ns)
		return;
	flight->end_ns = now_ns;
	flight->cancelled = true;
}

static uint32_t find_first_to_end(const struct echo_backend *backend)
{
	uint32_t first = HB_SCHEDULER_FLIGHTS_MAX;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX && backend->n_flights; i++)
		if (backend->flights[i].used &&
		    (first == HB_SCHEDULER_FLIGHTS_MAX || backend->flights[i].end_ns < backend->flights[first].end_ns))
			first = i;
	return first;
}

static bool poll_events(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct echo_backend *backend = self;
	uint32_t slot = find_first_to_end(backend);
	if (slot == HB_SCHEDULER_FLIGHTS_MAX || backend->flights[slot].end_ns > now_ns)
		return false;
	*event = (struct hb_scheduler_provider_event){.at_ns = backend->flights[slot].end_ns,
						      .slot = slot,
						      .stage = HB_STAGES,
						      .complete = !backend->flights[slot].cancelled};
	backend->flights[slot].used = false;
	backend->n_flights--;
	return true;
}

static int64_t next_poll_ns(void *self)
{
	const struct echo_backend *backend = self;
	uint32_t slot = find_first_to_end(backend);
	return slot == HB_SCHEDULER_FLIGHTS_MAX ? INT64_MAX : backend->flights[slot].end_ns;
}

static const struct hb_scheduler_provider_ops ops = {
	.name = "echo",
	.models = count_models,
	.model = describe_model,
	.start = start_batch,
	.cancel = cancel_batch,
	.poll = poll_events,
	.next_ns = next_poll_ns,
	.close = free,
};

static int open_echo(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		     struct hb_error *error)
{
	struct echo_backend *backend = calloc(1, sizeof(*backend));
	if (!backend)
		return hb_error_set(error, -ENOMEM, "model %s: out of memory", config->name);
	backend->config = *config;
	*out = (struct hb_backend){.ops = &ops, .self = backend};
	return 0;
}

const struct hb_platform hb_backend_echo = {.name = "echo", .open = open_echo};
