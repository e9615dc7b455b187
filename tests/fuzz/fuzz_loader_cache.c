/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the dynamic loader's cache, in which the shim finds the driver's library. Every path is inside the file. */
#include "fuzz.h"
#include "shim/real_library.h"

struct visit_range {
	const char *begin, *end;
	size_t n;
};

static void *visit_path(const char *path, void *context)
{
	struct visit_range *range = context;
	FUZZ_REQUIRE(path >= range->begin && path + strlen(path) < range->end);
	return ++range->n == 100 ? range : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *file = (char *)fuzz_copy(data, size);
	struct visit_range range = {file, file + size, 0};
	void *found = hb_loader_cache_read(file, size, "libcuda.so.1", visit_path, &range);
	FUZZ_REQUIRE((found != NULL) == (range.n == 100));
	free(file);
	return 0;
}
