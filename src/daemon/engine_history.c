/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers the results of engines for pairs of programs; see engine_history.h. */
#include "daemon/engine_history.h"

#include "base/paths.h"

#include <stdio.h>
#include <string.h>

#define LOW_PPM_MOST UINT64_C(1000000000)

static uint64_t mix_hash(uint64_t hash, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

void hb_engine_program(struct hb_engine_program *program, uint32_t user, const char *command)
{
	uint64_t hash = mix_hash(UINT64_C(0xcbf29ce484222325), &user, sizeof user);
	program->key = mix_hash(hash, command, strlen(command)) | 1;
	snprintf(program->text, sizeof program->text, "%s", hb_path_command(command));
}

struct hb_engine_pair *hb_engine_history_find(struct hb_engine_history *history, const struct hb_engine_program *high,
					      const struct hb_engine_program *low)
{
	struct hb_engine_pair *found = NULL;
	for (uint32_t i = 0; i < HB_ENGINE_PAIRS; i++) {
		struct hb_engine_pair *pair = &history->pairs[i];
		if (pair->high.key != high->key || (low->key && pair->low.key != low->key))
			continue;
		if (!found || (int32_t)(pair->used - found->used) > 0)
			found = pair;
	}
	return high->key ? found : NULL;
}

static struct hb_engine_pair *make_room(struct hb_engine_history *history)
{
	struct hb_engine_pair *oldest = &history->pairs[0];
	for (uint32_t i = 0; i < HB_ENGINE_PAIRS; i++) {
		struct hb_engine_pair *pair = &history->pairs[i];
		if (!pair->high.key)
			return pair;
		if ((int32_t)(pair->used - oldest->used) < 0)
			oldest = pair;
	}
	return oldest;
}

static uint32_t rate_low(struct hb_engine_pair *pair, const struct hb_engine_run *run)
{
	uint64_t rate_mhz = (uint64_t)((double)run->low_launches * 1e12 / (double)run->beside_ns);
	if (!pair->reference_mhz)
		pair->reference_mhz = rate_mhz;
	if (!pair->reference_mhz)
		return 0;
	uint64_t ppm = (uint64_t)((double)rate_mhz * 1e6 / (double)pair->reference_mhz);
	return (uint32_t)(ppm < LOW_PPM_MOST ? ppm : LOW_PPM_MOST);
}

struct hb_engine_pair *hb_engine_history_note(struct hb_engine_history *history, const struct hb_engine_program *high,
					      const struct hb_engine_run *run, enum hb_engine_auto_choice engine,
					      uint32_t target_ppm)
{
	if (run->judged < HB_ENGINE_RUN_REQUESTS || run->beside_ns < HB_ENGINE_RUN_NS || !run->low.key || !high->key)
		return NULL;
	struct hb_engine_pair *pair = hb_engine_history_find(history, high, &run->low);
	if (!pair) {
		pair = make_room(history);
		*pair = (struct hb_engine_pair){.high = *high, .low = run->low};
	}
	pair->used = ++history->clock;
	hb_engine_auto_note(&pair->choose, engine, (uint32_t)(run->met * 1000000 / run->judged), rate_low(pair, run),
			    target_ppm, run->is_noted);
	return pair;
}

static size_t add_record(char *text, size_t size, size_t at, const char *name,
			 const struct hb_engine_auto_record *record)
{
	int n;
	if (!record->runs)
		n = snprintf(text + at, size - at, "%s not tried", name);
	else
		n = snprintf(text + at, size - at, "%s %.1f %% met, low at %.0f %% (%u %s)", name,
			     record->attainment_ppm / 1e4, record->low_ppm / 1e4, record->runs,
			     record->runs == 1 ? "run" : "runs");
	return at + (n > 0 ? (size_t)n : 0);
}

void hb_engine_pair_text(const struct hb_engine_pair *pair, char *text, size_t size)
{
	size_t at = add_record(text, size, 0, "temporal", &pair->choose.records[HB_ENGINE_AUTO_TEMPORAL]);
	if (at + 2 >= size)
		return;
	at += (size_t)snprintf(text + at, size - at, "; ");
	add_record(text, size, at, "spatial", &pair->choose.records[HB_ENGINE_AUTO_SPATIAL]);
}
