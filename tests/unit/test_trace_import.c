/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what the importers make of recordings of PyTorch's profiler and Nsight
 * Systems, how iterations are found, and the messages for bad recordings.
 * Events and tables are as PyTorch 2.x and Nsight Systems 2024 write them.
 */
#include "test_files.h"

#include "trace/trace_import.h"

#include <errno.h>
#include <sqlite3.h>

#define KERNEL(ts, dur, correlation, name) \
	"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" name "\", \"pid\": 0, \"tid\": 7,\n  \"ts\": " #ts \
	", \"dur\": " #dur \
	",\n  \"args\": {\"External id\": 3, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": " #correlation \
	", \"registers per thread\": 40, \"shared memory\": 4096, \"blocks per SM\": 0.7, \"warps per SM\": 3.0," \
	" \"grid\": [98, 2, 1], \"block\": [128, 2, 1], \"est. achieved occupancy %\": 12}}"
#define COPY(ts, dur, name, bytes) \
	"{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"" name "\", \"pid\": 0, \"tid\": 7, \"ts\": " #ts \
	", \"dur\": " #dur ", \"args\": {\"device\": 0, \"stream\": 7, \"bytes\": " #bytes \
	", \"memory bandwidth (GB/s)\": 25.5}}"
#define LAUNCH(ts, correlation) \
	"{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 9, \"tid\": 9, \"ts\": " #ts \
	", \"dur\": 2, \"args\": {\"cbid\": 211, \"correlation\": " #correlation "}}"
#define STEP(ts, dur, n) \
	"{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#" #n \
	"\", \"pid\": 9, \"tid\": 9, \"ts\": " #ts ", \"dur\": " #dur ", \"args\": {}}"
#define TRACE(events) \
	"{\"schemaVersion\": 1, \"deviceProperties\": [{\"name\": \"H]}\\\"\"}],\n\"traceEvents\": [\n" events \
	"\n],\n\"displayTimeUnit\": \"ms\"}\n"

/* Two steps; the second step's kernel is launched before the first step's has ended, and one kernel is in no step. */
static const char two_steps[] = TRACE(
	"{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": \"python\"}},\n" STEP(1000, 100, 1) ",\n" STEP(1100, 100, 2) ",\n" LAUNCH(1010, 1) ",\n" LAUNCH(1020, 2) ",\n" LAUNCH(
		1110,
		3) ",\n" LAUNCH(1300,
				4) ",\n" KERNEL(1180.5, 20, 3,
						"later, \\\"k\\\"") ",\n" KERNEL(1015.25, 5.125, 1,
										 "first") ",\n" KERNEL(1025, 150, 2,
												       "long") ",\n" COPY(1201,
															  1,
															  "Memcpy DtoH (Device -> Pinned)",
															  400) ",\n" COPY(1202,
																	  1,
																	  "Memcpy HtoH (Pageable -> Pinned)",
																	  400) ",\n" KERNEL(1310,
																			    1,
																			    4,
																			    "after"));

static const struct hb_import_options plain = {.name = "w", .device = -1};

static int import_text(const char *text, const struct hb_import_options *options, struct hb_trace_set *set,
		       struct hb_import_report *report, struct hb_error *error)
{
	char *path = test_text("in.json", text);
	int code = hb_trace_import(path, options, set, report, error);
	free(path);
	return code;
}

static void expect_error(const char *text, const struct hb_import_options *options, const char *message)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	assert_int_equal(import_text(text, options, &set, &report, &error), -EINVAL);
	char *path = test_path("in.json"), expected[600];
	snprintf(expected, sizeof expected, "%s:%s", path, message);
	assert_string_equal(error.text, expected);
	assert_int_equal(set.n_workloads, 0);
	free(path);
}

