/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `auto`: which engine shares a GPU between these tenants, temporal or spatial.
 * A context cannot move between engines, so the choice is made when a tenant's
 * life begins and nobody else has a context there; what each life showed is
 * noted when it ends. One record for each pair of programs (HP, LP) and GPU; the
 * owner (daemon, simulator) keeps and stores it. Pure: no clock, no allocation.
 *
 * Rule. Temporal first: it isolates, and works for every program. Then spatial.
 * From then on, of the engines that kept HP within CHOOSE_MARGIN of its target
 * the one with more LP throughput, by CHOOSE_BETTER at least where it is not the
 * one before; where neither did, the one with the better attainment. Every
 * HB_CHOOSE_AGAIN lives the other one is tried again: programs change. An engine
 * that cost HP its target is tried again after twice as many lives each time.
 *
 * Example. Temporal: 99.0 % and 54 % of LP alone. Spatial: 98.7 % and 80 %. Target
 * 99 %: both within a point, spatial. A later life beside another LP program is
 * another pair, and begins with temporal.
 */
#ifndef HB_CORE_CHOOSE_H
#define HB_CORE_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#define HB_CHOOSE_MARGIN_PPM 10000
#define HB_CHOOSE_BETTER_PPM 20000 /* of LP's time alone */
#define HB_CHOOSE_AGAIN 16
#define HB_CHOOSE_PENALTY_MOST 6 /* doublings */

enum hb_choose_engine { HB_CHOOSE_TEMPORAL, HB_CHOOSE_SPATIAL, HB_CHOOSE_ENGINES };

struct hb_choose_record {
	uint32_t lives;          /* that were noted */
	uint32_t ago;            /* lives of this pair since the last of these */
	uint32_t attainment_ppm; /* mean of recent lives */
	uint32_t low_ppm;        /* LP's throughput, of alone or of any other fixed measure */
	uint32_t penalty;        /* lives in a row in which HP fell short */
};

/* All-zero: nothing is known. */
struct hb_choose {
	struct hb_choose_record records[HB_CHOOSE_ENGINES];
	enum hb_choose_engine current;
};

/* For the life that begins now. `spatial_works`: this GPU, driver and programs allow it. */
enum hb_choose_engine hb_choose_next(struct hb_choose *choose, uint32_t target_ppm, bool spatial_works);
/* A life has ended, or has lasted long enough to tell; with too few requests (or no HP) nothing is to be noted. */
void hb_choose_note(struct hb_choose *choose, enum hb_choose_engine engine, uint32_t attainment_ppm, uint32_t low_ppm,
		    uint32_t target_ppm);

#endif
