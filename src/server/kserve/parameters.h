/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request parameters of KServe v2, the same over HTTP and gRPC: `priority`
 * ("high", "low"; a number as in Triton: 0 = the model's, 1 = high, more = low),
 * `timeout` and `deadline` (microseconds from arrival), `binary_data_output`;
 * of tensors: `binary_data_size`, `binary_data`, `shared_memory_*`. Sequences
 * and `classification`, which would change the answer, are refused; others are
 * ignored, as the protocol asks. Called by the protocols' readers.
 */
#ifndef HB_SERVER_PARAMETERS_H
#define HB_SERVER_PARAMETERS_H

#include "server/kserve/inference.h"
#include "server/kserve/shared_memory.h"

enum hb_parameter_kind { HB_PARAMETER_BOOL, HB_PARAMETER_INT, HB_PARAMETER_TEXT, HB_PARAMETER_OTHER };

struct hb_parameter {
	enum hb_parameter_kind kind;
	bool truth;
	int64_t number;
	const char *text;
};

/* A tensor's. `data_bytes` is -1 where it was not given. */
struct hb_tensor_parameters {
	int64_t data_bytes;
	bool binary, binary_given;
	struct hb_region_part part;
};

/* HB_ANSWER_OK; or BAD_REQUEST or NOT_SUPPORTED with the reason. */
enum hb_answer hb_parameter_of_request(struct hb_inference *infer, const char *name, const struct hb_parameter *value);
enum hb_answer hb_parameter_of_tensor(struct hb_inference *infer, const char *tensor, const char *name,
				      const struct hb_parameter *value, struct hb_tensor_parameters *out);

/* What is said of a load that failed: name, why. And two reasons. */
/*
 * A request that is no inference is read into a tree, which takes up to sixty times its bytes: more than this is refused.
 */
#define HB_CONTROL_BYTES_MAX (1 << 20)
#define HB_LOAD_FAILED "failed to load '%s': %s"
#define HB_LOAD_NO_NAME "no model can have this name"
#define HB_LOAD_OVERRIDES "a configuration or files that come with the request are not taken; its folder has them"
/* Whether a load's parameter is one of these. */
bool hb_parameter_overrides(const char *name);

/* Reads an input from its region into memory from malloc, which is the request's. */
enum hb_answer hb_shared_memory_read_input(struct hb_inference *infer, struct hb_shared_memory *regions,
					   struct hb_tensor *tensor, void **memory);
/* Writes the outputs that were asked for in regions. */
enum hb_answer hb_shared_memory_write_outputs(struct hb_inference *infer, struct hb_shared_memory *regions);

#endif
