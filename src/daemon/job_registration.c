/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of jobs; see job_registration.h. */
#include "daemon/job_registration.h"

#include "base/log.h"
#include "daemon/tenancy.h"
#include "protocol/job_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads the job's file. False: there is none that root, or the user of a per-user daemon, wrote. */
static bool read_file(const struct hb_daemon *daemon, const unsigned char *token, struct hb_job_file *job)
{
	uid_t trusted = daemon->options.system_mode ? 0 : daemon->owner;
	int result = hb_job_read(daemon->options.socket, token, trusted, job);
	if (result < 0 && result != -ENOENT)
		hb_log_warning("a job's file in the folder jobs beside %s does not count: %s", daemon->options.socket,
			       strerror(-result));
	return result == 0;
}

static bool open_first(const struct hb_job_file *job, struct hb_peer *first)
{
	if (hb_peer_of(job->pid, first) < 0)
		return false;
	if (first->start_ticks != job->start_ticks) {
		hb_peer_close(first);
		return false;
	}
	first->uid = job->uid;
	first->by_root = true;
	snprintf(first->user, sizeof first->user, "%s", job->user);
	return true;
}

int hb_job_registration_find(const struct hb_daemon *daemon, const struct hb_peer *peer,
			     const struct hb_msg_register *request, struct hb_job_registration *job,
			     struct hb_error *error)
{
	struct hb_job_file file;
	if (!read_file(daemon, request->token, &file))
		return 0;
	if (peer->uid != 0 && peer->uid != file.uid)
		return hb_error_set(error, -EPERM, "the job belongs to user %s", file.user);
	if (!open_first(&file, &job->first))
		return 0;
	job->request = *request;
	job->open = file.open;
	snprintf(job->name, sizeof job->name, "%s", file.name);
	job->most = (struct hb_rights){.priority = file.priority, .memory_bytes = file.memory_bytes};
	if (job->request.priority == HB_PAGE_HIGH)
		job->request.priority = file.priority;
	if (file.memory_bytes && (!request->memory_bytes || request->memory_bytes > file.memory_bytes))
		job->request.memory_bytes = file.memory_bytes;
	return 1;
}

bool hb_job_may_have(const struct hb_tenancy *tenancy, const struct hb_rights *wanted, char reason[160])
{
	const struct hb_rights *most = &tenancy->most;
	if (!tenancy->peer.by_root)
		return true;
	if (wanted->priority == HB_PAGE_HIGH && most->priority != HB_PAGE_HIGH) {
		snprintf(reason, 160, "root registered this tenant with priority low");
		return false;
	}
	if (most->memory_bytes && (!wanted->memory_bytes || wanted->memory_bytes > most->memory_bytes)) {
		snprintf(reason, 160, "root registered this tenant with a smaller memory limit");
		return false;
	}
	return true;
}