static void kineto_steps_are_iterations_by_launch(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	assert_int_equal(import_text(two_steps, &plain, &set, &report, &error), 0);
	assert_int_equal(report.format, HB_IMPORT_KINETO);
	assert_int_equal(report.iterations, 2);
	/* The copy has no launch, so its place is the time when it ran: after both steps, like "after". */
	assert_int_equal(report.outside, 2);
	assert_int_equal(report.ops, 3);
	assert_string_equal(report.split, "the profiler's steps");
	const struct hb_workload *w = hb_trace_find(&set, "w");
	assert_int_equal(w->iterations[0].n_ops, 2);
	assert_string_equal(set.names[w->ops[0].name], "first");
	assert_int_equal(w->ops[0].start_ns, 0);
	assert_int_equal(w->ops[0].duration_ns, 5125);
	assert_int_equal(w->ops[1].start_ns, 9750);
	assert_int_equal(w->ops[0].blocks, 196);
	assert_int_equal(w->ops[0].threads, 256);
	assert_int_equal(w->ops[0].registers, 40);
	assert_int_equal(w->ops[0].shared_bytes, 4096);
	assert_string_equal(set.names[w->ops[2].name], "later, \"k\"");
	/* Launched 10 and 20 us into the first step; a launch before cost 3.5 us more than without the profiler. */
	assert_int_equal(w->ops[0].host_ns, 10000);
	assert_int_equal(w->ops[1].host_ns, 16500);
	assert_int_equal(w->ops[2].host_ns, 10000);
	assert_int_equal(w->ops[2].start_ns, 0);
	hb_trace_set_fini(&set);
}

/* First launch to end, less 3.5 us for each op the GPU waited for: 165 - 7 and 90.5 - 3.5 us; the larger is the median of two. */
static void time_alone_is_estimated_from_launches(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	assert_int_equal(import_text(two_steps, &plain, &set, &report, NULL), 0);
	assert_true(report.alone_estimated);
	assert_int_equal(set.workloads[0].alone_ns, 158000);
	hb_trace_set_fini(&set);

	struct hb_import_options measured = plain;
	measured.alone_ns = 99000;
	assert_int_equal(import_text(two_steps, &measured, &set, &report, NULL), 0);
	assert_false(report.alone_estimated);
	assert_int_equal(set.workloads[0].alone_ns, 99000);
	hb_trace_set_fini(&set);

	/* Without launches the time alone cannot be estimated. */
	assert_int_equal(import_text(TRACE(KERNEL(10, 5, 1, "k")), &plain, &set, &report, NULL), 0);
	assert_int_equal(set.workloads[0].alone_ns, 0);
	hb_trace_set_fini(&set);
}

static const char six[] = TRACE(KERNEL(0, 5, 1, "a") "," KERNEL(6, 5, 2, "b") "," KERNEL(100, 5, 3, "a") "," KERNEL(
	107, 5, 4, "b") "," KERNEL(120, 5, 5, "a") "," COPY(126, 5, "Memcpy HtoD (Pageable -> Device)", 64));

static void expect_iterations(const struct hb_import_options *options, const char *how, const uint32_t *n_ops,
			      uint32_t n)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	if (import_text(six, options, &set, &report, &error))
		fail_msg("%s", error.text);
	assert_string_equal(report.split, how);
	assert_int_equal(set.workloads[0].n_iterations, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(set.workloads[0].iterations[i].n_ops, n_ops[i]);
	hb_trace_set_fini(&set);
}

static void iterations_by_gap_and_by_count(void **state)
{
	struct hb_import_options options = plain;
	expect_iterations(&options, "none found", (const uint32_t[]){6}, 1);
	options.split_gap_ns = 8000;
	expect_iterations(&options, "gaps", (const uint32_t[]){2, 2, 2}, 3);
	options.split_gap_ns = 80000;
	expect_iterations(&options, "gaps", (const uint32_t[]){2, 4}, 2);
	options.split_gap_ns = 0;
	/* The work does not repeat three times, so the two longest gaps decide. */
	options.iterations = 3;
	expect_iterations(&options, "the longest gaps", (const uint32_t[]){2, 2, 2}, 3);
	options.iterations = 2;
	expect_iterations(&options, "the longest gaps", (const uint32_t[]){2, 4}, 2);
}

static void equal_work_is_cut_equally(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_import_options options = {.name = "w", .device = -1, .iterations = 2};
	/* The longest gap is inside the first half. */
	assert_int_equal(import_text(TRACE(KERNEL(0, 5, 1, "a") "," KERNEL(60, 5, 2, "b") "," KERNEL(
					     66, 5, 3, "a") "," KERNEL(80, 5, 4, "b")),
				     &options, &set, &report, NULL),
			 0);
	assert_string_equal(report.split, "repeating work");
	assert_int_equal(set.workloads[0].iterations[1].first_op, 2);
	hb_trace_set_fini(&set);
}

