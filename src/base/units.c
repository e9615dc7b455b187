/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and formats durations and sizes; see units.h. */
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct unit_row {
	const char *name;
	int64_t scale;
};

static const struct unit_row duration_units[] = {
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000 * 1000},
	{"s", 1000 * 1000 * 1000},
	{"min", INT64_C(60) * 1000 * 1000 * 1000},
	{"h", INT64_C(3600) * 1000 * 1000 * 1000},
	{NULL, 0},
};

static const struct unit_row byte_units[] = {
	{"B", 1},
	{"KiB", INT64_C(1) << 10},
	{"MiB", INT64_C(1) << 20},
	{"GiB", INT64_C(1) << 30},
	{"TiB", INT64_C(1) << 40},
	{"kB", 1000},
	{"MB", INT64_C(1000) * 1000},
	{"GB", INT64_C(1000) * 1000 * 1000},
	{"TB", INT64_C(1000) * 1000 * 1000 * 1000},
	{"", 1},
	{NULL, 0},
};

/* A decimal number and the place behind it, where the unit begins. */
struct scanned_number {
	__int128 digits;
	__int128 divisor; /* 10^(digits after the point) */
	const char *rest;
};

/*
 * A number with more digits fits into int64_t in no unit. With at most this many, the products below fit into 128 bits.
 */
#define DIGITS_MAX 20
#define MEMORY_LEAST (UINT64_C(1) << 20)

/* Parses the number that `text` begins with. Returns 0, or -EINVAL if there is none. */
static int scan_number(const char *text, struct scanned_number *number)
{
	struct scanned_number n = {.divisor = 1, .rest = text};
	unsigned count = 0;
	bool fraction = false;

	for (;; n.rest++) {
		if (*n.rest == '.' && !fraction && count) {
			fraction = true;
			continue;
		}
		if (*n.rest < '0' || *n.rest > '9')
			break;
		if (++count > DIGITS_MAX)
			return -ERANGE;
		n.digits = n.digits * 10 + (*n.rest - '0');
		if (fraction)
			n.divisor *= 10;
	}
	if (!count || (fraction && n.divisor == 1))
		return -EINVAL;
	*number = n;
	return 0;
}

static int parse_quantity(const char *text, const struct unit_row *units, int64_t *out)
{
	struct scanned_number number;
	int rc = scan_number(text, &number);
	if (rc)
		return rc;
	if (number.digits == 0 && !*number.rest) {
		*out = 0;
		return 0;
	}
	const struct unit_row *unit = units;
	while (unit->name && strcmp(unit->name, number.rest))
		unit++;
	if (!unit->name)
		return -EINVAL;
	__int128 value = number.digits * unit->scale;
	if (value % number.divisor)
		return -EDOM;
	value /= number.divisor;
	if (value > INT64_MAX)
		return -ERANGE;
	*out = (int64_t)value;
	return 0;
}

int hb_duration_parse(const char *text, int64_t *ns, struct hb_error *error)
{
	switch (parse_quantity(text, duration_units, ns)) {
	case 0:
		return 0;
	case -ERANGE:
		return hb_error_set(error, -ERANGE, "duration '%.60s' is too long", text);
	case -EDOM:
		return hb_error_set(error, -EINVAL, "duration '%.60s' is not a whole number of nanoseconds", text);
	default:
		return hb_error_set(
			error, -EINVAL,
			"'%.60s' is not a duration: write a number and one of ns, us, ms, s, min, h (10ms, 1.5s)",
			text);
	}
}

int hb_bytes_parse(const char *text, uint64_t *bytes, struct hb_error *error)
{
	int64_t value;
	switch (parse_quantity(text, byte_units, &value)) {
	case 0:
		*bytes = (uint64_t)value;
		return 0;
	case -ERANGE:
		return hb_error_set(error, -ERANGE, "size '%.60s' is too large", text);
	case -EDOM:
		return hb_error_set(error, -EINVAL, "size '%.60s' is not a whole number of bytes", text);
	default:
		return hb_error_set(
			error, -EINVAL,
			"'%.60s' is not a size: write a number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB", text);
	}
}

int hb_memory_parse(const char *text, uint64_t *bytes, struct hb_error *error)
{
	uint64_t value;
	int rc = hb_bytes_parse(text, &value, error);
	if (rc)
		return rc;
	if (value && value < MEMORY_LEAST)
		return hb_error_set(error, -EINVAL,
				    "'%.60s' is less than 1MiB; write a size with a unit, such as 40GiB", text);
	*bytes = value;
	return 0;
}

char *hb_duration_format(int64_t ns, char text[static HB_UNITS_TEXT_MAX])
{
	uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	const char *sign = ns < 0 ? "-" : "";
	int i = 3;
	while (i && (uint64_t)duration_units[i].scale > magnitude)
		i--;
	uint64_t scale = (uint64_t)duration_units[i].scale;
	int length = snprintf(text, HB_UNITS_TEXT_MAX, "%s%" PRIu64, sign, magnitude / scale);
	if (magnitude % scale) {
		length += snprintf(text + length, HB_UNITS_TEXT_MAX - (size_t)length, ".%0*" PRIu64, 3 * i,
				   magnitude % scale);
		while (text[length - 1] == '0')
			length--;
	}
	snprintf(text + length, HB_UNITS_TEXT_MAX - (size_t)length, "%s", duration_units[i].name);
	return text;
}

char *hb_bytes_format(uint64_t bytes, char text[static HB_UNITS_TEXT_MAX])
{
	int i = 4;
	while (i && (uint64_t)byte_units[i].scale > bytes)
		i--;
	uint64_t scale = (uint64_t)byte_units[i].scale;
	if (bytes % scale == 0)
		snprintf(text, HB_UNITS_TEXT_MAX, "%" PRIu64 "%s", bytes / scale, byte_units[i].name);
	else
		snprintf(text, HB_UNITS_TEXT_MAX, "%.1f%s", (double)bytes / (double)scale, byte_units[i].name);
	return text;
}
