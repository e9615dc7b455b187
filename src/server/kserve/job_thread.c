/* SPDX-License-Identifier: Apache-2.0 */
/* See job_thread.h. */
#include "server/kserve/job_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct hb_job_thread {
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool stopping;
	struct hb_job *first, **last;
};

static struct hb_job *take_job(struct hb_job_thread *thread)
{
	pthread_mutex_lock(&thread->lock);
	while (!thread->first && !thread->stopping)
		pthread_cond_wait(&thread->changed, &thread->lock);
	struct hb_job *job = thread->first;
	if (job) {
		thread->first = job->next;
		if (!thread->first)
			thread->last = &thread->first;
	}
	pthread_mutex_unlock(&thread->lock);
	return job;
}

static void *run_jobs(void *thread)
{
	struct hb_job *job;
	while ((job = take_job(thread)))
		job->run(job->owner);
	return NULL;
}

struct hb_job_thread *hb_job_thread_new(void)
{
	struct hb_job_thread *thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->last = &thread->first;
	pthread_mutex_init(&thread->lock, NULL);
	pthread_cond_init(&thread->changed, NULL);
	if (pthread_create(&thread->thread, NULL, run_jobs, thread) == 0)
		return thread;
	pthread_mutex_destroy(&thread->lock);
	pthread_cond_destroy(&thread->changed);
	free(thread);
	return NULL;
}

void hb_job_thread_free(struct hb_job_thread *thread)
{
	if (!thread)
		return;
	pthread_mutex_lock(&thread->lock);
	thread->stopping = true;
	pthread_cond_signal(&thread->changed);
	pthread_mutex_unlock(&thread->lock);
	pthread_join(thread->thread, NULL);
	pthread_mutex_destroy(&thread->lock);
	pthread_cond_destroy(&thread->changed);
	free(thread);
}

void hb_job_thread_submit(struct hb_job_thread *thread, struct hb_job *job)
{
	pthread_mutex_lock(&thread->lock);
	job->next = NULL;
	*thread->last = job;
	thread->last = &job->next;
	pthread_cond_signal(&thread->changed);
	pthread_mutex_unlock(&thread->lock);
}