static void bare_arrays_gzip_and_epoch_times(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	static const char text[] = "[" KERNEL(1740461679472450, 3320, 1, "a") "," KERNEL(1740461679475771, 0, 1,
											 "b") ",]";
	char *path = test_gzip("trace.json.gz", text, SIZE_MAX);
	assert_int_equal(hb_trace_import(path, &plain, &set, &report, &error), 0);
	assert_int_equal(set.workloads[0].ops[1].start_ns, 3321000);
	assert_int_equal(set.workloads[0].ops[1].duration_ns, 1); /* a profiler that counts in us writes 0 */
	hb_trace_set_fini(&set);
	free(path);
	path = test_gzip("cut.json.gz", text, 150);
	assert_int_equal(hb_trace_import(path, &plain, &set, &report, &error), -EINVAL);
	assert_non_null(strstr(error.text, ": the gzip data ends early: the file is truncated, copy it again"));
	free(path);
}

static void only_one_device_is_taken(void **state)
{
	static const char text[] = TRACE(KERNEL(0, 5, 1, "a") "," KERNEL(
		6, 5, 2,
		"b") ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"c\",\"ts\":1,\"dur\":1,\"args\":{\"device\":3,\"grid\":[1,1,1],\"block\":[1,1,1]}}");
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_import_options options = plain;
	assert_int_equal(import_text(text, &options, &set, &report, NULL), 0);
	assert_int_equal(report.ops, 2);
	assert_int_equal(report.elsewhere, 1);
	hb_trace_set_fini(&set);
	options.device = 3;
	assert_int_equal(import_text(text, &options, &set, &report, NULL), 0);
	assert_int_equal(report.ops, 1);
	hb_trace_set_fini(&set);
	options.device = 1;
	expect_error(text, &options, " no kernels or copies on device 1");
}

static void named_ranges(void **state)
{
	static const char text[] = TRACE(
		"{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"infer\",\"ts\":0,\"dur\":50},"
		"{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"gpu only\",\"ts\":0,\"dur\":50}," KERNEL(
			10, 5, 1, "a") "," KERNEL(60, 5, 2, "b"));
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_import_options options = plain;
	options.range = "infer";
	assert_int_equal(import_text(text, &options, &set, &report, NULL), 0);
	assert_string_equal(report.split, "ranges");
	assert_int_equal(report.outside, 1);
	hb_trace_set_fini(&set);
	options.range = "gpu only";
	assert_int_equal(import_text(text, &options, &set, &report, NULL), 0);
	assert_int_equal(report.ops, 1);
	hb_trace_set_fini(&set);
	options.range = "train";
	expect_error(text, &options, " no range is named 'train'");
}

static void kineto_errors(void **state)
{
	struct hb_import_options options = plain;
	expect_error("", &options, "1: not a Chrome trace: expected '{' or '['");
	expect_error("\n\nhello", &options, "3: not a Chrome trace: expected '{' or '['");
	expect_error("{}", &options, " no kernels or copies in the recording: was CUDA activity recorded?");
	expect_error("[]", &options, " no kernels or copies in the recording: was CUDA activity recorded?");
	expect_error("{\"traceEvents\": 5}", &options, "1: not a Chrome trace: expected an array of events");
	expect_error("{\"a\" 5}", &options, "1: not a Chrome trace: expected ':'");
	expect_error("{5: 5}", &options, "1: not a Chrome trace: expected a key");
	expect_error("{\"traceEvents\": [\n{\"ph\": \"X\",\n", &options,
		     "3: not a Chrome trace: expected the end of an object or array: the file is cut short");
	expect_error("{\"traceEvents\": [\n{\"ph\": \"X", &options,
		     "2: not a Chrome trace: expected the end of a string");
	expect_error("{\"traceEvents\": [{}", &options, "1: not a Chrome trace: expected more: the file is cut short");
	expect_error("{\"traceEvents\": []", &options, "1: not a Chrome trace: expected more: the file is cut short");
	expect_error("[\n{\"ph\": X}]", &options, "2: bad JSON in the event that begins here: invalid token near 'X'");
	expect_error("[] []", &options, "1: not a Chrome trace: expected the end of the file");
	expect_error(TRACE(KERNEL(1, -5, 1, "k")), &options, "3: event 'k': its duration_us is negative");
	expect_error(TRACE(KERNEL(1, "5", 1, "k")), &options, "3: event 'k': 'dur' is not a number of microseconds");
	expect_error(TRACE(KERNEL(null, 5, 1, "k")), &options, "3: event 'k': 'ts' is not a number of microseconds");
	expect_error(TRACE(KERNEL(1e300, 5, 1, "k")), &options,
		     "3: event 'k': its start_us is more than a day (86400000000 us)");
	expect_error(
		TRACE("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"dur\":1,\"args\":{\"grid\":[0,1,1],\"block\":[1,1,1]}}"),
		&options, "3: event 'k': its grid has a number below 1");
	expect_error(
		TRACE("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"dur\":1,\"args\":{\"grid\":[1,1],\"block\":[1,1,1]}}"),
		&options, "3: event 'k': 'grid' is not three whole numbers");
	expect_error(TRACE("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"dur\":1}"), &options,
		     "3: event 'k': 'grid' is not three whole numbers");
	options.iterations = 7;
	expect_error(six, &options, " 6 ops cannot be 7 iterations");
}

