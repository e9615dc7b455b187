/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as KServe v2 knows them: data types, the description of a model's
 * tensor and the tensor of one request. Pure; called by every part of the
 * server and by the ONNX worker.
 */
#ifndef HB_SERVER_TENSOR_H
#define HB_SERVER_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#define HB_TENSORS_MAX 16 /* most inputs of a model, and most outputs */
#define HB_TENSOR_DIMS_MAX 8
#define HB_TENSOR_NAME_MAX 96

enum hb_dtype {
#define HB_DTYPE(name, bytes, config_name, config_number) HB_DTYPE_##name,
#include "server/kserve/dtypes.def"
#undef HB_DTYPE
	HB_DTYPES
};

/* An input or output as model.yaml describes it. */
struct hb_tensor_spec {
	char name[HB_TENSOR_NAME_MAX];
	int dtype; /* enum hb_dtype */
	uint32_t n_dims;
	int64_t dims
		[HB_TENSOR_DIMS_MAX]; /* dimensions of one item, without the batch dimension; -1 = any size ("open") */
};

/* A part of a shared-memory region that the client registered; region "" = the tensor is not in shared memory. */
struct hb_region_part {
	char region[HB_TENSOR_NAME_MAX];
	uint64_t offset, bytes;
};

struct hb_tensor {
	char name[HB_TENSOR_NAME_MAX];
	enum hb_dtype dtype;
	uint32_t n_dims;
	int64_t dims[HB_TENSOR_DIMS_MAX]; /* the first is the batch dimension, if the model has one */
	const void *data;
	uint64_t bytes;
	struct hb_region_part part;
};

/* Returns the bytes of one element; 0 for BYTES, whose elements have different lengths. */
uint32_t hb_dtype_bytes(enum hb_dtype dtype);
const char *hb_dtype_name(enum hb_dtype dtype);
/* Return the type's name and number in Triton's ModelConfig. */
const char *hb_dtype_config_name(enum hb_dtype dtype);
int hb_dtype_config_number(enum hb_dtype dtype);
/* Returns the type with this name; HB_DTYPES if there is none. */
enum hb_dtype hb_dtype_parse(const char *name);

/* Returns the number of elements of a shape; -1 if a dimension is negative or the product overflows. */
int64_t hb_tensor_elements(const int64_t *dims, uint32_t n_dims);
/* Returns whether `elements` elements of the type take exactly `bytes` bytes. Always false for BYTES. */
bool hb_tensor_size_matches(enum hb_dtype dtype, int64_t elements, uint64_t bytes);
/*
 * Returns whether a BYTES tensor consists of exactly `elements` strings, each behind its length (4 bytes,
 * little-endian).
 */
bool hb_tensor_has_strings(const struct hb_tensor *tensor, int64_t elements);
/*
 * Returns whether the size of a tensor with this description differs from request to request: BYTES, or a dimension of
 * -1.
 */
bool hb_tensor_spec_is_open(const struct hb_tensor_spec *spec);

#endif
