/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps measured demands on disk, so that a model is measured once (demand_trial.h): one JSON file with a record for each
 * model, found by a digest of what decides the demand. The file has a version and at most HB_DEMAND_RECORDS records; a new
 * one replaces the oldest. Several servers may use the file: the last writer keeps the records of the others.
 */
#ifndef HB_SERVER_DEMAND_FILE_H
#define HB_SERVER_DEMAND_FILE_H

#include "base/error.h"
#include "server/models/model_config.h"
#include "server/scheduler/demand.h"

#include <stddef.h>
#include <stdint.h>

#define HB_DEMAND_FILE_VERSION 1
#define HB_DEMAND_RECORDS 256

struct hb_demand_record {
	uint64_t digest;
	char name[HB_MODEL_NAME_MAX]; /* for people who read the file */
	struct hb_demand demand;
};

/*
 * Returns the digest of what decides the demand of a model: the GPU (any text), platform, command, tensors, largest batch,
 * and the files that the model and its command name. Of a file of more than 4 MiB only that much counts, and its size and
 * time. Reads files, so it may take long.
 */
uint64_t hb_demand_digest(const struct hb_model_config *model, const char *gpu);
/* Writes the default path of the file; "" if there is none. */
void hb_demand_file_choose(char *path, size_t size);
/* Finds a record. Returns 0; -ENOENT: it is not there; another negative errno with *error: the file cannot be used. */
int hb_demand_file_find(const char *path, uint64_t digest, struct hb_demand *demand, struct hb_error *error);
/* Rounds a demand to what the file can store, so that it stays the same when it is read again. */
void hb_demand_round(struct hb_demand *demand);
/* Adds or replaces a record. A file that cannot be used is replaced. Returns 0, or negative errno with *error. */
int hb_demand_file_store(const char *path, const struct hb_demand_record *record, struct hb_error *error);
/* Does so on a thread of its own, and logs a failure. */
void hb_demand_file_save(const char *path, const struct hb_demand_record *record);
/* Waits, at most for_ns, until all records are saved. */
void hb_demand_file_finish(int64_t for_ns);

#endif
