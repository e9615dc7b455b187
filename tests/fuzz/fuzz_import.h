/* SPDX-License-Identifier: Apache-2.0 */
/* For the fuzz targets of importers: imports the same input with each way to find iterations. */
#ifndef HB_TESTS_FUZZ_FUZZ_IMPORT_H
#define HB_TESTS_FUZZ_FUZZ_IMPORT_H

#include "fuzz_file.h"
#include "trace/trace_import.h"

static inline void fuzz_import(const uint8_t *data, size_t size, enum hb_import_format format)
{
	const struct hb_import_options ways[] = {
		{.format = format, .name = "w", .device = -1},
		{.format = format, .name = "w", .device = -1, .range = "r"},
		{.format = format, .name = "w", .device = -1, .split_gap_ns = 1000},
		{.format = format, .name = "w", .device = 0, .iterations = 2},
	};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct hb_trace_set set = {0};
		struct hb_import_report report;
		struct hb_error error = {0};
		const char *path = fuzz_write(data, size);
		int code = hb_trace_import(path, &ways[i], &set, &report, &error);
		if (code) {
			fuzz_check_error(code, &error, path);
			FUZZ_REQUIRE(!set.workloads && !set.names);
			continue;
		}
		FUZZ_REQUIRE(report.ops == set.workloads[0].n_ops &&
			     report.iterations == set.workloads[0].n_iterations);
		fuzz_round_trip(&set);
		hb_trace_set_fini(&set);
	}
}

#endif
