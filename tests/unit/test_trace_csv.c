/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what the trace reader makes of good files, and its message for each kind of bad file. */
#include "test_files.h"

#include "trace/trace.h"

#include <errno.h>
#include <stdlib.h>

#define HEADER "workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes\n"
#define KERNEL "w,0,kernel,k,0.0,1.5,2x3x4,32x2x1,40,1024,\n"

/* Reads the text as FILE.csv and checks the whole message, with FILE in front. */
static void expect_error(const char *text, int code, const char *message)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *path = test_file("trace.csv", text, strlen(text));
	char expected[700];
	snprintf(expected, sizeof expected, "%s:%s", path, message);
	assert_int_equal(hb_trace_read_csv(path, &set, &error), code);
	assert_string_equal(error.text, expected);
	assert_int_equal(set.n_workloads, 0);
	assert_null(set.names);
	free(path);
}

static void reads_every_field(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *path = test_text("trace.csv",
			       HEADER KERNEL "w,0,memcpy,\"Memcpy \"\"HtoD\"\", pinned\",2.25,3,,,,,4096\r\n"
					     "\n"
					     "w,7,memset,Memset (Device),1000.5,0.001,,,,,64\n"
					     "v,0,kernel,k,0,1e3,1x1x1,1x1x1,,,\n");
	assert_int_equal(hb_trace_read_csv(path, &set, &error), 0);
	assert_int_equal(set.n_workloads, 2);
	assert_int_equal(set.n_names, 3);
	const struct hb_workload *w = hb_trace_find(&set, "w");
	assert_ptr_equal(w, &set.workloads[0]);
	assert_int_equal(w->n_iterations, 2);
	assert_int_equal(w->iterations[1].first_op, 2);
	assert_int_equal(w->iterations[1].n_ops, 1);
	const struct hb_op *op = w->ops;
	assert_int_equal(op->kind, HB_OP_KERNEL);
	assert_int_equal(op->duration_ns, 1500);
	assert_int_equal(op->blocks, 24);
	assert_int_equal(op->threads, 64);
	assert_int_equal(op->registers, 40);
	assert_int_equal(op->shared_bytes, 1024);
	assert_int_equal(op->cluster, 1);
	assert_string_equal(set.names[op[1].name], "Memcpy \"HtoD\", pinned");
	assert_int_equal(op[1].kind, HB_OP_COPY_H2D);
	assert_int_equal(op[1].start_ns, 2250);
	assert_int_equal(op[1].bytes, 4096);
	assert_int_equal(op[2].start_ns, 0); /* counts from the iteration's first row */
	assert_int_equal(op[2].duration_ns, 1);
	assert_int_equal(set.workloads[1].ops[0].duration_ns, 1000000);
	assert_int_equal(set.workloads[1].ops[0].name, op->name);
	assert_null(hb_trace_find(&set, "u"));
	hb_trace_set_fini(&set);
	free(path);
}

static void recorded_trace_round_trips(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	assert_int_equal(hb_trace_read_csv(TRACES "/h200-pytorch-2.11.csv.gz", &set, &error), 0);
	assert_int_equal(set.n_workloads, 5);
	const struct hb_workload *train = hb_trace_find(&set, "resnet50_train_b128");
	assert_int_equal(train->n_iterations, 3);
	assert_int_equal(train->n_ops, 2880);
	assert_int_equal(train->alone_ns, 29324000);
	assert_int_equal(train->alone_graph_ns, 0);
	assert_int_equal(hb_trace_find(&set, "resnet50_b1")->alone_graph_ns, 770000);

	char *written = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&written, &length);
	assert_int_equal(hb_trace_write_csv(out, &set), 0);
	fclose(out);
	char *recorded = test_read(TRACES "/h200-pytorch-2.11.csv.gz");
	assert_true(strcmp(written, recorded) == 0);
	free(written);
	free(recorded);
	hb_trace_set_fini(&set);
}

static void header_errors(void **state)
{
	expect_error("", -EINVAL, "1: the file is empty: the first row must name the columns");
	expect_error("workload,iteration,kind,name,start_us,grid,block,registers,shared_bytes,bytes\n", -EINVAL,
		     "1: column 'duration_us' is missing from the header");
	expect_error("workload,kind,kind,name\n", -EINVAL, "1: column 'iteration' is missing from the header");
	expect_error("workload,iteration,kind,kind,name\n", -EINVAL, "1: column 'kind' is there twice");
	expect_error(HEADER, -EINVAL, "2: no rows after the header");
}

