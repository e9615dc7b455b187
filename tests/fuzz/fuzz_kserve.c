/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as an inference request: two bytes with the length of the JSON,
 * then JSON, then binary data. The inputs of an accepted request must be readable,
 * and an answer to it can be written.
 */
#include "server/http/kserve_json.h"
#include "server/models/inference_check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

/* One model with a tensor of each name that the corpus uses. */
static const struct hb_model_config model = {
	.name = "m",
	.max_batch = 4,
	.n_inputs = 1,
	.n_outputs = 1,
	.inputs = {{.name = "x", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {2}}},
	.outputs = {{.name = "y", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {2}}},
};

/* Reads every byte of every input, so that a sanitizer finds one that does not exist. */
static void read_inputs(const struct hb_inference *infer)
{
	volatile unsigned sum = 0;
	for (uint32_t i = 0; i < infer->n_inputs; i++)
		for (uint64_t k = 0; k < infer->inputs[i].bytes; k++)
			sum = sum + ((const unsigned char *)infer->inputs[i].data)[k];
}

static void write_answer(struct hb_inference *infer)
{
	char *out = NULL;
	size_t json_bytes = 0;
	require(infer->items >= 1 && infer->items <= 4 && infer->inputs[0].bytes == 8 * (uint64_t)infer->items);
	require(hb_inference_make_outputs(infer, &model));
	size_t bytes = hb_kserve_json_write(infer, &model, &out, &json_bytes);
	require(bytes > 0 && json_bytes <= bytes);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hb_shared_memory *memory;
	if (size < 2)
		return 0;
	if (!memory)
		memory = hb_shared_memory_new();
	struct hb_inference *infer = hb_inference_new();
	struct hb_http_body *body = hb_http_body_new();
	require(infer && body);
	body->bytes = size - 2;
	body->json_bytes = (size_t)(data[0] | data[1] << 8);
	if (body->json_bytes > body->bytes)
		body->json_bytes = body->bytes;
	body->data = malloc(body->bytes ? body->bytes : 1);
	require(body->data != NULL);
	memcpy(body->data, data + 2, body->bytes);
	infer->source = body;
	infer->free_source = hb_http_body_free;
	if (hb_kserve_json_read(infer, body, memory) == HB_ANSWER_OK) {
		read_inputs(infer);
		if (hb_inference_check(infer, &model) == HB_ANSWER_OK)
			write_answer(infer);
	}
	require(infer->answer == HB_ANSWER_OK || infer->reason[0] != '\0');
	hb_inference_free(infer);
	return 0;
}
