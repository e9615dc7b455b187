/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request parameters of KServe v2, the same over HTTP and gRPC. Called by the
 * protocols' readers.
 *
 *	request  priority ("high", "low"; as a number, like Triton: 0 = the model's,
 *	         1 = high, more = low), timeout and deadline (microseconds after
 *	         arrival), binary_data_output
 *	tensor   binary_data_size, binary_data, shared_memory_region,
 *	         shared_memory_offset, shared_memory_byte_size
 *
 * Sequences and `classification` would change the answer and are refused. Other
 * parameters are ignored, as the protocol requires.
 */
#ifndef HB_SERVER_PARAMETERS_H
#define HB_SERVER_PARAMETERS_H

#include "server/kserve/inference.h"

/* Texts for a load that failed: the message (model, reason), and two reasons. */
#define HB_LOAD_FAILED "failed to load '%s': %s"
#define HB_LOAD_NO_SERVER "the server is going down"
#define HB_LOAD_NO_NAME "a model cannot have this name"
#define HB_LOAD_OVERRIDES "a load request cannot bring a configuration or files; they must be in the model's folder"

enum hb_parameter_kind { HB_PARAMETER_BOOL, HB_PARAMETER_INT, HB_PARAMETER_TEXT, HB_PARAMETER_OTHER };

/* The value of a parameter. */
struct hb_parameter {
	enum hb_parameter_kind kind;
	bool truth;
	int64_t number;
	const char *text;
};

/* The parameters of one tensor. */
struct hb_tensor_parameters {
	int64_t data_bytes; /* binary_data_size; -1 = not given */
	bool binary, binary_given;
	struct hb_region_part part;
};

/* Sets a parameter of the request. Returns HB_ANSWER_OK, or the answer that was set: BAD_REQUEST or NOT_SUPPORTED. */
enum hb_answer hb_parameter_of_request(struct hb_inference *infer, const char *name, const struct hb_parameter *value);
/* Sets a parameter of one of the request's tensors, in *out. Returns as hb_parameter_of_request(). */
enum hb_answer hb_parameter_of_tensor(struct hb_inference *infer, const char *tensor, const char *name,
				      const struct hb_parameter *value, struct hb_tensor_parameters *out);

/* Returns whether a parameter of a load request would replace the model's configuration or files. */
bool hb_parameter_overrides(const char *name);

#endif
