/* SPDX-License-Identifier: Apache-2.0 */
/* Reads latency objectives; see slo.h. */
#include "base/slo.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>

#define PPM_PER_PERCENT 10000u

/* Parses percent, such as "99" or "99.95". Returns ppm; 0 = the text is not a share between 0 and 100. */
static uint32_t parse_percent(const char *text, size_t length)
{
	uint32_t ppm = 0, unit = PPM_PER_PERCENT;
	size_t i = 0;
	for (; i < length && i < 2 && text[i] >= '0' && text[i] <= '9'; i++)
		ppm = ppm * 10 + (uint32_t)(text[i] - '0');
	if (i == 0)
		return 0;
	ppm *= PPM_PER_PERCENT;
	if (i == length)
		return ppm;
	if (text[i++] != '.' || i == length)
		return 0;
	for (; i < length && unit > 1 && text[i] >= '0' && text[i] <= '9'; i++) {
		unit /= 10;
		ppm += unit * (uint32_t)(text[i] - '0');
	}
	return i == length ? ppm : 0;
}

int hb_slo_parse(const char *text, struct hb_slo *slo, struct hb_error *error)
{
	struct hb_slo parsed = {0};
	struct hb_error why;
	const char *latency = text;
	if (strcmp(text, "none") == 0 || strcmp(text, "auto") == 0) {
		*slo = (struct hb_slo){.latency_ns = text[0] == 'a' ? -1 : 0};
		return 0;
	}
	if (text[0] == 'p') {
		size_t length = strcspn(text, "<=");
		parsed.share_ppm = parse_percent(text + 1, length - 1);
		if (!text[length] || !parsed.share_ppm)
			return hb_error_set(error, -EINVAL, "'%s' is no objective; write 10ms, p99<10ms, auto or none",
					    text);
		latency = text + length + 1;
	}
	if (hb_duration_parse(latency, &parsed.latency_ns, &why) < 0 || parsed.latency_ns <= 0)
		return hb_error_set(error, -EINVAL, "'%s' is no objective; write 10ms, p99<10ms, auto or none", text);
	*slo = parsed;
	return 0;
}
