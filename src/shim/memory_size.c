/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much device memory a pitched allocation or an array needs; see hook_memory.h. */
#include "shim/hook_memory.h"

/* Flags CUDA_ARRAY3D_*. Layers are not halved from level to level; sparse and deferred arrays have no memory of their own. */
#define ARRAY_LAYERED 0x01u
#define ARRAY_WITHOUT_MEMORY (0x40u | 0x80u)

uint64_t hb_size_times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t hb_size_pitched(uint64_t width_bytes, uint64_t height)
{
	return hb_size_times(width_bytes / HB_PITCH_BYTES + (width_bytes % HB_PITCH_BYTES != 0),
			     hb_size_times(HB_PITCH_BYTES, height));
}

static uint64_t count_element_bytes(CUarray_format format, unsigned channels)
{
	switch ((unsigned)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2ull * channels;
	default: /* 32 bits; also packed and compressed formats, which take less */
		return 4ull * channels;
	}
}

static uint64_t at_least_1(uint64_t n)
{
	return n ? n : 1;
}

uint64_t hb_size_array(uint64_t width, uint64_t height, CUarray_format format, unsigned channels)
{
	return hb_size_times(hb_size_times(width, at_least_1(height)), count_element_bytes(format, channels));
}

uint64_t hb_size_array3d(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	uint64_t bytes = 0, width = d->Width, height = d->Height, depth = d->Depth;
	if (d->Flags & ARRAY_WITHOUT_MEMORY)
		return 0;
	for (unsigned level = 0; level < levels; level++) {
		uint64_t area = hb_size_times(at_least_1(width), hb_size_times(at_least_1(height), at_least_1(depth)));
		uint64_t more = hb_size_times(area, count_element_bytes(d->Format, d->NumChannels));
		bytes = more > UINT64_MAX - bytes ? UINT64_MAX : bytes + more;
		width /= 2;
		height /= 2;
		depth = d->Flags & ARRAY_LAYERED ? depth : depth / 2;
		if (width + height == 0)
			break;
	}
	return bytes;
}
