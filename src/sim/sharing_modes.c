/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sharing modes and what they set; see sharing_modes.h. */
#include "sim/sharing_modes.h"

#include "base/units.h"

#include "decide/spatial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODES_HELP \
	"known: exclusive, timeslice, tsN (us), mps, mps_prio, mps_N (SM percent), " \
	"mps_gateD, mps_gateD_N, reef, orion, spatial, spatial:masks=gpcs|spread, spatial:window=TIME (20us to 1s), spatial:reserve=SMS (to 256), spatial:gaps=N (to 3), spatial:minimum=PERCENT, spatial:without=masks|splitting|beside|foresight|following, auto, temporal, temporal:minimum=PERCENT (1 to 90), temporal:without=foresight, temporal|spatial:hints=perfect|late|early|missing|wrong|learned"

/* LP time in flight with Orion's rule, as in bench/hbbench/tables.py. */
#define ORION_WINDOW_NS 100000
#define MINIMUM_MOST_PERCENT 90
#define LIMIT_MAX_US 10000000
#define RESERVE_MOST_SMS 256
#define WINDOW_LEAST_NS INT64_C(20000)
#define WINDOW_MOST_NS INT64_C(1000000000)

const char *const hb_modes_all[] = {"exclusive", "timeslice", "ts100",     "ts1",          "mps",
				    "mps_prio",  "mps_88",    "mps_gate2", "mps_gate2_88", "reef",
				    "orion",     "temporal",  "spatial",   "auto",         NULL};

/* Reads an integer up to `max` at *text and moves *text behind it. False = there is none. */
static bool take_number(const char **text, long max, long *value)
{
	char *end;
	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*value = strtol(*text, &end, 10);
	if (errno || *value > max)
		return false;
	*text = end;
	return true;
}

static bool parse_mps(const char *rest, struct hb_mode *mode)
{
	long value;
	mode->mps = true;
	if (strcmp(rest, "") == 0)
		return true;
	mode->priorities = true;
	if (strcmp(rest, "_prio") == 0)
		return true;
	if (*rest++ != '_')
		return false;
	if (strncmp(rest, "gate", 4) == 0) {
		rest += 4;
		if (!take_number(&rest, 1024, &value) || value < 1)
			return false;
		mode->policy = "gate";
		mode->gate_depth = (uint32_t)value;
		if (!*rest)
			return true;
		if (*rest++ != '_')
			return false;
	}
	if (!take_number(&rest, 100, &value) || value < 1 || *rest)
		return false;
	mode->sm_limit_percent = (uint32_t)value;
	return true;
}

static bool parse_hints(const char *quality, struct hb_mode *mode)
{
	static const char *const names[] = {
		[HB_HINTS_PERFECT] = "perfect", [HB_HINTS_LATE] = "late",   [HB_HINTS_EARLY] = "early",
		[HB_HINTS_MISSING] = "missing", [HB_HINTS_WRONG] = "wrong", [HB_HINTS_LEARNED] = "learned",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i] && strcmp(quality, names[i]) == 0) {
			mode->hints = (enum hb_hint_quality)i;
			return true;
		}
	return false;
}

/* Reads a number of least..most that is all of `text`. */
static bool parse_count(const char *text, uint32_t least, uint32_t most, uint32_t *count)
{
	long value;
	if (!take_number(&text, (long)most, &value) || value < (long)least || *text)
		return false;
	*count = (uint32_t)value;
	return true;
}

/* Reads `minimum=PERCENT`: LP's guaranteed share of the GPU. */
static bool parse_minimum(const char *option, struct hb_mode *mode)
{
	uint32_t percent;
	if (strncmp(option, "minimum=", 8) != 0 || !parse_count(option + 8, 1, MINIMUM_MOST_PERCENT, &percent))
		return false;
	mode->low_minimum_ppm = percent * 10000;
	return true;
}

static bool parse_temporal_option(const char *option, struct hb_mode *mode)
{
	if (strcmp(option, "without=foresight") == 0 && mode->hints == HB_HINTS_NONE)
		return !(mode->foresight = false);
	if (strncmp(option, "hints=", 6) == 0)
		return mode->foresight && parse_hints(option + 6, mode);
	return parse_minimum(option, mode);
}

/* Reads the options behind the name of a mode, each after a colon. */
static bool parse_options(const char *rest, bool (*parse)(const char *option, struct hb_mode *mode),
			  struct hb_mode *mode)
{
	while (*rest == ':') {
		char option[32];
		size_t length = strcspn(++rest, ":");
		if (length >= sizeof option)
			return false;
		memcpy(option, rest, length);
		option[length] = '\0';
		if (!parse(option, mode))
			return false;
		rest += length;
	}
	return !*rest;
}

