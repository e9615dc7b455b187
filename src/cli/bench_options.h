/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `hb bench`, read; used by cmd_bench.c only. */
#ifndef HB_CLI_BENCH_OPTIONS_H
#define HB_CLI_BENCH_OPTIONS_H

#include "bench/bench_run.h"

enum hb_bench_verb { HB_BENCH_VERB_HELP, HB_BENCH_VERB_LIST, HB_BENCH_VERB_RUN, HB_BENCH_VERB_REPORT };

struct hb_bench_command_line {
	enum hb_bench_verb verb;
	struct hb_bench_options run;
	bool json;
	const char *file;        /* report: what is read */
	const char *report_path; /* NULL = none */
	const char *out_folder;  /* run: for SUITE.json and SUITE.html, NULL = none */
	const char *gpu;         /* "sim", a number, NULL = the first real one, or simulated where there is none */
	char *sharing_list;      /* own */
};

/* An enum hb_exit; what was wrong has been told. */
int hb_bench_command_line_parse(struct hb_bench_command_line *line, int argc, char **argv);
void hb_bench_command_line_fini(struct hb_bench_command_line *line);

#endif