/* One bad value in the second row of an otherwise good file. */
static void expect_row_error(const char *row, const char *message)
{
	char text[1024], expected[600];
	snprintf(text, sizeof text, "%s%s%s\n", HEADER, KERNEL, row);
	snprintf(expected, sizeof expected, "3: %s", message);
	expect_error(text, -EINVAL, expected);
}

static void duration_errors(void **state)
{
	expect_row_error("w,0,kernel,k,1,-1.5,1x1x1,1x1x1,,,", "column 'duration_us': '-1.5' is negative");
	expect_row_error("w,0,kernel,k,1,0,1x1x1,1x1x1,,,",
			 "column 'duration_us': '0' is less than a nanosecond (0.001 us)");
	expect_row_error("w,0,kernel,k,1,0.0004,1x1x1,1x1x1,,,",
			 "column 'duration_us': '0.0004' is less than a nanosecond (0.001 us)");
	expect_row_error("w,0,kernel,k,1,nan,1x1x1,1x1x1,,,",
			 "column 'duration_us': 'nan' is not a number of microseconds");
	expect_row_error("w,0,kernel,k,1,inf,1x1x1,1x1x1,,,",
			 "column 'duration_us': 'inf' is not a number of microseconds");
	expect_row_error("w,0,kernel,k,1,1e400,1x1x1,1x1x1,,,",
			 "column 'duration_us': '1e400' is not a number of microseconds");
	expect_row_error("w,0,kernel,k,1,1e300,1x1x1,1x1x1,,,",
			 "column 'duration_us': '1e300' is more than a day (86400000000 us)");
	expect_row_error("w,0,kernel,k,1,0x10,1x1x1,1x1x1,,,",
			 "column 'duration_us': '0x10' is not a number of microseconds");
	expect_row_error("w,0,kernel,k,1,,1x1x1,1x1x1,,,", "column 'duration_us': '' is not a number of microseconds");
	expect_row_error("w,0,kernel,k,1,1 2,1x1x1,1x1x1,,,",
			 "column 'duration_us': '1 2' is not a number of microseconds");
}

static void start_errors(void **state)
{
	expect_row_error("w,0,kernel,k,-1,1,1x1x1,1x1x1,,,", "column 'start_us': '-1' is negative");
	expect_row_error("w,0,kernel,k,1e99,1,1x1x1,1x1x1,,,",
			 "column 'start_us': '1e99' is more than a day (86400000000 us)");
	expect_error(
		HEADER
		"w,0,kernel,k,5,1,1x1x1,1x1x1,,,\nw,0,kernel,k,5,1,1x1x1,1x1x1,,,\nw,0,kernel,k,4.999,1,1x1x1,1x1x1,,,\n",
		-EINVAL, "4: column 'start_us': '4.999' is before the start of the row before: rows must ascend");
}

static void shape_errors(void **state)
{
	expect_row_error("w,0,kernel,k,1,1,0x1x1,1x1x1,,,", "column 'grid': '0x1x1' has a number below 1");
	expect_row_error("w,0,kernel,k,1,1,1x1,1x1x1,,,",
			 "column 'grid': '1x1' is not three whole numbers written XxYxZ");
	expect_row_error("w,0,kernel,k,1,1,1x1x1x1,1x1x1,,,",
			 "column 'grid': '1x1x1x1' is not three whole numbers written XxYxZ");
	expect_row_error("w,0,kernel,k,1,1,,1x1x1,,,", "column 'grid': '' is not three whole numbers written XxYxZ");
	expect_row_error("w,0,kernel,k,1,1,-1x1x1,1x1x1,,,",
			 "column 'grid': '-1x1x1' is not three whole numbers written XxYxZ");
	expect_row_error("w,0,kernel,k,1,1,2147483648x1x1,1x1x1,,,",
			 "column 'grid': '2147483648x1x1' is larger than CUDA allows");
	expect_row_error("w,0,kernel,k,1,1,1x65536x1,1x1x1,,,",
			 "column 'grid': '1x65536x1' is larger than CUDA allows");
	expect_row_error("w,0,kernel,k,1,1,99999999999999999999x1x1,1x1x1,,,",
			 "column 'grid': '99999999999999999999x1x1' is larger than CUDA allows");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,1x0x1,,,", "column 'block': '1x0x1' has a number below 1");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,64x32x1,,,", "column 'block': '64x32x1' is more than 1024 threads");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,1x1x65,,,", "column 'block': '1x1x65' is larger than CUDA allows");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,1x1x1,256,,", "column 'registers': '256' is too large");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,1x1x1,-1,,", "column 'registers': '-1' is not a whole number");
	expect_row_error("w,0,kernel,k,1,1,1x1x1,1x1x1,,1048577,", "column 'shared_bytes': '1048577' is too large");
}

