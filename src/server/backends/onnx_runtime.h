/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs an ONNX model in ONNX Runtime. The library is loaded with dlopen, so
 * building needs neither the library nor its headers (onnx_calls.def explains why
 * that is safe). Used by onnx_worker.c. All functions but hb_onnx_stop() must be
 * called by one thread.
 */
#ifndef HB_SERVER_ONNX_RUNTIME_H
#define HB_SERVER_ONNX_RUNTIME_H

#include "server/kserve/inference.h"
#include "server/models/model_config.h"

struct hb_onnx;

/*
 * An input or output. For hb_onnx_check(): dims as in model.yaml (-1 = any size), with the batch dimension first if there is
 * one. For hb_onnx_run(): dims of the batch; outputs get dims, data and bytes. A BYTES tensor is a sequence of elements: a
 * length of 32 bits and the content.
 */
struct hb_onnx_tensor {
	const char *name;
	enum hb_dtype dtype;
	uint32_t n_dims;
	int64_t dims[HB_TENSOR_DIMS_MAX];
	void *data;
	uint64_t bytes;
};

/*
 * Opens a model. `library` "" = the system's search path. Runs on the GPU if the library supports it, else on the CPU.
 * Returns 0, or negative errno with *error.
 */
int hb_onnx_open(const char *library, const char *file, struct hb_onnx **out, struct hb_error *error);
/*
 * Checks that the model has exactly these inputs and at least these outputs, with these types and shapes. Returns 0 or
 * -EINVAL with *error.
 */
int hb_onnx_check(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		  const struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);
/* Runs a batch. Shapes and data of the outputs are valid until the next run. Returns 0 or -EIO with *error. */
int hb_onnx_run(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error);
/* Stops the current run at its next operator and refuses later runs, until called with false. May be called by any thread. */
void hb_onnx_stop(struct hb_onnx *onnx, bool stop);

#endif
