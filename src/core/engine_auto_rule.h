/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of `engine: auto`: which engine shares a GPU between a pair of programs (HP,
 * LP), temporal or spatial. A context cannot move between engines, so the choice is made
 * when a program starts and no other program has a context on the GPU. The results of
 * each run of the program are recorded each minute and when it ends. There is one record for each pair and
 * engine; the owner (daemon, simulator) stores it. Pure: no clock, no allocation.
 *
 * Rule. The first run uses temporal, which isolates and works for every program; the
 * second uses spatial. After that the rule takes the engine with more LP throughput, among
 * those that kept HP within HB_ENGINE_AUTO_MARGIN_PPM of its target. It changes the engine only for a
 * gain of HB_ENGINE_AUTO_BETTER_PPM. If no engine kept the target, it takes the one with the better
 * attainment. Every HB_ENGINE_AUTO_AGAIN runs it tries the other engine again, because programs
 * change; twice as rarely each time that engine misses HP's target.
 *
 * Example. Temporal: 99.0 % and 54 % of LP alone. Spatial: 98.7 % and 80 %. Target 99 %:
 * both are within a point, so spatial. A later run beside another LP program is another
 * pair, and begins with temporal.
 */
#ifndef HB_CORE_ENGINE_AUTO_RULE_H
#define HB_CORE_ENGINE_AUTO_RULE_H

#include <stdbool.h>
#include <stdint.h>

#define HB_ENGINE_AUTO_MARGIN_PPM 10000
#define HB_ENGINE_AUTO_BETTER_PPM 20000 /* of LP's speed alone */
#define HB_ENGINE_AUTO_AGAIN 16
#define HB_ENGINE_AUTO_PENALTY_MOST 6 /* doublings */

enum hb_engine_auto_choice { HB_ENGINE_AUTO_TEMPORAL, HB_ENGINE_AUTO_SPATIAL, HB_ENGINE_AUTO_ENGINES };

struct hb_engine_auto_record {
	uint32_t runs;           /* number of recorded runs */
	uint32_t ago;            /* runs of this pair since the last recorded run with this engine */
	uint32_t attainment_ppm; /* mean over recent runs */
	uint32_t low_ppm;        /* LP's throughput, relative to alone or to another fixed measure */
	uint32_t penalty;        /* runs in a row in which HP missed its target */
};

/* Zeros: no run was recorded. */
struct hb_choose {
	struct hb_engine_auto_record records[HB_ENGINE_AUTO_ENGINES];
	enum hb_engine_auto_choice current;
};

/* Returns the engine for the run that starts now. `spatial_works`: GPU, driver and programs allow the spatial engine. */
enum hb_engine_auto_choice hb_engine_auto_next(struct hb_choose *choose, uint32_t target_ppm, bool spatial_works);
/*
 * Records a run that has ended or lasted long enough. Not for runs with too few requests or without HP. `continues`: an
 * earlier part of this run was recorded before, so that this part does not count as another run.
 */
void hb_engine_auto_note(struct hb_choose *choose, enum hb_engine_auto_choice engine, uint32_t attainment_ppm,
			 uint32_t low_ppm, uint32_t target_ppm, bool continues);

#endif