static void other_value_errors(void **state)
{
	expect_row_error("w,0,spin,k,1,1,1x1x1,1x1x1,,,", "column 'kind': 'spin' is not kernel, memset or memcpy");
	expect_row_error("w,0,memcpy,copy,1,1,,,,,8",
			 "column 'name': 'copy' does not say the copy's direction (HtoD, DtoH or DtoD)");
	expect_row_error("w,0,memset,m,1,1,,,,,1099511627777", "column 'bytes': '1099511627777' is too large");
	expect_row_error("w,0,memset,m,1,1,,,,,1.5", "column 'bytes': '1.5' is not a whole number");
	expect_row_error("w,0,kernel,,1,1,1x1x1,1x1x1,,,", "column 'name': '' is empty");
	expect_row_error("w,0,kernel,a\xff,1,1,1x1x1,1x1x1,,,", "column 'name': 'a?' is not printable UTF-8 text");
	expect_row_error("w,0,kernel,\x1b[31m,1,1,1x1x1,1x1x1,,,",
			 "column 'name': '?[31m' is not printable UTF-8 text");
	expect_row_error("w,,kernel,k,1,1,1x1x1,1x1x1,,,", "column 'iteration': '' is not a whole number");
	expect_row_error("w,x,kernel,k,1,1,1x1x1,1x1x1,,,", "column 'iteration': 'x' is not a whole number");
	expect_row_error("a b,0,kernel,k,1,1,1x1x1,1x1x1,,,",
			 "column 'workload': 'a b' may hold letters, digits, '_', '-' and '.' only");
	expect_row_error("w,0,kernel,k,1", "5 fields, but the header names 11 columns");
	expect_row_error("w,0,kernel,k\"k\",1,1,1x1x1,1x1x1,,,",
			 "field 4: stray quote; a field with quotes is written \"like \"\"this\"\"\"");
	expect_row_error("w,0,kernel,\"k\"k\"\",1,1,1x1x1,1x1x1,,,",
			 "field 4: stray quote; a field with quotes is written \"like \"\"this\"\"\"");
	expect_row_error("w,0,kernel,\"k,1,1,1x1x1,1x1x1,,,",
			 "a quoted field is not closed before the end of the file");
}

static void order_errors(void **state)
{
	expect_error(HEADER "w,1,kernel,k,0,1,1x1x1,1x1x1,,,\nw,0,kernel,k,0,1,1x1x1,1x1x1,,,\n", -EINVAL,
		     "3: column 'iteration': '0' is less than in the row before: iterations must ascend");
	expect_error(
		HEADER
		"v,0,kernel,k,0,1,1x1x1,1x1x1,,,\nw,0,kernel,k,0,1,1x1x1,1x1x1,,,\nv,1,kernel,k,0,1,1x1x1,1x1x1,,,\n",
		-EINVAL, "4: column 'workload': 'v' began further up: a workload's rows must stand together");
}

static void optional_column_errors(void **state)
{
#define OPTIONAL \
	"workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes,cluster,host_us\n"
	expect_error(OPTIONAL "w,0,kernel,k,0,1,4x1x1,1x1x1,,,,3,\n", -EINVAL,
		     "2: column 'cluster': '3' does not divide the grid");
	expect_error(OPTIONAL "w,0,kernel,k,0,1,4x1x1,1x1x1,,,,0,\n", -EINVAL, "2: column 'cluster': '0' is below 1");
	expect_error(OPTIONAL "w,0,kernel,k,0,1,4x1x1,1x1x1,,,,,-1\n", -EINVAL,
		     "2: column 'host_us': '-1' is negative");
	expect_error(OPTIONAL "w,0,kernel,k,0,1,4x1x1,1x1x1,,,,,x\n", -EINVAL,
		     "2: column 'host_us': 'x' is not a number of microseconds");
#undef OPTIONAL
}

/* Every line inside of a quoted field counts. */
static void lines_are_counted_inside_quotes(void **state)
{
	expect_error(HEADER "w,0,kernel,\"two\nlines\",0,1,1x1x1,1x1x1,,,\n", -EINVAL,
		     "2: column 'name': 'two?lines' is not printable UTF-8 text");
	expect_error(
		"\"workload\",iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes,\"a\nb\"\nw\n",
		-EINVAL, "3: 1 fields, but the header names 12 columns");
}

