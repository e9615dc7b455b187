/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 4180 rows with a header; see csv.h. */
#include "trace/csv.h"

#include "base/parse_number.h"
#include "trace/trace_op.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char no_text[1];

/* Returns whether a quoted field is still open at the end of the text: the row then continues in the next line. */
static bool is_quote_open(const char *text)
{
	bool open = false;
	for (; *text; text++)
		open ^= *text == '"';
	return open;
}

/* Takes one quoted field off *text and unescapes it in place. NULL = something follows the closing quote. */
static char *take_quoted(char **text)
{
	char *field = *text + 1;
	char *to = field, *from = field;
	while (*from != '"' || from[1] == '"') {
		if (!*from)
			return NULL;
		from += *from == '"';
		*to++ = *from++;
	}
	from++;
	if (*from && *from != ',')
		return NULL;
	*text = *from ? from + 1 : NULL;
	*to = '\0';
	return field;
}

/* Takes one plain field off *text; NULL = it contains a quote. *text is NULL after the last field. */
static char *take_plain(char **text)
{
	char *field = *text;
	size_t length = strcspn(field, ",\"");
	if (field[length] == '"')
		return NULL;
	*text = field[length] ? field + length + 1 : NULL;
	field[length] = '\0';
	return field;
}

/* Splits the row into csv->fields. */
static int split_row(struct hb_csv *csv, char *text, uint32_t *count, struct hb_error *error)
{
	uint32_t n = 0;
	while (text) {
		if (n == HB_CSV_COLUMNS_MAX)
			return hb_line_error(csv->lines, error, -E2BIG, "more than %d columns", HB_CSV_COLUMNS_MAX);
		char *field = *text == '"' ? take_quoted(&text) : take_plain(&text);
		if (!field)
			return hb_line_error(
				csv->lines, error, -EINVAL,
				"field %u: stray quote; a field with quotes is written \"like \"\"this\"\"\"", n + 1);
		csv->fields[n++] = field;
	}
	*count = n;
	return 0;
}

/* Reads one row, which may span several lines. */
static int read_row(struct hb_csv *csv, uint32_t *count, struct hb_error *error)
{
	char *line = NULL;
	int got = hb_line_next(csv->lines, &line, error);
	while (got > 0 && !*line)
		got = hb_line_next(csv->lines, &line, error);
	if (got <= 0)
		return got;
	while (is_quote_open(line)) {
		got = hb_line_append(csv->lines, &line, error);
		if (got < 0)
			return got;
		if (!got)
			return hb_line_error(csv->lines, error, -EINVAL,
					     "a quoted field is not closed before the end of the file");
	}
	got = split_row(csv, line, count, error);
	return got ? got : 1;
}

static int find_columns(struct hb_csv *csv, struct hb_error *error)
{
	for (uint32_t column = 0; column < csv->n_columns; column++) {
		const char *name = csv->columns[column].name;
		csv->field_of[column] = -1;
		for (uint32_t field = 0; field < csv->n_fields; field++) {
			if (strcmp(csv->fields[field], name) != 0)
				continue;
			if (csv->field_of[column] >= 0)
				return hb_line_error(csv->lines, error, -EINVAL, "column '%s' is there twice", name);
			csv->field_of[column] = (int8_t)field;
		}
		if (csv->field_of[column] < 0 && csv->columns[column].required)
			return hb_line_error(csv->lines, error, -EINVAL, "column '%s' is missing from the header",
					     name);
	}
	return 0;
}

static int read_header(struct hb_csv *csv, struct hb_error *error)
{
	static const char byte_order_mark[] = "\xef\xbb\xbf";
	int got = read_row(csv, &csv->n_fields, error);
	if (got < 0)
		return got;
	if (!got)
		return hb_line_error(csv->lines, error, -EINVAL,
				     "the file is empty: the first row must name the columns");
	if (strncmp(csv->fields[0], byte_order_mark, 3) == 0)
		csv->fields[0] += 3;
	return find_columns(csv, error);
}

int hb_csv_open(struct hb_csv *csv, const char *path, const struct hb_csv_column *columns, uint32_t n_columns,
		struct hb_error *error)
{
	*csv = (struct hb_csv){.columns = columns, .n_columns = n_columns};
	int code = hb_line_reader_open(path, &csv->lines, error);
	if (code)
		return code;
	code = read_header(csv, error);
	if (code)
		hb_csv_close(csv);
	return code;
}

void hb_csv_close(struct hb_csv *csv)
{
	hb_line_reader_close(csv->lines);
	csv->lines = NULL;
}

int hb_csv_next(struct hb_csv *csv, struct hb_error *error)
{
	uint32_t count = 0;
	int got = read_row(csv, &count, error);
	if (got <= 0)
		return got;
	if (count != csv->n_fields)
		return hb_line_error(csv->lines, error, -EINVAL, "%u fields, but the header names %u columns", count,
				     csv->n_fields);
	return 1;
}

char *hb_csv_field(struct hb_csv *csv, uint32_t column)
{
	int field = csv->field_of[column];
	return field < 0 ? no_text : csv->fields[field];
}

int hb_csv_us(struct hb_csv *csv, uint32_t column, int64_t *ns, struct hb_error *error)
{
	double us;
	if (!hb_number_parse(hb_csv_field(csv, column), &us))
		return hb_csv_field_error(csv, column, "is not a number of microseconds", error);
	*ns = hb_ns_from_us(us);
	return 0;
}

int hb_csv_field_error(struct hb_csv *csv, uint32_t column, const char *why, struct hb_error *error)
{
	char shown[44];
	const char *text = hb_csv_field(csv, column);
	size_t length = 0;
	for (; text[length] && length < 40; length++)
		shown[length] = text[length] >= ' ' && text[length] <= '~' ? text[length] : '?';
	snprintf(shown + length, sizeof shown - length, "%s", text[length] ? "..." : "");
	return hb_line_error(csv->lines, error, -EINVAL, "column '%s': '%s' %s", csv->columns[column].name, shown, why);
}
