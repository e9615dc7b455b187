/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a journal (src/server/models/journal.h) for journal_errors.c. */
#ifndef HB_BENCH_JOURNAL_READER_H
#define HB_BENCH_JOURNAL_READER_H

#include "simserving/serving_watch.h"

#include <stdio.h>

struct journal_interval {
	int64_t begin_ns; /* when its policy was set; 0 = start of the reader */
	char policy[64];  /* "" = the policy that the server was started with */
	struct hb_serving_error_result error[HB_ERROR_ROWS];
};

/* Begins with `name` and `error` only. Free `intervals` also after an error. */
struct journal_reader {
	const char *name; /* of the file, for messages */
	struct hb_error *error;
	uint64_t line;
	struct hb_serving_watch watch;
	struct journal_interval *intervals;
	size_t n;
	bool in_flight[HB_SCHEDULER_FLIGHTS_MAX];
};

/* Returns 0, or negative errno with *reader->error, which names the line. */
int journal_reader_read(struct journal_reader *reader, FILE *in);

#endif