static void a_huge_line_is_an_error_in_bounded_memory(void **state)
{
	/* A line of 100 MB in a gzip file of 100 KB. */
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *path = test_path("huge.csv.gz"), expected[200];
	static const char part[1 << 16] = {[0 ...(1 << 16) - 1] = 'x'};
	gzFile file = gzopen(path, "wb1");
	assert_non_null(file);
	gzputs(file, HEADER);
	for (int i = 0; i < 1600; i++)
		assert_int_equal(gzwrite(file, part, sizeof part), sizeof part);
	assert_int_equal(gzclose(file), Z_OK);
	assert_int_equal(hb_trace_read_csv(path, &set, &error), -E2BIG);
	snprintf(expected, sizeof expected, "%s:2: the line is longer than 65536 bytes", path);
	assert_string_equal(error.text, expected);
	free(path);
}

static void names_are_limited(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *path = test_path("names.csv"), expected[200];
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(HEADER, file);
	for (int i = 0; i <= 65536; i++)
		fprintf(file, "w,0,kernel,k%d,0,1,1x1x1,1x1x1,,,\n", i);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(hb_trace_read_csv(path, &set, &error), -E2BIG);
	snprintf(expected, sizeof expected, "%s:65538: more than 65536 different kernel names", path);
	assert_string_equal(error.text, expected);
	assert_null(set.names);
	free(path);
}

static void damaged_gzip_is_an_error(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char expected[300];
	char *text = test_read(TRACES "/h200-pytorch-2.11.csv.gz");
	char *path = test_gzip("cut.csv.gz", text, 50000);
	assert_int_equal(hb_trace_read_csv(path, &set, &error), -EINVAL);
	const char *tail = strchr(error.text + strlen(path) + 1, ':');
	assert_non_null(tail);
	assert_string_equal(tail, ": the gzip data ends early: the file is truncated, copy it again");
	assert_in_range(strtol(error.text + strlen(path) + 1, NULL, 10), 1000, 9000);
	free(path);

	path = test_gzip("damaged.csv.gz", text, SIZE_MAX);
	FILE *file = fopen(path, "r+b");
	fseek(file, 12, SEEK_SET);
	fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 1, 8, file);
	fclose(file);
	assert_int_equal(hb_trace_read_csv(path, &set, &error), -EINVAL);
	snprintf(expected, sizeof expected, "%s:1: the gzip data is damaged (", path);
	assert_memory_equal(error.text, expected, strlen(expected));
	free(path);
	free(text);
}

static void files_that_are_no_text(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	assert_int_equal(hb_trace_read_csv("/nonexistent/t.csv", &set, &error), -ENOENT);
	assert_string_equal(error.text, "/nonexistent/t.csv: cannot open: No such file or directory");
	assert_int_equal(hb_trace_read_csv("/", &set, &error), -EISDIR);
	assert_string_equal(error.text, "/: cannot open: Is a directory");
	char *path = test_file("nul.csv", HEADER "w\0w", sizeof HEADER + 2), expected[200];
	assert_int_equal(hb_trace_read_csv(path, &set, &error), -EINVAL);
	snprintf(expected, sizeof expected, "%s:2: the line holds a NUL byte: this is not a text file", path);
	assert_string_equal(error.text, expected);
	free(path);
}

static void a_second_file_joins_the_set_or_leaves_it_alone(void **state)
{
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *first = test_text("first.csv", HEADER KERNEL), expected[300];
	char *second = test_text("second.csv",
				 HEADER "v,0,kernel,other,0,1,1x1x1,1x1x1,,,\nv,0,kernel,k,1,1,1x1x1,1x1x1,,,\n");
	assert_int_equal(hb_trace_read_csv(first, &set, &error), 0);
	assert_int_equal(hb_trace_read_csv(first, &set, &error), -EINVAL);
	snprintf(expected, sizeof expected,
		 "%s:2: column 'workload': 'w' is already there from another trace: rename one", first);
	assert_string_equal(error.text, expected);
	assert_int_equal(set.n_workloads, 1);
	assert_int_equal(set.n_names, 1);
	assert_int_equal(hb_trace_read_csv(second, &set, &error), 0);
	assert_int_equal(set.n_workloads, 2);
	assert_int_equal(set.n_names, 2);
	assert_int_equal(set.workloads[1].ops[1].name, set.workloads[0].ops[0].name);
	hb_trace_set_fini(&set);
	free(first);
	free(second);
}

