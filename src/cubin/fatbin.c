/* SPDX-License-Identifier: Apache-2.0 */
/* Iterates over fatbins and unpacks their entries; see fatbin.h. */
#include "cubin/fatbin.h"

#include <elf.h>
#include <errno.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

#define FATBIN_MAGIC 0xba55ed50u
/* The same and that of a wrapper, as they are in memory. */
#define FATBIN_MAGIC_BYTES "\x50\xed\x55\xba"
#define WRAPPER_MAGIC_BYTES "\xb1\x43\x62\x46"
#define MAGIC_BYTES 4

struct fatbin_wrapper {
	uint32_t magic, version;
	const void *fatbin;
	const void *unused;
};

struct fatbin_header {
	uint32_t magic;
	uint16_t version;
	uint16_t n_header_bytes;
	uint64_t n_bytes; /* size of all entries together */
};

/* The start of an entry's header. Longer headers continue with fields that are not needed here. */
struct fatbin_entry_header {
	uint16_t kind, version;
	uint32_t n_header_bytes;
	uint64_t n_bytes; /* size of the content, padded to a multiple of eight */
	uint32_t n_packed_bytes;
	uint32_t options;
	uint16_t code_minor, code_major;
	uint32_t arch;
	uint32_t name, n_name_bytes;
	uint64_t flags;
	uint64_t unused;
	uint64_t n_unpacked_bytes;
};

enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };

_Static_assert(sizeof(struct fatbin_header) == 16 && sizeof(struct fatbin_entry_header) == 64, "no hidden padding");

/* Compares byte by byte: a shorter image, such as a PTX text, may end where readable memory ends. */
static bool begins_with(const void *image, const char *magic)
{
	const volatile unsigned char *bytes = image;
	for (size_t i = 0; i < MAGIC_BYTES; i++)
		if (bytes[i] != (unsigned char)magic[i])
			return false;
	return true;
}

/* Returns 0 if the size is impossible. */
static size_t add_sizes(uint64_t offset, uint64_t bytes)
{
	return offset > HB_IMAGE_BYTES_MAX || bytes > HB_IMAGE_BYTES_MAX - offset ? 0 : (size_t)(offset + bytes);
}

/* The size of a cubin is where its last table ends. Returns 0 for any other ELF file. */
static size_t read_elf_size(const void *image)
{
	Elf64_Ehdr header;
	memcpy(&header, image, sizeof header);
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA)
		return 0;
	size_t sections = add_sizes(header.e_shoff, (uint64_t)header.e_shnum * header.e_shentsize);
	size_t segments = add_sizes(header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize);
	if (!sections || (!segments && header.e_phoff))
		return 0;
	return sections > segments ? sections : segments;
}

size_t hb_image_size(const void **image)
{
	struct fatbin_wrapper wrapper;
	struct fatbin_header header;
	if (begins_with(*image, WRAPPER_MAGIC_BYTES)) {
		memcpy(&wrapper, *image, sizeof wrapper);
		if (!wrapper.fatbin)
			return 0;
		*image = wrapper.fatbin;
	}
	if (begins_with(*image, FATBIN_MAGIC_BYTES)) {
		memcpy(&header, *image, sizeof header);
		return add_sizes(header.n_header_bytes, header.n_bytes);
	}
	return begins_with(*image, ELFMAG) ? read_elf_size(*image) : 0;
}

void *hb_image_copy(const void *image, size_t size)
{
	void *copy = malloc(size ? size : 1);
	struct iovec to = {copy, size}, from = {(void *)(uintptr_t)image, size};
	if (!copy)
		return NULL;
	/* Reads this process's own memory, and fails where memcpy() would end the process. */
	ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
	if (n < 0 && (errno == EPERM || errno == ENOSYS)) /* a sandbox forbids the call: the header is trusted */
		return memcpy(copy, image, size);
	if (n == (ssize_t)size)
		return copy;
	free(copy);
	return NULL;
}

