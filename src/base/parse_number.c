/* SPDX-License-Identifier: Apache-2.0 */
/* Parses decimal numbers strictly; see parse_number.h. */
#include "base/parse_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool hb_number_parse(const char *text, double *value)
{
	if (!*text || text[strspn(text, "0123456789+-.eE")])
		return false;
	char *end = NULL;
	double parsed = strtod(text, &end);
	if (end == text || *end || !isfinite(parsed))
		return false;
	*value = parsed;
	return true;
}