static void companion_errors(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"workload\nw\n", "1: column 'alone_us' is missing from the header"},
		{"workload,alone_us\nx,5\n",
		 "2: column 'workload': 'x' is not a workload of the trace beside this file"},
		{"workload,alone_us\nw,0\n", "2: column 'alone_us': '0' is not above 0"},
		{"workload,alone_us\nw,nan\n", "2: column 'alone_us': 'nan' is not a number of microseconds"},
		{"workload,alone_us\nw,1\nw,1\n", "3: column 'workload': 'w' is there twice"},
		{"workload,alone_us,alone_graph_us\nw,1,-1\n", "2: column 'alone_graph_us': '-1' is not above 0"},
	};
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	char *trace = test_text("pair.csv", HEADER KERNEL);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char expected[300];
		char *path = test_text("pair.alone.csv", cases[i].text);
		snprintf(expected, sizeof expected, "%s:%s", path, cases[i].message);
		assert_int_equal(hb_trace_read_csv(trace, &set, &error), -EINVAL);
		assert_string_equal(error.text, expected);
		assert_int_equal(set.n_workloads, 0);
		free(path);
	}
	free(trace);
}

static void expect_companion(const char *trace, const char *companion)
{
	char *path = hb_trace_alone_path(trace);
	assert_string_equal(path, companion);
	free(path);
}

static void companion_path(void **state)
{
	expect_companion("a/X.csv.gz", "a/X.alone.csv");
	expect_companion("X.csv", "X.alone.csv");
	expect_companion("X", "X.alone.csv");
	expect_companion("X.gz", "X.alone.csv");
	expect_companion(".csv", ".csv.alone.csv");
}

static void writes_what_it_reads(void **state)
{
	static const char text[] = HEADER "w,0,kernel,\"a \"\"b\"\", c\",0.0,13.28,4x98x1,128x1x1,96,4096,\n"
					  "w,0,memcpy,Memcpy DtoH (Device -> Pinned),151.52,1.344,,,,,12\n"
					  "w,1,memset,Memset (Device),0.0,0.001,,,,,0\n";
	static const char clusters[] =
		"workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes,cluster\n"
		"w,0,kernel,k,0.0,1.0,4x1x1,128x1x1,0,0,,2\n"
		"w,0,memset,m,1.0,1.0,,,,,8,1\n";
	static const char host[] =
		"workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes,host_us\n"
		"w,0,kernel,k,0.0,1.0,4x1x1,128x1x1,0,0,,33.35\n"
		"w,0,memset,m,1.0,1.0,,,,,8,\n";
	const char *const texts[] = {text, clusters, host};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct hb_trace_set set = {0};
		struct hb_error error = {0};
		char *path = test_text("same.csv", texts[i]), *written = NULL;
		size_t length = 0;
		assert_int_equal(hb_trace_read_csv(path, &set, &error), 0);
		FILE *out = open_memstream(&written, &length);
		assert_int_equal(hb_trace_write_csv(out, &set), 0);
		fclose(out);
		assert_string_equal(written, texts[i]);
		free(written);
		free(path);
		hb_trace_set_fini(&set);
	}
}

static void writing_to_a_full_disk_is_an_error(void **state)
{
	struct hb_trace_set set = {0};
	char *path = test_text("full.csv", HEADER KERNEL);
	assert_int_equal(hb_trace_read_csv(path, &set, NULL), 0);
	FILE *out = fopen("/dev/full", "w");
	assert_non_null(out);
	assert_int_equal(hb_trace_write_csv(out, &set), -EIO);
	fclose(out);
	hb_trace_set_fini(&set);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_field),
		cmocka_unit_test(recorded_trace_round_trips),
		cmocka_unit_test(header_errors),
		cmocka_unit_test(duration_errors),
		cmocka_unit_test(start_errors),
		cmocka_unit_test(shape_errors),
		cmocka_unit_test(other_value_errors),
		cmocka_unit_test(order_errors),
		cmocka_unit_test(optional_column_errors),
		cmocka_unit_test(lines_are_counted_inside_quotes),
		cmocka_unit_test(a_huge_line_is_an_error_in_bounded_memory),
		cmocka_unit_test(names_are_limited),
		cmocka_unit_test(damaged_gzip_is_an_error),
		cmocka_unit_test(files_that_are_no_text),
		cmocka_unit_test(a_second_file_joins_the_set_or_leaves_it_alone),
		cmocka_unit_test(companion_errors),
		cmocka_unit_test(companion_path),
		cmocka_unit_test(writes_what_it_reads),
		cmocka_unit_test(writing_to_a_full_disk_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
