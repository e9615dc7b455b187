/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: tenants that root registered for another user's process, as a cluster's agent
 * does (`hb register`). A file for each job lies in the folder `jobs` beside the
 * daemon's socket, and its name is the tenant's token. Only root, or the user of a
 * per-user daemon, can write there, and only who knows the token can find the file:
 * the folder cannot be listed. So a restarted daemon still knows what root granted,
 * and the user cannot change it.
 */
#ifndef HB_PROTOCOL_JOB_FILE_H
#define HB_PROTOCOL_JOB_FILE_H

#include "base/error.h"
#include "protocol/protocol.h"

#include <stdbool.h>
#include <sys/types.h>

struct hb_job_file {
	uid_t uid;
	char user[64];  /* login name, for rules */
	char name[128]; /* what `hb status` shows as the command */
	bool open; /* any process of the user that knows the token may join, not only descendants of the first one */
	pid_t pid; /* the tenant's first process: the tenant exists as long as it */
	uint64_t start_ticks;           /* of this process, in ticks since boot; hb_job_write() fills it in */
	enum hb_page_priority priority; /* the highest that the tenant may get */
	uint64_t memory_bytes;          /* the most memory on each GPU; 0 = no limit */
};

/* Writes the file of this token beside the socket; makes the folder. 0 or negative errno with *error. */
int hb_job_write(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES], struct hb_job_file *job,
		 struct hb_error *error);
/*
 * Reads it. `trusted`: the user, besides root, whose files count. -ENOENT: root registered no such job. -EPERM: somebody else
 * can write to the file or the folder. -EBADMSG: the file is damaged.
 */
int hb_job_read(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES], uid_t trusted,
		struct hb_job_file *job);
void hb_job_remove(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES]);
/* Removes the files of jobs whose first process has ended, at most 1000 of them. */
void hb_job_clean(const char *socket_path);

#endif
