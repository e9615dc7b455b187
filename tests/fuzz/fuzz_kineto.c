/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: PyTorch profiler recordings. What is imported must be a trace that reads back. */
#include "fuzz_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_import(data, size, HB_IMPORT_KINETO);
	return 0;
}