int hb_fatbin_open(struct hb_fatbin *fatbin, const void *bytes, size_t size)
{
	struct fatbin_header header;
	if (size < sizeof header)
		return -EINVAL;
	memcpy(&header, bytes, sizeof header);
	if (header.magic != FATBIN_MAGIC || header.version != 1 || header.n_header_bytes < sizeof header ||
	    header.n_header_bytes > size || header.n_bytes > size - header.n_header_bytes)
		return -EINVAL;
	fatbin->at = (const uint8_t *)bytes + header.n_header_bytes;
	fatbin->end = fatbin->at + header.n_bytes;
	return 0;
}

static int check_entry(const struct fatbin_entry_header *header, size_t n_left)
{
	if (header->n_header_bytes < sizeof *header || header->n_header_bytes > n_left ||
	    header->n_bytes > n_left - header->n_header_bytes)
		return -EINVAL;
	bool packed = header->flags & (FLAG_LZ4 | FLAG_ZSTD);
	if (packed && (header->n_packed_bytes > header->n_bytes || header->n_unpacked_bytes > SIZE_MAX / 2))
		return -EINVAL;
	return 0;
}

int hb_fatbin_next(struct hb_fatbin *fatbin, struct hb_fatbin_entry *entry)
{
	struct fatbin_entry_header header;
	size_t n_left = (size_t)(fatbin->end - fatbin->at);
	if (n_left == 0)
		return 0;
	if (n_left < sizeof header)
		return -EINVAL;
	memcpy(&header, fatbin->at, sizeof header);
	int code = check_entry(&header, n_left);
	if (code)
		return code;
	enum hb_fatbin_packing packing = header.flags & FLAG_ZSTD  ? HB_FATBIN_ZSTD
					 : header.flags & FLAG_LZ4 ? HB_FATBIN_LZ4
								   : HB_FATBIN_PLAIN;
	*entry = (struct hb_fatbin_entry){
		.kind = header.kind,
		.arch = header.arch,
		.packing = packing,
		.flags = header.flags,
		.bytes = fatbin->at + header.n_header_bytes,
		.n_bytes = packing == HB_FATBIN_PLAIN ? header.n_bytes : header.n_packed_bytes,
		.n_unpacked = packing == HB_FATBIN_PLAIN ? header.n_bytes : header.n_unpacked_bytes,
	};
	fatbin->at += header.n_header_bytes + header.n_bytes;
	return 1;
}

static int unpack_lz4(const struct hb_fatbin_entry *entry, uint8_t *out)
{
	if (entry->n_bytes > LZ4_MAX_INPUT_SIZE)
		return -EINVAL;
	int n = LZ4_decompress_safe((const char *)entry->bytes, (char *)out, (int)entry->n_bytes,
				    (int)entry->n_unpacked);
	return n >= 0 && (size_t)n == entry->n_unpacked ? 0 : -EINVAL;
}

static int unpack_into(const struct hb_fatbin_entry *entry, uint8_t *out)
{
	if (entry->packing == HB_FATBIN_PLAIN) {
		memcpy(out, entry->bytes, entry->n_bytes);
		return 0;
	}
	if (entry->packing == HB_FATBIN_LZ4)
		return unpack_lz4(entry, out);
	size_t n = ZSTD_decompress(out, entry->n_unpacked, entry->bytes, entry->n_bytes);
	return !ZSTD_isError(n) && n == entry->n_unpacked ? 0 : -EINVAL;
}

int hb_fatbin_unpack(const struct hb_fatbin_entry *entry, uint8_t **bytes, size_t *n_bytes)
{
	if (entry->n_unpacked > HB_FATBIN_UNPACKED_MAX)
		return -EFBIG;
	uint8_t *out = malloc(entry->n_unpacked ? entry->n_unpacked : 1);
	if (!out)
		return -ENOMEM;
	int code = unpack_into(entry, out);
	if (code) {
		free(out);
		return code;
	}
	*bytes = out;
	*n_bytes = entry->n_unpacked;
	return 0;
}
