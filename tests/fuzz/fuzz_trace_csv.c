/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the trace reader, plain and gzip. An accepted trace can be written and read again. */
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	const char *path = fuzz_write(data, size);
	int code = hb_trace_read_csv(path, &set, &error);
	if (code) {
		fuzz_check_error(code, &error, path);
		FUZZ_REQUIRE(!set.workloads && !set.names);
		return 0;
	}
	fuzz_round_trip(&set);
	hb_trace_set_fini(&set);
	return 0;
}