static void options_errors(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	struct hb_import_options options = {.name = "a/b", .device = -1};
	assert_int_equal(import_text(six, &options, &set, &report, &error), -EINVAL);
	assert_string_equal(error.text, "workload name 'a/b' may hold letters, digits, '_', '-' and '.' only");
	options = (struct hb_import_options){.name = "w", .device = -1, .iterations = 2, .split_gap_ns = 5};
	assert_int_equal(import_text(six, &options, &set, &report, &error), -EINVAL);
	assert_string_equal(error.text, "iterations are found by a range, a gap or a count: give one of them");
}

static void an_event_of_a_megabyte_is_an_error(void **state)
{
	size_t length = (2u << 20) + 8;
	char *text = malloc(length + 1), expected[200];
	memset(text, ' ', length);
	memcpy(text, "[\n{\"a\"", 6);
	memcpy(text + length - 3, ":5}", 4);
	char *path = test_text("in.json", text);
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	assert_int_equal(hb_trace_import(path, &plain, &set, &report, &error), -E2BIG);
	snprintf(expected, sizeof expected, "%s:2: an event is longer than 1048576 bytes", path);
	assert_string_equal(error.text, expected);
	free(path);
	free(text);
}

/* A recording of two processes, which use the same correlation numbers. */
static const char nsys_schema[] =
	"CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
	" contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
	" demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,"
	" registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,"
	" blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,"
	" dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,"
	" gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
	" contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,"
	" copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
	" contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
	" globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);"
	"CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,"
	" color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);"
	"INSERT INTO StringIds VALUES (1, 'void gemm<float>(float *)'), (2, 'gemm'), (3, 'request'), (4, 'cudaLaunchKernel_v7000');";

#define NSYS_KERNEL(start, end, correlation, pid) \
	"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" #start "," #end ",0,1,7," #correlation "," #pid \
	"*16777216,1,2,NULL,0,0,96," \
	"4,98,1,128,1,1,1024,2048,0,0,1,0,NULL,0);"
#define NSYS_LAUNCH(start, correlation, pid) \
	"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" #start "," #start "+5,0," #pid "*16777216+77," #correlation \
	",4,0,NULL);"

static const char nsys_rows[] = NSYS_KERNEL(5000, 9000, 11, 42) NSYS_KERNEL(20000, 21000, 12, 42) NSYS_KERNEL(
	30000, 31000, 13, 42) NSYS_KERNEL(100, 200, 11, 43) NSYS_LAUNCH(3000, 11, 42) NSYS_LAUNCH(10, 11, 43)
	NSYS_LAUNCH(15000, 12, 42) NSYS_LAUNCH(
		16000, 13,
		42) "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9500,9600,0,1,7,20,42*16777216,4096,2,NULL,0,2,NULL);"
		    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9700,9800,0,1,7,20,42*16777216,4096,9,NULL,0,0,NULL);"
		    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (9900,9950,0,1,7,21,42*16777216,0,64,NULL,2);"
		    "INSERT INTO NVTX_EVENTS VALUES (2900,9999,59,NULL,NULL,NULL,'request',42*16777216+77,NULL,NULL,0);"
		    "INSERT INTO NVTX_EVENTS VALUES (14000,17000,60,NULL,NULL,NULL,NULL,42*16777216+77,NULL,3,0);"
		    "INSERT INTO NVTX_EVENTS VALUES (14000,NULL,34,NULL,NULL,NULL,'request',42*16777216+77,NULL,NULL,0);";

static char *test_database(const char *schema, const char *rows)
{
	char *path = test_path("in.sqlite"), *reason = NULL;
	sqlite3 *db = NULL;
	unlink(path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, schema, NULL, NULL, &reason) || sqlite3_exec(db, rows, NULL, NULL, &reason))
		fail_msg("%s", reason);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return path;
}

