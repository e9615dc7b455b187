/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX model in ONNX Runtime, whose library is loaded when it is needed:
 * nothing is linked, and no header of it is included (onnx_calls.def says which
 * functions and why that is safe). Used by onnx_worker.c, one thread.
 */
#ifndef HB_FRONT_ONNX_RUNTIME_H
#define HB_FRONT_ONNX_RUNTIME_H

#include "front/infer_request.h"

struct hb_onnx;

/* A tensor that the model must have; outputs of a run get shape and data. */
struct hb_onnx_tensor {
	const char *name;
	enum hb_dtype dtype;
	uint32_t n_dims;
	int64_t dims[HB_TENSOR_DIMS_MAX];
	void *data;
	uint64_t bytes;
};

/* `library` "" = where the system finds it. On the GPU where the library can, else on the CPU. 0, negative errno with *error. */
int hb_onnx_open(const char *library, const char *file, struct hb_onnx **out, struct hb_error *error);
/* NULL is allowed. */
void hb_onnx_close(struct hb_onnx *onnx);
/* Whether the model has exactly these inputs, of these types, and these outputs among its own. 0, -EINVAL with *error. */
int hb_onnx_check(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		  const struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);
/* Shapes and data of the outputs are valid until the next run. 0, -EIO with *error. */
int hb_onnx_run(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);

#endif
