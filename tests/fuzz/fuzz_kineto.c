/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: PyTorch profiler recordings. An imported trace can be written and read again. */
#include "fuzz_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_import(data, size, HB_IMPORT_KINETO);
	return 0;
}
