/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ran when, as lines of text, for `hb sim-serve --journal`: the prediction
 * can be judged afterwards, with parts of the predictor switched off, from what
 * really happened. Written by the dispatcher under its lock when `hb serve
 * --journal FILE` asks for it; otherwise NULL, with which every function does
 * nothing. src/simserving/serving_journal.c reads it. Times are CLOCK_MONOTONIC in ns.
 *
 *	model NUMBER NAME ITEMS IN_BYTES OUT_BYTES SM1 SMN MEMORY1 MEMORYN GUESS_NS STOP_SHARE
 *	                                          the next number, or one that stands for another model from here on
 *	profile MODEL ITEMS IN_NS RUN_NS OUT_NS
 *	start TIME SLOT MODEL ITEMS PRIORITY      stage TIME SLOT STAGE
 *	hold TIME SLOT HELD                       end TIME SLOT WHOLE
 *	mark TIME TEXT
 */
#ifndef HB_FRONT_JOURNAL_H
#define HB_FRONT_JOURNAL_H

#include "server/scheduler/scheduler.h"

struct hb_journal;

/* Writes FILE anew. 0, or negative errno with *error. */
int hb_journal_new(const char *path, struct hb_journal **out, struct hb_error *error);
/* Logs when something could not be written. */
void hb_journal_free(struct hb_journal *journal);
void hb_journal_model(struct hb_journal *journal, uint32_t number, const struct hb_scheduler_model *model);
void hb_journal_profile(struct hb_journal *journal, uint32_t number, uint32_t items, const double stage_ns[HB_STAGES]);
void hb_journal_start(struct hb_journal *journal, int64_t now_ns, uint32_t slot,
		      const struct hb_scheduler_batch *batch);
void hb_journal_stage(struct hb_journal *journal, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
void hb_journal_hold(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool held);
void hb_journal_end(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool whole);
/* Divides it: from here on something else is tried. Everything before is on the disk. */
void hb_journal_mark(struct hb_journal *journal, int64_t now_ns, const char *text);

#endif
