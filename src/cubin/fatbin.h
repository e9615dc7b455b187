/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading of the images that programs hand to the driver: a fatbin (several
 * machine codes and PTX texts, perhaps compressed), a single cubin, or the
 * wrapper that the CUDA runtime puts around a fatbin. Called by the shim when
 * it wants to slice a kernel, and by tests. Reads nothing outside the bytes it
 * is given, changes none of them; what it unpacks is the caller's to free.
 *
 * A fatbin is a header (magic 0xBA55ED50, size) and entries one after the
 * other, each with a header that tells its kind, architecture, flags and size.
 */
#ifndef HB_CUBIN_FATBIN_H
#define HB_CUBIN_FATBIN_H

#include <stddef.h>
#include <stdint.h>

enum hb_fatbin_kind { HB_FATBIN_PTX = 1, HB_FATBIN_CUBIN = 2 };
enum hb_fatbin_packing { HB_FATBIN_PLAIN, HB_FATBIN_LZ4, HB_FATBIN_ZSTD };

struct hb_fatbin_entry {
	unsigned kind; /* enum hb_fatbin_kind, or another that is not known */
	unsigned arch; /* 90 = sm_90 */
	enum hb_fatbin_packing packing;
	uint64_t flags;
	const uint8_t *bytes; /* as they lie in the fatbin */
	size_t n_bytes;
	size_t n_unpacked; /* as the header says; not checked before unpacking */
};

/* Walks over the entries of one fatbin. */
struct hb_fatbin {
	const uint8_t *at, *end;
};

/* More than any cubin seen (the largest of PyTorch, cuBLAS and cuDNN has 30 MB). */
#define HB_FATBIN_UNPACKED_MAX ((size_t)256 << 20)

/*
 * How many bytes the image has, read from its own headers as the driver does:
 * images come as a bare pointer. `*image` is moved from a wrapper to the
 * fatbin in it. 0 when it is neither fatbin nor cubin (PTX text, say). The one
 * function here that trusts its input.
 */
size_t hb_image_size(const void **image);

/* 0, or -EINVAL when this is no fatbin that lies within `size` bytes. */
int hb_fatbin_open(struct hb_fatbin *fatbin, const void *bytes, size_t size);
/* 1 and the next entry; 0 at the end; -EINVAL when an entry leaves its bounds. */
int hb_fatbin_next(struct hb_fatbin *fatbin, struct hb_fatbin_entry *entry);

/*
 * The entry's content in memory of its own (aligned for any type, at least one
 * byte). -EINVAL: not what its header says; -ENOMEM; -EFBIG: larger than
 * HB_FATBIN_UNPACKED_MAX.
 */
int hb_fatbin_unpack(const struct hb_fatbin_entry *entry, uint8_t **bytes, size_t *n_bytes);

#endif
