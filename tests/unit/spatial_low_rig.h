/* SPDX-License-Identifier: Apache-2.0 */
/* LP's side of the spatial engine beside one HP process, for unit tests of single decisions. */
#ifndef HB_TESTS_SPATIAL_LOW_RIG_H
#define HB_TESTS_SPATIAL_LOW_RIG_H

#include "decide/spatial_kernel.h"
#include "spatial_unit_rig.h"
#include "unit.h"

#include <stdlib.h>

struct low_rig {
	struct service hp;
	struct hb_spatial_limits limits;
	struct hb_spatial_low *low;
	struct hb_spatial_stream stream;
	struct hb_spatial_answer answer;
};

/* Teaches LP a duration on the entire GPU, as if it had been measured. */
static inline void learn_duration(struct hb_spatial_low *low, const struct hb_spatial_shape *shape, int64_t duration_ns)
{
	static const uint64_t nothing[HB_SPATIAL_AFTER];
	uint32_t place = hb_spatial_place(low, shape);
	struct hb_spatial_kernel *kernel = &low->kernels[place];
	if (duration_ns <= 0)
		return;
	if (kernel->reserve == UINT16_MAX)
		hb_spatial_fit(low, kernel, 0);
	hb_spatial_note_duration(low, place, hb_spatial_spot(low, nothing, shape->key), duration_ns, false);
}

static const struct hb_spatial_shape persistent = {.key = 11, .blocks = 132, .per_sm = 1, .flags = HB_SPATIAL_MASKABLE};
static const struct hb_spatial_shape plain = {
	.key = 13, .blocks = 5280, .per_sm = 2, .flags = HB_SPATIAL_MASKABLE | HB_SPATIAL_SPLITTABLE};
static const struct hb_spatial_shape small = {.key = 15, .blocks = 16, .per_sm = 2, .flags = HB_SPATIAL_MASKABLE};
static const struct hb_spatial_shape graph = {.key = 17};
static const struct hb_spatial_shape unmasked = {.key = 19, .blocks = 16, .per_sm = 2};

static inline int set_up(void **state)
{
	struct low_rig *rig = calloc(1, sizeof *rig);
	rig->low = calloc(1, sizeof *rig->low);
	start_service(&rig->hp);
	hb_spatial_limits_init(&rig->limits, SMS);
	set_short_windows(&rig->limits);
	hb_spatial_low_init(rig->low, &rig->limits);
	*state = rig;
	return 0;
}

static inline int tear_down(void **state)
{
	struct low_rig *rig = *state;
	free(rig->low);
	free(rig);
	return 0;
}

static inline enum hb_spatial_verdict ask(struct low_rig *rig, const struct hb_spatial_shape *shape)
{
	struct hb_spatial_view view;
	hb_spatial_look(&rig->hp.board, rig->hp.now_ns, &view);
	hb_spatial_ask(rig->low, &rig->stream, &view, rig->hp.now_ns, shape, &rig->answer);
	return rig->answer.verdict;
}

#endif
