/* SPDX-License-Identifier: Apache-2.0 */
/* See inference.h. */
#include "server/kserve/inference.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes of an answer beside the data of its outputs: of the answer, and of name, type and shape of each output. */
#define ANSWER_BYTES 1024
#define ANSWER_OUTPUT_BYTES 1024
#define LARGE_OUTPUT_BYTES (256 * 1024) /* takes 0.1 ms to copy, or 10 ms to write as text */

static const struct {
	int http, grpc;
	const char *reason;
} answers[] = {
#define HB_ANSWER(name, http, grpc, reason) {http, grpc, reason},
#include "server/kserve/status_codes.def"
#undef HB_ANSWER
};

int hb_answer_http(enum hb_answer answer)
{
	return answers[answer].http;
}

int hb_answer_grpc(enum hb_answer answer)
{
	return answers[answer].grpc;
}

const char *hb_answer_reason(enum hb_answer answer)
{
	return answers[answer].reason;
}

struct hb_inference *hb_inference_new(void)
{
	struct hb_inference *infer = malloc(sizeof(*infer));
	if (!infer)
		return NULL;
	/* The arrays of tensors are large. Only the first n_inputs, n_requested and n_outputs elements are read, so the
	   arrays are not cleared. */
	memset(infer, 0, offsetof(struct hb_inference, inputs));
	infer->binary_outputs = false;
	infer->priority = HB_SCHEDULER_PRIORITIES;
	infer->deadline_ns = infer->timeout_ns = 0;
	infer->answer = HB_ANSWER_OK;
	infer->reason[0] = '\0';
	infer->n_outputs = 0;
	memset(&infer->output_data, 0, sizeof(*infer) - offsetof(struct hb_inference, output_data));
	infer->heap_place = UINT32_MAX;
	infer->expires_ns = INT64_MAX;
	infer->holders = 1;
	return infer;
}

void hb_inference_free(struct hb_inference *infer)
{
	if (!infer || atomic_fetch_sub(&infer->holders, 1) != 1)
		return;
	if (infer->free_source)
		infer->free_source(infer->source);
	free(infer->output_data);
	hb_memory_charge_end(&infer->charge);
	free(infer);
}

enum hb_answer hb_inference_fail(struct hb_inference *infer, enum hb_answer answer, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(infer->reason, sizeof(infer->reason), format, arguments);
	va_end(arguments);
	infer->answer = answer;
	return answer;
}

enum hb_answer hb_inference_fail_memory_full(struct hb_inference *infer)
{
	return hb_inference_fail(infer, HB_ANSWER_MEMORY_FULL, HB_MEMORY_FULL);
}

bool hb_inference_has_large_outputs(const struct hb_inference *infer)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; infer->answer == HB_ANSWER_OK && i < infer->n_outputs; i++)
		bytes += infer->outputs[i].bytes;
	return bytes > LARGE_OUTPUT_BYTES;
}

enum hb_answer hb_inference_allocate(struct hb_inference *infer, uint64_t bytes, void **out)
{
	if (!hb_memory_charge_add(&infer->charge, bytes))
		return hb_inference_fail_memory_full(infer);
	*out = malloc(bytes);
	return *out ? HB_ANSWER_OK : hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
}

uint64_t hb_inference_answer_bytes(uint64_t bytes, uint32_t n)
{
	return bytes + ANSWER_BYTES + (uint64_t)n * ANSWER_OUTPUT_BYTES;
}

bool hb_inference_reserve_outputs(struct hb_inference *infer, uint64_t bytes, uint32_t n)
{
	uint64_t all = hb_inference_answer_bytes(bytes, n);
	if (all <= infer->reserved_bytes)
		return true;
	if (!hb_memory_charge_add(&infer->charge, all - infer->reserved_bytes))
		return false;
	infer->reserved_bytes = all;
	return true;
}

bool hb_inference_charge_answer(struct hb_inference *infer, struct hb_memory_charge *answer, uint64_t bytes)
{
	uint64_t reserved = infer->charge.budget ? infer->reserved_bytes : 0,
		 moved = bytes < reserved ? bytes : reserved;
	if (!hb_memory_charge_add(answer, bytes - moved))
		return false;
	infer->charge.bytes -= moved;
	infer->reserved_bytes -= moved;
	answer->bytes += moved;
	return true;
}

void hb_inference_drop_outputs(struct hb_inference *infer)
{
	free(infer->output_data);
	infer->output_data = NULL;
	infer->n_outputs = 0;
}
