/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX model in ONNX Runtime, whose library is loaded when it is needed:
 * nothing is linked, and no header of it is included (onnx_calls.def says which
 * functions and why that is safe). Used by onnx_worker.c, by one thread but for
 * hb_onnx_stop().
 */
#ifndef HB_FRONT_ONNX_RUNTIME_H
#define HB_FRONT_ONNX_RUNTIME_H

#include "server/kserve/inference.h"
#include "server/models/model_config.h"

struct hb_onnx;

/*
 * A tensor that the model must have, with dims as in model.yaml (-1 = any) and the batch's first, if any; a run has those of
 * the batch. Outputs of a run get shape and data. Texts lie one behind the other, each with its length (32 bits) before it.
 */
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
/*
 * Whether the model has exactly these inputs, of these types and sizes, and these outputs among its own. 0, -EINVAL with
 * *error.
 */
int hb_onnx_check(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		  const struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);
/* Shapes and data of the outputs are valid until the next run. 0, -EIO with *error. */
int hb_onnx_run(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);
/* Ends a run that goes on, at its next operator, and refuses those to come, until it is called with false. Any thread. */
void hb_onnx_stop(struct hb_onnx *onnx, bool stop);

#endif
