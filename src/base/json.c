/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes JSON by the project's rules; see json.h. */
#include "base/json.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* 12 digits: nanoseconds in microseconds up to 11 days, and no 0.10000000000000001. */
#define WRITE_FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(12) | JSON_ENSURE_ASCII)
#define READ_FLAGS JSON_REJECT_DUPLICATES

json_t *hb_json_pack(struct hb_error *error, const char *format, ...)
{
	json_error_t detail;
	va_list arguments;
	va_start(arguments, format);
	json_t *packed = json_vpack_ex(&detail, 0, format, arguments);
	va_end(arguments);
	if (!packed)
		hb_error_set(error, -EINVAL, "cannot write JSON: %s (number not finite, text missing or not UTF-8)",
			     detail.text);
	return packed;
}

int hb_json_unpack(json_t *root, const char *origin, struct hb_error *error, const char *format, ...)
{
	json_error_t detail;
	va_list arguments;
	va_start(arguments, format);
	int rc = json_vunpack_ex(root, &detail, 0, format, arguments);
	va_end(arguments);
	return rc ? hb_error_set(error, -EINVAL, "%s: %s", origin, detail.text) : 0;
}

int hb_json_write(const json_t *root, FILE *out, struct hb_error *error)
{
	if (!root)
		return -EINVAL;
	if (json_dumpf(root, out, WRITE_FLAGS) || fputc('\n', out) == EOF || fflush(out))
		return hb_error_set(error, -EIO, "cannot write JSON: %s", strerror(errno));
	return 0;
}

int hb_json_parse(const char *text, size_t length, const char *origin, json_t **root, struct hb_error *error)
{
	json_error_t detail;
	json_t *parsed = json_loadb(text, length, READ_FLAGS, &detail);
	if (!parsed)
		return hb_error_set(error, -EINVAL, "%s:%d: %s", origin, detail.line, detail.text);
	*root = parsed;
	return 0;
}

int hb_json_load(const char *path, json_t **root, struct hb_error *error)
{
	FILE *in = fopen(path, "re");
	if (!in)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	json_error_t detail;
	json_t *parsed = json_loadf(in, READ_FLAGS, &detail);
	fclose(in);
	if (!parsed)
		return hb_error_set(error, -EINVAL, "%s:%d: %s", path, detail.line, detail.text);
	*root = parsed;
	return 0;
}
