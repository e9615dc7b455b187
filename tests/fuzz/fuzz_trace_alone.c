/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the companion file of a trace with two workloads. */
#include "fuzz_file.h"

static const char trace[] =
	"workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes\n"
	"w,0,kernel,k,0.0,1.5,2x3x4,32x2x1,40,1024,\n"
	"v,0,kernel,k,0.0,1.5,2x3x4,32x2x1,40,1024,\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	const char *path = fuzz_write(trace, sizeof trace - 1);
	fuzz_write_to(fuzz_alone_path, data, size);
	int code = hb_trace_read_csv(path, &set, &error);
	if (code) {
		fuzz_check_error(code, &error, fuzz_alone_path);
		FUZZ_REQUIRE(!set.workloads && !set.names);
	}
	FUZZ_REQUIRE(code || set.n_workloads == 2);
	for (uint32_t i = 0; !code && i < 2; i++) {
		FUZZ_REQUIRE(set.workloads[i].alone_ns >= 0 && set.workloads[i].alone_ns <= HB_TRACE_TIME_MAX_NS);
		FUZZ_REQUIRE(set.workloads[i].alone_graph_ns >= 0 &&
			     set.workloads[i].alone_graph_ns <= HB_TRACE_TIME_MAX_NS);
	}
	hb_trace_set_fini(&set);
	return 0;
}
