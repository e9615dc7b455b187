/* SPDX-License-Identifier: Apache-2.0 */
/* See tensor.h. */
#include "server/kserve/tensor.h"

#include <string.h>

static const struct {
	const char *name;
	uint32_t bytes;
	const char *config_name;
	int config_number;
} dtypes[] = {
#define HB_DTYPE(name, bytes, config_name, config_number) {#name, bytes, config_name, config_number},
#include "server/kserve/dtypes.def"
#undef HB_DTYPE
};

uint32_t hb_dtype_bytes(enum hb_dtype dtype)
{
	return dtypes[dtype].bytes;
}

const char *hb_dtype_name(enum hb_dtype dtype)
{
	return dtypes[dtype].name;
}

const char *hb_dtype_config_name(enum hb_dtype dtype)
{
	return dtypes[dtype].config_name;
}

int hb_dtype_config_number(enum hb_dtype dtype)
{
	return dtypes[dtype].config_number;
}

enum hb_dtype hb_dtype_parse(const char *name)
{
	int i = 0;
	while (i < HB_DTYPES && strcmp(dtypes[i].name, name) != 0)
		i++;
	return (enum hb_dtype)i;
}

int64_t hb_tensor_elements(const int64_t *dims, uint32_t n_dims)
{
	int64_t elements = 1;
	for (uint32_t i = 0; i < n_dims; i++)
		if (dims[i] < 0 || __builtin_mul_overflow(elements, dims[i], &elements))
			return -1;
	return elements;
}

bool hb_tensor_size_matches(enum hb_dtype dtype, int64_t elements, uint64_t bytes)
{
	uint64_t expected, size = hb_dtype_bytes(dtype);
	return size && elements >= 0 && !__builtin_mul_overflow((uint64_t)elements, size, &expected) &&
	       expected == bytes;
}

bool hb_tensor_has_strings(const struct hb_tensor *tensor, int64_t elements)
{
	const unsigned char *at = tensor->data, *end = at + tensor->bytes;
	for (int64_t i = 0; i < elements; i++) {
		uint32_t length;
		if (end - at < 4)
			return false;
		memcpy(&length, at, 4);
		at += 4;
		if ((size_t)(end - at) < length)
			return false;
		at += length;
	}
	return at == end;
}

bool hb_tensor_spec_is_open(const struct hb_tensor_spec *spec)
{
	bool open = hb_dtype_bytes((enum hb_dtype)spec->dtype) == 0;
	for (uint32_t i = 0; i < spec->n_dims; i++)
		open |= spec->dims[i] < 0;
	return open;
}
