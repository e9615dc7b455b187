/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers jobs: tenants that root announced for another user's process (protocol/job_file.h, `hb register`). The first
 * process that registers with a job's token, after `hb register` or after a restart of the daemon, registers the job's
 * first process, whatever it is itself. No request gets more than root announced.
 */
#ifndef HB_DAEMON_JOB_REGISTRATION_H
#define HB_DAEMON_JOB_REGISTRATION_H

#include "daemon/admission.h"
#include "daemon/daemon.h"

struct hb_job_registration {
	struct hb_peer first;           /* the job's first process; open */
	struct hb_msg_register request; /* with at most the rights that root announced */
	char name[128];                 /* shown as the command */
	bool open;                      /* any process of the user may join */
	struct hb_rights most;          /* the most that the job's user may set later */
};

/*
 * Looks for the job of a request whose token no tenant has. 1: it is a job, and the caller closes job->first (hb_peer_close()).
 * 0: it is none, or its first process has ended. -EPERM with *error: the job belongs to another user.
 */
int hb_job_registration_find(const struct hb_daemon *daemon, const struct hb_peer *peer,
			     const struct hb_msg_register *request, struct hb_job_registration *job,
			     struct hb_error *error);

/* Whether the tenant's user may have these rights: always, unless it is a job to which root announced less. */
bool hb_job_may_have(const struct hb_tenancy *tenancy, const struct hb_rights *wanted, char reason[160]);

#endif
