/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the temporal and the spatial engine showed for a pair of programs, one
 * of each priority: what `engine: auto` chooses by (core/engine_auto_rule.h has the rule).
 * A program is a user and a command line. Fixed memory; the pair that was used
 * longest ago makes room. Pure: no clock, no daemon. Used by engine_life.c.
 */
#ifndef HB_DAEMON_ENGINE_MEMORY_H
#define HB_DAEMON_ENGINE_MEMORY_H

#include "core/engine_auto_rule.h"

#include <stddef.h>
#include <stdint.h>

#define HB_ENGINE_PAIRS 64
#define HB_ENGINE_TEXT_MAX 96 /* of a command line without the folders of its program, for people */

/* Fewer requests beside LP, or less time, tell nothing. */
#define HB_LIFE_REQUESTS 100
#define HB_LIFE_NS INT64_C(1000000000)

struct hb_engine_program {
	uint64_t key; /* 0 = none */
	char text[HB_ENGINE_TEXT_MAX];
};

struct hb_engine_pair {
	struct hb_engine_program high, low; /* high.key 0 = unused */
	uint64_t reference_mhz; /* LP's launches in 1000 s that low_ppm is measured by; 0 = none were seen yet */
	uint32_t used;          /* by the memory's clock */
	struct hb_choose choose;
};

/* All-zero: nothing is known. */
struct hb_engine_memory {
	uint32_t clock;
	struct hb_engine_pair pairs[HB_ENGINE_PAIRS];
};

/* What one life of an HP program showed while LP was at work beside it. All-zero when it begins. */
struct hb_life {
	struct hb_engine_program low; /* the one that was there last */
	uint64_t judged, met;         /* requests */
	uint64_t low_launches;
	int64_t beside_ns;
};

/* Two users' programs are two programs. */
void hb_engine_program(struct hb_engine_program *program, uint32_t user, const char *command);
/* What is known of the two; `low` of no program: whichever was beside it last. NULL = nothing. */
struct hb_engine_pair *hb_engine_memory_find(struct hb_engine_memory *memory, const struct hb_engine_program *high,
					     const struct hb_engine_program *low);
/* A life has ended. NULL = it told too little. */
struct hb_engine_pair *hb_engine_memory_note(struct hb_engine_memory *memory, const struct hb_engine_program *high,
					     const struct hb_life *life, enum hb_choose_engine engine,
					     uint32_t target_ppm);
/* "temporal 99.0 % met, low at 100 % (1 life); spatial not tried" */
void hb_engine_pair_text(const struct hb_engine_pair *pair, char *text, size_t size);

#endif
