/* SPDX-License-Identifier: Apache-2.0 */
/* See restart_pause.h. */
#include "server/backends/restart_pause.h"

#include "base/clock.h"

/* Failures in a row after which requests still wait for the next worker. */
#define FAILURES_SHORT_MAX 4
/* A worker that has completed a batch and lived this long has served well: earlier failures count no more. */
#define WELL_NS (10 * HB_NS_PER_S)
/* After N failures in a row the pause is PAUSE_NS * 2^N, at most PAUSE_MAX_NS. */
#define PAUSE_NS (HB_NS_PER_S / 10)
#define PAUSE_MAX_NS (30 * HB_NS_PER_S)

void hb_restart_pause_note_start(struct hb_restart_pause *pause, int64_t now_ns)
{
	pause->restarts += pause->failures > 0;
	pause->completed = false;
	pause->started_ns = now_ns;
}

int64_t hb_restart_pause_note_end(struct hb_restart_pause *pause, int64_t now_ns)
{
	if (pause->completed && now_ns - pause->started_ns > WELL_NS)
		pause->failures = 1;
	else if (!pause->completed || pause->failures == 0)
		pause->failures++;
	int64_t ns = PAUSE_NS << (pause->failures < 9 ? pause->failures : 9);
	return ns < PAUSE_MAX_NS ? ns : PAUSE_MAX_NS;
}

bool hb_restart_pause_is_long(const struct hb_restart_pause *pause)
{
	return pause->failures > FAILURES_SHORT_MAX;
}
