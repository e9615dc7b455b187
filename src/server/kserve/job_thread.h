/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that does long work on large bodies and tensors (decompressing, copying), so that the work delays neither the
 * other connections of a protocol's thread nor the dispatcher. Jobs run one after another. Used by HTTP, gRPC and
 * backend_worker.c, with one thread each.
 */
#ifndef HB_SERVER_JOB_THREAD_H
#define HB_SERVER_JOB_THREAD_H

struct hb_job_thread;

/* A member of the object that the work is for, `owner`. */
struct hb_job {
	void (*run)(void *owner); /* called on the thread, once; the owner may end during the call */
	void *owner;
	struct hb_job *next;
};

/* Creates the thread. Returns NULL without memory or threads. */
struct hb_job_thread *hb_job_thread_new(void);
/* Waits for all jobs and ends the thread. NULL is allowed. */
void hb_job_thread_free(struct hb_job_thread *thread);
/* Any thread. */
void hb_job_thread_submit(struct hb_job_thread *thread, struct hb_job *job);

#endif
