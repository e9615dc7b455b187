/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the lines of the journal; see journal.h. */
#include "server/models/journal.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct hb_journal {
	FILE *file;
};

/* The journal of the run before, which may have crashed, stays as PATH.old. A pipe or a device is left alone. */
static int keep_old(const char *path, struct hb_error *error)
{
	char *old;
	struct stat status;
	if (stat(path, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
		return 0;
	if (asprintf(&old, "%s.old", path) < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = rename(path, old) == 0 ? 0
					    : hb_error_set(error, -errno, "--journal %s: cannot rename it to %s: %s",
							   path, old, strerror(errno));
	free(old);
	return result;
}

int hb_journal_new(const char *path, struct hb_journal **out, struct hb_error *error)
{
	int result = keep_old(path, error);
	if (result < 0)
		return result;
	struct hb_journal *journal = calloc(1, sizeof(*journal));
	if (!journal)
		return hb_error_set(error, -ENOMEM, "out of memory");
	journal->file = fopen(path, "we");
	if (!journal->file) {
		result = hb_error_set(error, -errno, "--journal %s: %s", path, strerror(errno));
		free(journal);
		return result;
	}
	*out = journal;
	return 0;
}

void hb_journal_free(struct hb_journal *journal)
{
	if (!journal)
		return;
	bool failed = ferror(journal->file) != 0;
	if (fclose(journal->file) != 0 || failed)
		hb_log_error("the journal is incomplete: a write failed");
	free(journal);
}

void hb_journal_model(struct hb_journal *journal, uint32_t number, const struct hb_scheduler_model *model)
{
	if (journal)
		fprintf(journal->file, "model %u %s %u %.0f %.0f %.4f %.4f %.4f %.4f %.0f %.4f\n", number, model->name,
			model->max_items, model->in_bytes, model->out_bytes, model->sm_demand[0], model->sm_demand[1],
			model->memory_demand[0], model->memory_demand[1], model->run_guess_ns, model->stop_share);
}

void hb_journal_demand(struct hb_journal *journal, uint32_t number, const struct hb_demand *demand)
{
	if (journal)
		fprintf(journal->file, "demand %u %.0f %.0f %.4f %.4f %.4f %.4f\n", number, demand->in_bytes,
			demand->out_bytes, demand->sm[0], demand->sm[1], demand->memory[0], demand->memory[1]);
}

void hb_journal_profile(struct hb_journal *journal, uint32_t number, uint32_t items, const double stage_ns[HB_STAGES])
{
	if (journal)
		fprintf(journal->file, "profile %u %u %.0f %.0f %.0f\n", number, items, stage_ns[HB_STAGE_IN],
			stage_ns[HB_STAGE_RUN], stage_ns[HB_STAGE_OUT]);
}

void hb_journal_start(struct hb_journal *journal, int64_t now_ns, uint32_t slot, const struct hb_scheduler_batch *batch)
{
	if (journal)
		fprintf(journal->file, "start %" PRId64 " %u %u %u %d\n", now_ns, slot, batch->model, batch->items,
			(int)batch->priority);
}

void hb_journal_stage(struct hb_journal *journal, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage)
{
	if (journal)
		fprintf(journal->file, "stage %" PRId64 " %u %d\n", now_ns, slot, (int)stage);
}

void hb_journal_pause(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool paused)
{
	if (journal)
		fprintf(journal->file, "pause %" PRId64 " %u %d\n", now_ns, slot, paused);
}

void hb_journal_end(struct hb_journal *journal, int64_t now_ns, uint32_t slot, bool complete)
{
	if (journal)
		fprintf(journal->file, "end %" PRId64 " %u %d\n", now_ns, slot, complete);
}

void hb_journal_policy(struct hb_journal *journal, int64_t now_ns, const char *policy)
{
	if (!journal)
		return;
	fprintf(journal->file, "policy %" PRId64 " %s\n", now_ns, policy);
	fflush(journal->file);
}
