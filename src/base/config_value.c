/* SPDX-License-Identifier: Apache-2.0 */
/* Converts scalars of configuration files; see config_value.h. */
#include "base/config_value.h"

#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int store_text(const struct hb_config_key *key, const char *text, void *field, struct hb_error *error)
{
	size_t length = strlen(text);
	if (length >= key->size)
		return hb_error_set(error, -EINVAL, "text is %zu bytes long, at most %zu fit", length, key->size - 1);
	int result = key->check ? key->check(text, error) : 0;
	if (result < 0)
		return result;
	memcpy(field, text, length + 1);
	return 0;
}

static int store_bool(const char *text, bool *field, struct hb_error *error)
{
	if (!strcmp(text, "true"))
		*field = true;
	else if (!strcmp(text, "false"))
		*field = false;
	else
		return hb_error_set(error, -EINVAL, "'%.60s' is neither true nor false", text);
	return 0;
}

/* Returns 0 if the value is within the key's bounds, else -EINVAL; `show` writes a bound in the key's own unit. */
static int check_range(const struct hb_config_key *key, int64_t value, const char *text,
		       char *(*show)(int64_t value, char *out), struct hb_error *error)
{
	if ((!key->min && !key->max) || (value >= key->min && value <= key->max))
		return 0;
	char low[HB_UNITS_TEXT_MAX], high[HB_UNITS_TEXT_MAX];
	return hb_error_set(error, -EINVAL, "%.60s is out of range: %s to %s", text, show(key->min, low),
			    show(key->max, high));
}

static char *show_int(int64_t value, char *out)
{
	snprintf(out, HB_UNITS_TEXT_MAX, "%" PRId64, value);
	return out;
}

static char *show_duration(int64_t value, char *out)
{
	return hb_duration_format(value, out);
}

static char *show_bytes(int64_t value, char *out)
{
	return hb_bytes_format((uint64_t)value, out);
}

static int store_int(const struct hb_config_key *key, const char *text, int64_t *field, struct hb_error *error)
{
	const char *digits = text + (*text == '-');
	if (!*digits || digits[strspn(digits, "0123456789")])
		return hb_error_set(error, -EINVAL, "'%.60s' is not a whole number", text);
	errno = 0;
	long long value = strtoll(text, NULL, 10);
	if (errno)
		return hb_error_set(error, -EINVAL, "%.60s is too large", text);
	int rc = check_range(key, value, text, show_int, error);
	if (!rc)
		*field = value;
	return rc;
}

static int store_real(const struct hb_config_key *key, const char *text, double *field, struct hb_error *error)
{
	char *end;
	double value = strtod(text, &end);
	if (!*text || *end || text[strspn(text, "+-.0123456789eE")] || !isfinite(value))
		return hb_error_set(error, -EINVAL, "'%.60s' is not a finite number", text);
	bool bounded = key->real_min != 0 || key->real_max != 0;
	if (bounded && (value < key->real_min || value > key->real_max))
		return hb_error_set(error, -EINVAL, "%.60s is out of range: %g to %g", text, key->real_min,
				    key->real_max);
	*field = value;
	return 0;
}

static int store_duration(const struct hb_config_key *key, const char *text, int64_t *field, struct hb_error *error)
{
	int64_t value;
	int rc = hb_duration_parse(text, &value, error);
	if (!rc)
		rc = check_range(key, value, text, show_duration, error);
	if (!rc)
		*field = value;
	return rc;
}

static int store_bytes(const struct hb_config_key *key, const char *text, uint64_t *field, struct hb_error *error)
{
	uint64_t value;
	int rc = key->memory ? hb_memory_parse(text, &value, error) : hb_bytes_parse(text, &value, error);
	if (!rc)
		rc = check_range(key, (int64_t)value, text, show_bytes, error);
	if (!rc)
		*field = value;
	return rc;
}

static int store_choice(const struct hb_config_key *key, const char *text, int *field, struct hb_error *error)
{
	char known[256] = "";
	size_t length = 0;
	for (int i = 0; key->choices[i]; i++) {
		if (!strcmp(text, key->choices[i])) {
			*field = i;
			return 0;
		}
		if (length < sizeof known)
			length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
						   key->choices[i]);
	}
	return hb_error_set(error, -EINVAL, "'%.60s' is not one of %s", text, known);
}

int hb_config_value_store(const struct hb_config_key *key, const char *text, bool quoted, void *field,
			  struct hb_error *error)
{
	if (key->type == HB_CONFIG_TYPE_TEXT)
		return store_text(key, text, field, error);
	if (key->type == HB_CONFIG_TYPE_CHOICE)
		return store_choice(key, text, field, error);
	if (quoted)
		return hb_error_set(error, -EINVAL, "\"%.60s\" is text; write it without quotes", text);
	switch (key->type) {
	case HB_CONFIG_TYPE_BOOL:
		return store_bool(text, field, error);
	case HB_CONFIG_TYPE_INT:
		return store_int(key, text, field, error);
	case HB_CONFIG_TYPE_REAL:
		return store_real(key, text, field, error);
	case HB_CONFIG_TYPE_DURATION:
		return store_duration(key, text, field, error);
	case HB_CONFIG_TYPE_BYTES:
		return store_bytes(key, text, field, error);
	default:
		return hb_error_set(error, -EINVAL, "'%.60s' is a single value where %s is expected", text,
				    key->type == HB_CONFIG_TYPE_LIST ? "a list" : "a map of keys");
	}
}
