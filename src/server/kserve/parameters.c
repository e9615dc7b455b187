/* SPDX-License-Identifier: Apache-2.0 */
/* See parameters.h. */
#include "server/kserve/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_US_MAX INT64_C(86400000000) /* a day */

static enum hb_answer refuse_value(struct hb_inference *infer, const char *tensor, const char *name, const char *wanted)
{
	return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "%s%s%sparameter \"%s\": %s", tensor ? "tensor \"" : "",
				 tensor ? tensor : "", tensor ? "\": " : "", name, wanted);
}

static enum hb_answer set_priority(struct hb_inference *infer, const struct hb_parameter *value)
{
	if (value->kind == HB_PARAMETER_TEXT && strcmp(value->text, "high") == 0)
		infer->priority = HB_SCHEDULER_HIGH;
	else if (value->kind == HB_PARAMETER_TEXT && strcmp(value->text, "low") == 0)
		infer->priority = HB_SCHEDULER_LOW;
	else if (value->kind == HB_PARAMETER_INT && value->number >= 0)
		infer->priority = value->number == 0   ? HB_SCHEDULER_PRIORITIES
				  : value->number == 1 ? HB_SCHEDULER_HIGH
						       : HB_SCHEDULER_LOW;
	else
		return refuse_value(
			infer, NULL, "priority",
			"must be \"high\", \"low\" or a number: 0 = the model's priority, 1 = high, 2 = low");
	return HB_ANSWER_OK;
}

static enum hb_answer set_time(struct hb_inference *infer, const char *name, const struct hb_parameter *value,
			       int64_t *out_ns)
{
	if (value->kind != HB_PARAMETER_INT || value->number < 0 || value->number > TIME_US_MAX)
		return refuse_value(infer, NULL, name,
				    "must be a number of microseconds from 0 to 86400000000 (a day)");
	*out_ns = value->number * 1000;
	return HB_ANSWER_OK;
}

/* Clients send 0 or "" for a request that belongs to no sequence. */
static enum hb_answer refuse_sequence(struct hb_inference *infer, const struct hb_parameter *value)
{
	if ((value->kind == HB_PARAMETER_INT && value->number == 0) ||
	    (value->kind == HB_PARAMETER_TEXT && !value->text[0]))
		return HB_ANSWER_OK;
	return hb_inference_fail(infer, HB_ANSWER_NOT_SUPPORTED,
				 "parameter \"sequence_id\": sequences are not supported");
}

bool hb_parameter_overrides(const char *name)
{
	return strcmp(name, "config") == 0 || strncmp(name, "file:", 5) == 0;
}

enum hb_answer hb_parameter_of_request(struct hb_inference *infer, const char *name, const struct hb_parameter *value)
{
	if (strcmp(name, "priority") == 0)
		return set_priority(infer, value);
	if (strcmp(name, "timeout") == 0)
		return set_time(infer, name, value, &infer->timeout_ns);
	if (strcmp(name, "deadline") == 0)
		return set_time(infer, name, value, &infer->deadline_ns);
	if (strcmp(name, "binary_data_output") == 0) {
		if (value->kind != HB_PARAMETER_BOOL)
			return refuse_value(infer, NULL, name, "must be true or false");
		infer->binary_outputs = value->truth;
	}
	if (strcmp(name, "sequence_id") == 0)
		return refuse_sequence(infer, value);
	return HB_ANSWER_OK;
}

static enum hb_answer set_size(struct hb_inference *infer, const char *tensor, const char *name,
			       const struct hb_parameter *value, uint64_t *out)
{
	if (value->kind != HB_PARAMETER_INT || value->number < 0)
		return refuse_value(infer, tensor, name, "must be a number from 0");
	*out = (uint64_t)value->number;
	return HB_ANSWER_OK;
}

enum hb_answer hb_parameter_of_tensor(struct hb_inference *infer, const char *tensor, const char *name,
				      const struct hb_parameter *value, struct hb_tensor_parameters *out)
{
	uint64_t bytes = 0;
	if (strcmp(name, "binary_data_size") == 0) {
		enum hb_answer answer = set_size(infer, tensor, name, value, &bytes);
		out->data_bytes = (int64_t)bytes;
		return answer;
	}
	if (strcmp(name, "binary_data") == 0) {
		if (value->kind != HB_PARAMETER_BOOL)
			return refuse_value(infer, tensor, name, "must be true or false");
		out->binary = value->truth;
		out->binary_given = true;
	} else if (strcmp(name, "shared_memory_region") == 0) {
		if (value->kind != HB_PARAMETER_TEXT || !value->text[0] ||
		    strlen(value->text) >= sizeof(out->part.region))
			return refuse_value(infer, tensor, name, "must be the name of a registered region");
		snprintf(out->part.region, sizeof(out->part.region), "%s", value->text);
	} else if (strcmp(name, "classification") == 0 && (value->kind != HB_PARAMETER_INT || value->number != 0)) {
		return hb_inference_fail(infer, HB_ANSWER_NOT_SUPPORTED,
					 "tensor \"%s\": parameter \"classification\" is not supported", tensor);
	} else if (strcmp(name, "shared_memory_offset") == 0) {
		return set_size(infer, tensor, name, value, &out->part.offset);
	} else if (strcmp(name, "shared_memory_byte_size") == 0) {
		return set_size(infer, tensor, name, value, &out->part.bytes);
	}
	return HB_ANSWER_OK;
}
