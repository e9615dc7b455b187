/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the pause before an ended worker is started again: it doubles with every failure in a row, up to 30 s. Used by
 * backend_worker.c. Time is an argument.
 */
#ifndef HB_SERVER_RESTART_PAUSE_H
#define HB_SERVER_RESTART_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct hb_restart_pause {
	uint32_t failures;  /* workers in a row that ended without a completed batch, or soon after one */
	bool completed;     /* the worker that runs has completed a batch */
	int64_t started_ns; /* when it was started */
	uint64_t restarts;  /* workers that were started because the one before had ended */
};

void hb_restart_pause_note_start(struct hb_restart_pause *pause, int64_t now_ns);
/* Returns the time until the next start, ns. */
int64_t hb_restart_pause_note_end(struct hb_restart_pause *pause, int64_t now_ns);
/* Returns whether many workers in a row have failed: requests are then refused instead of waiting for the next one. */
bool hb_restart_pause_is_long(const struct hb_restart_pause *pause);

#endif
