/* SPDX-License-Identifier: Apache-2.0 */
/* See engine_auto_rule.h. */
#include "core/engine_auto_rule.h"

/* A moving mean; the newest run counts half. */
#define MEAN_SHIFT 1

static bool kept_target(const struct hb_engine_auto_record *record, uint32_t target_ppm)
{
	return record->attainment_ppm + HB_ENGINE_AUTO_MARGIN_PPM >= target_ppm;
}

/* Whether the records say that the other engine is better. */
static bool other_is_better(const struct hb_engine_auto_record *current, const struct hb_engine_auto_record *other,
			    uint32_t target_ppm)
{
	bool current_kept = kept_target(current, target_ppm), other_kept = kept_target(other, target_ppm);
	if (current_kept != other_kept)
		return other_kept;
	if (!current_kept)
		return other->attainment_ppm > current->attainment_ppm;
	return other->low_ppm > current->low_ppm + HB_ENGINE_AUTO_BETTER_PPM;
}

static bool is_due(const struct hb_engine_auto_record *record)
{
	return record->ago >= (uint32_t)HB_ENGINE_AUTO_AGAIN << record->penalty;
}

enum hb_engine_auto_choice hb_engine_auto_next(struct hb_choose *choose, uint32_t target_ppm, bool spatial_works)
{
	enum hb_engine_auto_choice other = choose->current == HB_ENGINE_AUTO_TEMPORAL ? HB_ENGINE_AUTO_SPATIAL
										      : HB_ENGINE_AUTO_TEMPORAL;
	const struct hb_engine_auto_record *current = &choose->records[choose->current],
					   *next = &choose->records[other];
	if (!spatial_works)
		return HB_ENGINE_AUTO_TEMPORAL;
	if (!choose->records[HB_ENGINE_AUTO_TEMPORAL].runs)
		return HB_ENGINE_AUTO_TEMPORAL;
	if (!choose->records[HB_ENGINE_AUTO_SPATIAL].runs)
		return HB_ENGINE_AUTO_SPATIAL;
	if (other_is_better(current, next, target_ppm)) {
		choose->current = other;
		return other;
	}
	return is_due(next) ? other : choose->current;
}

static uint32_t follow(uint32_t mean, uint32_t value)
{
	return value < mean ? mean - ((mean - value) >> MEAN_SHIFT) : mean + ((value - mean) >> MEAN_SHIFT);
}

void hb_engine_auto_note(struct hb_choose *choose, enum hb_engine_auto_choice engine, uint32_t attainment_ppm,
			 uint32_t low_ppm, uint32_t target_ppm, bool continues)
{
	struct hb_engine_auto_record *record = &choose->records[engine];
	bool first = record->runs == 0;
	for (uint32_t i = 0; !continues && i < HB_ENGINE_AUTO_ENGINES; i++)
		choose->records[i].ago += choose->records[i].ago < UINT32_MAX;
	record->runs += (!continues || first) && record->runs < UINT32_MAX;
	record->ago = 0;
	record->attainment_ppm = first ? attainment_ppm : follow(record->attainment_ppm, attainment_ppm);
	record->low_ppm = first ? low_ppm : follow(record->low_ppm, low_ppm);
	if (attainment_ppm + HB_ENGINE_AUTO_MARGIN_PPM >= target_ppm)
		record->penalty = 0;
	else if (!continues && record->penalty < HB_ENGINE_AUTO_PENALTY_MOST)
		record->penalty++;
}
