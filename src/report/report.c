/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the page of results: the static page (page/, embedded at build time)
 * with JSON in its "data" element; see output.h. Everything that is drawn is
 * drawn by the page's scripts.
 */
#include "report/output.h"

#include "report/report_parts.h"
#include "report_page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The texts before and after the page's data. The static page has `null` between them. */
#define DATA_BEGIN "<script type=\"application/json\" id=\"data\">"
#define DATA_END "</script>"

/* Writes JSON with "\\u003c" for "<", which means the same in a JSON string, because "</script>" would end the element. */
static void write_escaped(FILE *out, const char *json)
{
	for (; *json; json++)
		*json == '<' ? fputs("\\u003c", out) : fputc(*json, out);
}

int hb_page_write(FILE *out, const json_t *data, struct hb_error *error)
{
	const char *begin = strstr(report_html, DATA_BEGIN);
	const char *end = begin ? strstr(begin, DATA_END) : NULL;
	if (!end)
		return hb_error_set(error, -EINVAL, "cannot write the report: its page has no place for data");
	char *json = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12)) : NULL;
	if (!json)
		return hb_error_set(error, -ENOMEM, "cannot write the report: out of memory");
	begin += strlen(DATA_BEGIN);
	fwrite(report_html, 1, (size_t)(begin - report_html), out);
	write_escaped(out, json);
	fputs(end, out);
	free(json);
	return 0;
}

int hb_report_write(FILE *out, const struct hb_report *report, struct hb_error *error)
{
	json_t *data = NULL;
	if (report->n == 0 || report->n > HB_SIM_RESULTS_MAX)
		return hb_error_set(error, -EINVAL, "a report shows 1 to %d modes, not %zu", HB_SIM_RESULTS_MAX,
				    report->n);
	int rc = hb_report_json_pack(report, &data, error);
	rc = rc ? rc : hb_page_write(out, data, error);
	json_decref(data);
	return rc;
}