static bool parse_temporal(const char *rest, struct hb_mode *mode)
{
	mode->policy = "temporal";
	mode->mps_low = mode->foresight = true;
	return parse_options(rest, parse_temporal_option, mode);
}

/* Reads one option of `spatial`, without its colon. The defaults are those of hb run (decide/defaults.def). */
static bool parse_spatial_option(const char *option, struct hb_mode *mode)
{
	struct hb_error error;
	int64_t ns;
	if (strcmp(option, "masks=gpcs") == 0)
		return mode->masks_gpcs = true;
	if (strcmp(option, "masks=spread") == 0)
		return !(mode->masks_gpcs = false);
	if (strncmp(option, "reserve=", 8) == 0)
		return parse_count(option + 8, 1, RESERVE_MOST_SMS, &mode->reserve_sms);
	if (strncmp(option, "gaps=", 5) == 0)
		return parse_count(option + 5, 0, HB_SPATIAL_GAPS_MOST, &mode->gaps);
	if (strcmp(option, "without=masks") == 0)
		return mode->without_masks = true;
	if (strcmp(option, "without=splitting") == 0)
		return mode->without_slices = true;
	if (strcmp(option, "without=beside") == 0)
		return mode->without_beside = true;
	if (strcmp(option, "without=following") == 0)
		return mode->without_following = true;
	if (strcmp(option, "without=foresight") == 0 && mode->hints == HB_HINTS_NONE)
		return !(mode->expects = false);
	if (strncmp(option, "hints=", 6) == 0)
		return mode->expects && parse_hints(option + 6, mode);
	if (parse_minimum(option, mode))
		return true;
	if (strncmp(option, "window=", 7) != 0 || hb_duration_parse(option + 7, &ns, &error) < 0 ||
	    ns < WINDOW_LEAST_NS || ns > WINDOW_MOST_NS)
		return false;
	mode->window_ns = (uint32_t)ns;
	return true;
}

static bool parse_spatial(const char *rest, struct hb_mode *mode)
{
	mode->mps = mode->priorities = mode->spatial = mode->expects = true;
	mode->policy = "spatial";
	mode->masks_gpcs = HB_DEFAULT_MASKS_GPCS;
	mode->window_ns = HB_DEFAULT_WINDOW_NS;
	return parse_options(rest, parse_spatial_option, mode);
}

/* As in the benchmarks: the spatial engine with Orion's rule in place of its own, and without masks. */
static bool parse_orion(struct hb_mode *mode)
{
	mode->mps = mode->priorities = mode->spatial = mode->orion = mode->without_masks = true;
	mode->policy = "spatial";
	mode->window_ns = ORION_WINDOW_NS;
	return true;
}

static bool parse_mode(const char *text, struct hb_mode *mode)
{
	long value;
	if (strcmp(text, "exclusive") == 0) {
		mode->exclusive = true;
		return true;
	}
	if (strcmp(text, "timeslice") == 0)
		return true;
	if (strncmp(text, "ts", 2) == 0) {
		const char *rest = text + 2;
		mode->high_slice_ns = HB_DEFAULT_HIGH_SLICE_NS;
		if (!take_number(&rest, LIMIT_MAX_US, &value) || value < 1 || *rest)
			return false;
		mode->low_slice_ns = value * 1000;
		return true;
	}
	if (strncmp(text, "mps", 3) == 0)
		return parse_mps(text + 3, mode);
	if (strcmp(text, "reef") == 0)
		return mode->mps = mode->priorities = mode->reef = true;
	if (strcmp(text, "orion") == 0)
		return parse_orion(mode);
	if (strcmp(text, "auto") == 0) {
		mode->automatic = true;
		return true;
	}
	if (strncmp(text, "spatial", 7) == 0)
		return parse_spatial(text + 7, mode);
	return strncmp(text, "temporal", 8) == 0 && parse_temporal(text + 8, mode);
}

int hb_mode_parse(const char *text, struct hb_mode *mode, struct hb_error *error)
{
	struct hb_mode parsed = {.sm_limit_percent = 100, .policy = "builtin"};
	if (strlen(text) >= sizeof parsed.name || !parse_mode(text, &parsed))
		return hb_error_set(error, -EINVAL, "sharing mode '%.60s' is not known; " MODES_HELP, text);
	memcpy(parsed.name, text, strlen(text) + 1);
	*mode = parsed;
	return 0;
}
