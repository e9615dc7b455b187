/* SPDX-License-Identifier: Apache-2.0 */
/* See sim_phases.h. */
#include "cli/sim_phases.h"

#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MOST 100000

static int parse_tokens(const char *text, uint32_t *tokens, struct hb_error *error)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < 1 || value > TOKENS_MOST)
		return hb_error_set(error, -EINVAL, "tokens=%.40s is not a number of 1 to %d", text, TOKENS_MOST);
	*tokens = (uint32_t)value;
	return 0;
}

int hb_sim_name_parse(char *text, struct hb_sim_phase_text *phase, struct hb_error *error)
{
	char *rest = strchr(text, ':');
	phase->name = text;
	while (rest) {
		char *word = rest + 1;
		*rest = '\0';
		if ((rest = strchr(word, ':')))
			*rest = '\0';
		int code = 0;
		if (strcmp(word, "graph") == 0)
			phase->graph = true;
		else if (strncmp(word, "tokens=", 7) == 0)
			code = parse_tokens(word + 7, &phase->tokens, error);
		else
			code = hb_error_set(error, -EINVAL, "after the name only ':graph' and ':tokens=N' are known");
		if (code)
			return code;
	}
	return *text ? 0 : hb_error_set(error, -EINVAL, "begins with the name of a workload");
}

static int parse_phase(char *text, struct hb_sim_phase_text *phase, struct hb_error *error)
{
	char *at = strchr(text, '@');
	*phase = (struct hb_sim_phase_text){0};
	if (!at)
		return hb_error_set(error, -EINVAL,
				    "the arrivals are missing; write NAME@60/s, NAME@closed or NAME@file:PATH");
	*at = '\0';
	phase->arrivals = at + 1;
	char *from = strstr(phase->arrivals, ",from=");
	if (from) {
		*from = '\0';
		int code = hb_duration_parse(from + strlen(",from="), &phase->from_ns, error);
		if (code)
			return code;
	}
	return hb_sim_name_parse(text, phase, error);
}

int hb_sim_phases_parse(char *text, struct hb_sim_phase_text phases[HB_SIM_PHASES_MAX], struct hb_error *error)
{
	int n = 0;
	for (char *next = text; next; n++) {
		if (n == HB_SIM_PHASES_MAX)
			return hb_error_set(error, -EINVAL, "more than %d phases", HB_SIM_PHASES_MAX);
		char *phase = next;
		if ((next = strchr(phase, ';')))
			*next++ = '\0';
		int code = parse_phase(phase, &phases[n], error);
		if (code)
			return code;
		int64_t after_ns = n ? phases[n - 1].from_ns : -1;
		if (n ? phases[n].from_ns <= after_ns : phases[n].from_ns != 0)
			return hb_error_set(error, -EINVAL,
					    "phase %d: give the time at which it begins, as in ,from=5s, after that of "
					    "the phase before; the first one begins at once",
					    n + 1);
	}
	return n;
}
