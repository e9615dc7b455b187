/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the size of an image that an application loads. The image ends at
 * the end of readable memory, with and without the wrapper of nvcc. If the
 * image is text, no byte behind its first difference from the magic numbers is read.
 */
#include "cubin/fatbin.h"
#include "fuzz.h"

#include <sys/mman.h>

#define ROOM ((size_t)64 << 10)
#define PAGE ((size_t)4096)

struct image_wrapper {
	uint32_t magic, version;
	const void *fatbin, *unused;
};

/* Returns memory of ROOM bytes in front of a page that cannot be read. */
static uint8_t *map_memory(void)
{
	uint8_t *memory = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FUZZ_REQUIRE(memory != MAP_FAILED && mprotect(memory + ROOM, PAGE, PROT_NONE) == 0);
	return memory;
}

/* An image that a driver has accepted and that begins with one of these has its complete header. */
static bool has_half_a_header(const uint8_t *image, size_t size)
{
	static const char *const magics[] = {"\x50\xed\x55\xba", "\x7f\x45\x4c\x46"};
	for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
		if (size < 64 && size && memcmp(image, magics[i], size < 4 ? size : 4) == 0)
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *memory;
	if (!memory)
		memory = map_memory();
	if (size < 2 || size - 1 > ROOM || has_half_a_header(data + 1, size - 1))
		return 0;
	uint8_t *image = memory + ROOM - (size - 1);
	memcpy(image, data + 1, size - 1);
	const struct image_wrapper wrapper = {.magic = 0x466243b1, .version = 1, .fatbin = image};
	const void *found = data[0] == 'w' ? (const void *)&wrapper : image;
	/* The pointer in an input's own wrapper could lead anywhere. */
	if (memcmp(image, "\xb1\x43\x62\x46", size - 1 < 4 ? size - 1 : 4) == 0)
		return 0;
	size_t bytes = hb_image_size(&found);
	FUZZ_REQUIRE(found == image && bytes <= HB_IMAGE_BYTES_MAX);
	struct hb_fatbin fatbin;
	if (bytes && bytes <= size - 1 && hb_fatbin_open(&fatbin, found, bytes) == 0)
		FUZZ_REQUIRE(fatbin.end <= image + size - 1);
	return 0;
}
