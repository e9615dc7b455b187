/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the images that programs pass to the driver: a fatbin (several machine
 * codes and PTX texts, perhaps compressed), a single cubin, or the wrapper that the
 * CUDA runtime puts around a fatbin. Called by the shim when it wants to split a
 * kernel, and by tests. Reads nothing outside the given bytes and changes none.
 *
 * A fatbin is a header (magic 0xBA55ED50, size) and a sequence of entries, each
 * with a header that contains its kind, architecture, flags and size.
 */
#ifndef HB_CUBIN_FATBIN_H
#define HB_CUBIN_FATBIN_H

#include <stddef.h>
#include <stdint.h>

enum hb_fatbin_kind { HB_FATBIN_PTX = 1, HB_FATBIN_CUBIN = 2 };
enum hb_fatbin_packing { HB_FATBIN_PLAIN, HB_FATBIN_LZ4, HB_FATBIN_ZSTD };

struct hb_fatbin_entry {
	unsigned kind; /* enum hb_fatbin_kind, or an unknown kind */
	unsigned arch; /* 90 = sm_90 */
	enum hb_fatbin_packing packing;
	uint64_t flags;
	const uint8_t *bytes; /* content as stored in the fatbin, perhaps compressed */
	size_t n_bytes;
	size_t n_unpacked; /* unpacked size as the header gives it; only unpacking checks this size */
};

/* Iterates over the entries of one fatbin. */
struct hb_fatbin {
	const uint8_t *at, *end;
};

/* Most bytes of an unpacked entry. The largest cubin of PyTorch, cuBLAS and cuDNN has 30 MB. */
#define HB_FATBIN_UNPACKED_MAX ((size_t)256 << 20)

/* Larger images are not looked at. The fatbins of the largest CUDA libraries have about 1 GB. */
#define HB_IMAGE_BYTES_MAX ((size_t)4 << 30)

/*
 * Returns the size of an image, which the application passes as a bare pointer, from
 * the image's own headers, as the driver does. Moves *image from a wrapper to the
 * fatbin inside it. Returns 0 for anything else, such as PTX text, of which it reads
 * nothing behind the first byte that differs from a magic number. The only function
 * here that reads from a bare pointer: an image that begins with a magic number must
 * have a complete header, and its size is only what the header says.
 */
size_t hb_image_size(const void **image);

/*
 * Copies an image of this size to allocated memory, which the caller frees. Returns NULL without memory, or if a part
 * of it cannot be read: the size is only what a header says.
 */
void *hb_image_copy(const void *image, size_t size);

/* Returns 0, or -EINVAL if this is not a fatbin of at most `size` bytes. */
int hb_fatbin_open(struct hb_fatbin *fatbin, const void *bytes, size_t size);
/* Returns 1 and the next entry; 0 at the end; -EINVAL if an entry exceeds its bounds. */
int hb_fatbin_next(struct hb_fatbin *fatbin, struct hb_fatbin_entry *entry);

/*
 * Unpacks the entry into newly allocated memory (aligned for any type), which the
 * caller frees. Returns 0, -EINVAL (the content contradicts the header), -ENOMEM, or
 * -EFBIG (larger than HB_FATBIN_UNPACKED_MAX).
 */
int hb_fatbin_unpack(const struct hb_fatbin_entry *entry, uint8_t **bytes, size_t *n_bytes);

#endif
