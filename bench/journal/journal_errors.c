/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a journal of `hb serve --journal` (src/server/models/journal.h) and
 * computes how far the predictions would have been off: with the complete
 * predictor and with parts of it switched off. A journal is divided into
 * intervals by its policy changes; what the predictors learn in one interval
 * stays for the next. Used by bench/serve_live.py.
 *
 * usage: journal-errors FILE
 * output: {"intervals": [{"begin_ns": T, "policy": NAME, "prediction_error": {...}}]}
 * exit status: 0, or 1 with a message that names the line.
 */
#include "base/json.h"
#include "journal_reader.h"
#include "simserving/serving_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_intervals(const struct journal_reader *reader)
{
	json_t *list = json_array();
	for (size_t i = 0; i < reader->n && list; i++) {
		const struct journal_interval *interval = &reader->intervals[i];
		json_t *errors = hb_serving_errors_pack(interval->error, reader->error);
		json_t *object = hb_json_pack(reader->error, "{s:I, s:s, s:o}", "begin_ns",
					      (json_int_t)interval->begin_ns, "policy", interval->policy,
					      "prediction_error", errors);
		json_array_append_new(list, object);
	}
	json_t *root = hb_json_pack(reader->error, "{s:o}", "intervals", list);
	int rc = root ? hb_json_write(root, stdout, reader->error) : -ENOMEM;
	json_decref(root);
	return rc;
}

int main(int argc, char **argv)
{
	struct hb_error error = {""};
	if (argc != 2) {
		fputs("usage: journal-errors FILE\n", stderr);
		return 2;
	}
	struct journal_reader reader = {.name = argv[1], .error = &error};
	FILE *file = fopen(argv[1], "re");
	int rc = file ? journal_reader_read(&reader, file)
		      : hb_error_set(&error, -errno, "%s: %s", argv[1], strerror(errno));
	rc = rc ? rc : write_intervals(&reader);
	if (file)
		fclose(file);
	free(reader.intervals);
	if (rc)
		fprintf(stderr, "journal-errors: %s\n", error.text);
	return rc ? 1 : 0;
}
