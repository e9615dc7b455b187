/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of the trace reader: what a good file becomes, and what each bad one is told. */
#include "test_files.h"

#include "sim/trace.h"

#include <errno.h>
#include <stdlib.h>

#define HEADER "workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes\n"
#define KERNEL "w,0,kernel,k,0.0,1.5,2x3x4,32x2x1,40,1024,\n"

/* Reads the text as FILE.csv and checks the whole message, with FILE in front. */
static void expect_error(const char *text, int code, const char *message)
{
	struct hb_trace_set set = { 0 };
	struct hb_error error = { 0 };
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
	struct hb_trace_set set = { 0 };
	struct hb_error error = { 0 };
	char *path = test_text("trace.csv", HEADER KERNEL
			       "w,0,memcpy,\"Memcpy \"\"HtoD\"\", pinned\",2.25,3,,,,,4096\r\n"
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
	struct hb_trace_set set = { 0 };
	struct hb_error error = { 0 };
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_field),
		cmocka_unit_test(recorded_trace_round_trips),
		cmocka_unit_test(header_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