static void nsys_tables_become_a_workload(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	struct hb_import_options options = plain;
	char *path = test_database(nsys_schema, nsys_rows);
	options.range = "request";
	if (hb_trace_import(path, &options, &set, &report, &error))
		fail_msg("%s", error.text);
	assert_int_equal(report.format, HB_IMPORT_NSYS);
	assert_int_equal(report.iterations, 2);
	assert_int_equal(report.ops, 5);
	assert_int_equal(report.elsewhere, 1); /* the other process */
	assert_int_equal(report.outside, 0);
	const struct hb_workload *w = &set.workloads[0];
	assert_string_equal(set.names[w->ops[0].name], "void gemm<float>(float *)");
	assert_int_equal(w->ops[0].duration_ns, 4000);
	assert_int_equal(w->ops[0].blocks, 392);
	assert_int_equal(w->ops[0].threads, 128);
	assert_int_equal(w->ops[0].registers, 96);
	assert_int_equal(w->ops[0].shared_bytes, 3072);
	assert_int_equal(w->ops[1].kind, HB_OP_COPY_D2H);
	assert_int_equal(w->ops[1].bytes, 4096);
	assert_int_equal(w->ops[2].kind, HB_OP_MEMSET);
	assert_int_equal(w->ops[2].bytes, 64);
	/* 3000 to 9950 and 15000 to 31000 as recorded; the larger is the median of two. */
	assert_int_equal(w->alone_ns, 16000);
	hb_trace_set_fini(&set);
	free(path);
}

static void expect_nsys_error(const char *schema, const char *rows, const char *range, const char *message)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	struct hb_import_options options = plain;
	char *path = test_database(schema, rows), expected[600];
	options.range = range;
	assert_int_equal(hb_trace_import(path, &options, &set, &report, &error), -EINVAL);
	snprintf(expected, sizeof expected, "%s: %s", path, message);
	assert_string_equal(error.text, expected);
	assert_int_equal(set.n_workloads, 0);
	free(path);
}

static void nsys_errors(void **state)
{
	expect_nsys_error("CREATE TABLE t (a)", "", NULL, "no table StringIds: not an export of Nsight Systems");
	expect_nsys_error(nsys_schema, "", NULL, "no kernels or copies in the recording: was CUDA activity recorded?");
	expect_nsys_error(nsys_schema, NSYS_KERNEL(10, 5, 1, 1), NULL,
			  "CUPTI_ACTIVITY_KIND_KERNEL row 1: its duration_us is negative");
	expect_nsys_error(nsys_schema, NSYS_KERNEL(10, 15, 1, 1) "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridY = 0",
			  NULL, "CUPTI_ACTIVITY_KIND_KERNEL row 1: its grid has a number below 1");
	expect_nsys_error(nsys_schema, NSYS_KERNEL(9000000000000000000, 9000000000000000001, 1, 1), NULL,
			  "CUPTI_ACTIVITY_KIND_KERNEL row 1: its start_us is more than a day (86400000000 us)");
	expect_nsys_error(nsys_schema, nsys_rows, "train", "no range is named 'train'");
	expect_nsys_error("CREATE TABLE StringIds (id, value); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end);",
			  "", NULL, "CUPTI_ACTIVITY_KIND_KERNEL: no such column: k.deviceId");
	expect_nsys_error(
		"CREATE TABLE StringIds (id, value); CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end);",
		"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2)", NULL,
		"CUDA graphs were recorded as a whole; record with --cuda-graph-trace=node");
}

static void a_damaged_database_is_an_error(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_import_report report;
	struct hb_error error = {0};
	char expected[300];
	char *path = test_database(nsys_schema, nsys_rows);
	assert_int_equal(truncate(path, 9000), 0);
	assert_int_equal(hb_trace_import(path, &plain, &set, &report, &error), -EINVAL);
	snprintf(expected, sizeof expected, "%s: StringIds: database disk image is malformed", path);
	assert_string_equal(error.text, expected);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kineto_steps_are_iterations_by_launch),
		cmocka_unit_test(time_alone_is_estimated_from_launches),
		cmocka_unit_test(iterations_by_gap_and_by_count),
		cmocka_unit_test(equal_work_is_cut_equally),
		cmocka_unit_test(bare_arrays_gzip_and_epoch_times),
		cmocka_unit_test(only_one_device_is_taken),
		cmocka_unit_test(named_ranges),
		cmocka_unit_test(kineto_errors),
		cmocka_unit_test(options_errors),
		cmocka_unit_test(an_event_of_a_megabyte_is_an_error),
		cmocka_unit_test(nsys_tables_become_a_workload),
		cmocka_unit_test(nsys_errors),
		cmocka_unit_test(a_damaged_database_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
