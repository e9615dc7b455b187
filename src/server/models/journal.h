/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of `hb serve --journal FILE`: one line of text per event of a
 * batch. bench/journal computes from it how good the predictions were. The
 * dispatcher writes it under its lock; every function accepts NULL (no journal)
 * and does nothing then. Times are CLOCK_MONOTONIC in ns.
 *
 *	model NUMBER NAME ITEMS IN_BYTES OUT_BYTES SM1 SMN MEMORY1 MEMORYN GUESS_NS STOP_SHARE
 *	                                      a new number, or a number that now belongs to another model
 *	profile MODEL ITEMS IN_NS RUN_NS OUT_NS   duration of each stage alone
 *	demand MODEL IN_BYTES OUT_BYTES SM1 SMN MEMORY1 MEMORYN   the demand of the model was measured
 *	policy TIME NAME                          the policy was changed
 *	start TIME SLOT MODEL ITEMS PRIORITY      a batch starts; PRIORITY 0 = high, 1 = low
 *	stage TIME SLOT STAGE                     it enters a stage: 1 = run, 2 = copy out
 *	pause TIME SLOT PAUSED                    it is paused (1) or resumed (0)
 *	end TIME SLOT COMPLETE                    it ends: 1 = with results
 */
#ifndef HB_SERVER_JOURNAL_H
#define HB_SERVER_JOURNAL_H

#include "server/scheduler/scheduler.h"

struct hb_journal;

/* Creates the file; a journal that is there is renamed to PATH.old. Returns 0, or negative errno with *error. */
int hb_journal_new(const char *path, struct hb_journal **out, struct hb_error *error);
/* Closes the file. Logs an error when a line could not be written. */
void hb_journal_free(struct hb_journal *journal);
void hb_journal_model(struct hb_journal *journal, uint32_t number, const struct hb_scheduler_model *model);
void hb_journal_demand(struct hb_journal *journal, uint32_t number, const struct hb_demand *demand);
void hb_journal_profile(struct hb_journal *journal, uint32_t number, uint32_t items, const double stage_ns[HB_STAGES]);
/* Records the new policy and writes all buffered lines to the file. */
void hb_journal_policy(struct hb_journal *journal, int64_t now_ns, const char *policy);
void hb_journal_start(struct hb_journal *journal, int64_t now_ns, uint32_t slot,
		      const struct hb_scheduler_batch *batch);
void hb_journal_stage(struct hb_journal *journal, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
void hb_journal_pause(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool paused);
void hb_journal_end(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool complete);

#endif
