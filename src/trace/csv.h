/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads comma-separated rows (RFC 4180) with a header row; fields are found by the
 * name of their column. Used by the readers of traces and of their companion
 * files, which know the values that a column may hold.
 */
#ifndef HB_SIM_CSV_H
#define HB_SIM_CSV_H

#include "trace/line_reader.h"

#include <stdint.h>

#define HB_CSV_COLUMNS_MAX 64

struct hb_csv_column {
	const char *name;
	int required;
};

struct hb_csv {
	struct hb_line_reader *lines;
	const struct hb_csv_column *columns;
	uint32_t n_columns;                  /* the columns that the reader knows */
	uint32_t n_fields;                   /* number of fields in the file's rows */
	int8_t field_of[HB_CSV_COLUMNS_MAX]; /* field number of each column; -1 = the file has no such column */
	char *fields[HB_CSV_COLUMNS_MAX];
};

/*
 * Opens the file and reads its header row. Columns of the file that are not in
 * `columns` (which must outlive *csv) are ignored. Errors as hb_line_next(),
 * and -EINVAL for a required column that is missing or a column that occurs twice.
 */
int hb_csv_open(struct hb_csv *csv, const char *path, const struct hb_csv_column *columns, uint32_t n_columns,
		struct hb_error *error);
void hb_csv_close(struct hb_csv *csv);
/* Reads the next row. Returns 1, 0 at the end of the file, or an error. Empty lines are skipped. */
int hb_csv_next(struct hb_csv *csv, struct hb_error *error);
/* Returns the field's text, "" where the file has no such column; valid and writable until the next row. */
char *hb_csv_field(struct hb_csv *csv, uint32_t column);
/*
 * Converts a field of microseconds to ns, saturated (hb_ns_from_us()). Returns 0, or -EINVAL when it is not a number.
 */
int hb_csv_us(struct hb_csv *csv, uint32_t column, int64_t *ns, struct hb_error *error);
/*
 * Writes the error "FILE:LINE: column 'NAME': 'VALUE' <why>", with the value made printable and short. Returns -EINVAL.
 */
int hb_csv_field_error(struct hb_csv *csv, uint32_t column, const char *why, struct hb_error *error);

#endif
