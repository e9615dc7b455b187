/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers what the temporal and the spatial engine achieved for a pair of
 * programs, one HP and one LP: the measurements that `engine: auto` chooses by
 * (the rule is in core/engine_auto_rule.h). A program is a user and a command
 * line. The memory is fixed; a new pair replaces the least recently used one.
 * Pure: reads no clock and knows no daemon. Used by engine_runs.c.
 */
#ifndef HB_DAEMON_ENGINE_HISTORY_H
#define HB_DAEMON_ENGINE_HISTORY_H

#include "core/engine_auto_rule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_ENGINE_PAIRS 64
#define HB_ENGINE_TEXT_MAX 96 /* for people: the command line without the folder of its program */

/* A run with fewer requests or less time beside LP is too short to judge. */
#define HB_ENGINE_RUN_REQUESTS 100
#define HB_ENGINE_RUN_NS INT64_C(1000000000)
/* A run is recorded each time it has lasted this long beside LP, because a service may run for months. */
#define HB_ENGINE_RUN_PART_NS INT64_C(60000000000)

struct hb_engine_program {
	uint64_t key; /* 0 = none */
	char text[HB_ENGINE_TEXT_MAX];
};

struct hb_engine_pair {
	struct hb_engine_program high, low; /* high.key 0 = unused */
	uint64_t reference_mhz; /* LP's launches in 1000 s in the first run, 100 % for low_ppm; 0 = no run yet */
	uint32_t used;          /* hb_engine_history.clock at the last use */
	struct hb_choose choose;
};

/* Begins all zero: nothing is known. */
struct hb_engine_history {
	uint32_t clock;
	struct hb_engine_pair pairs[HB_ENGINE_PAIRS];
};

/* What one run of an HP program has shown while LP was active beside it. Begins all zero. */
struct hb_engine_run {
	struct hb_engine_program low; /* the LP program that was active last */
	uint64_t judged, met;         /* requests */
	uint64_t low_launches;
	int64_t beside_ns;
	bool is_noted; /* an earlier part of the run was recorded */
};

/* Identifies a program. The same command line of two users makes two programs. */
void hb_engine_program(struct hb_engine_program *program, uint32_t user, const char *command);
/* Finds what is known of a pair; with low->key 0 the most recent pair of the HP program. NULL = nothing is known. */
struct hb_engine_pair *hb_engine_history_find(struct hb_engine_history *history, const struct hb_engine_program *high,
					      const struct hb_engine_program *low);
/* Records what one run, or a part of a run, of an HP program showed. Returns the pair, or NULL when it was too short to judge. */
struct hb_engine_pair *hb_engine_history_note(struct hb_engine_history *history, const struct hb_engine_program *high,
					      const struct hb_engine_run *run, enum hb_engine_auto_choice engine,
					      uint32_t target_ppm);
/* "temporal 99.0 % met, low at 100 % (1 run); spatial not tried" */
void hb_engine_pair_text(const struct hb_engine_pair *pair, char *text, size_t size);

#endif
