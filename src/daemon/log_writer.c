/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the log on a thread; see log_writer.h. */
#include "daemon/log_writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAITING_BYTES_MAX 65536
#define STOP_LIMIT_NS HB_NS_PER_S

static struct {
	pthread_mutex_t lock; /* never held during a write() */
	pthread_cond_t changed;
	char waiting[WAITING_BYTES_MAX]; /* complete lines */
	size_t n_waiting;
	char writing[WAITING_BYTES_MAX + 128]; /* the thread's own */
	unsigned long lost;                    /* lines, since the last one that was kept */
	bool is_running, is_stopping;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_all(const char *text, size_t length)
{
	while (length) {
		ssize_t n = write(STDERR_FILENO, text, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* a failure to log cannot be reported anywhere */
		text += n;
		length -= (size_t)n;
	}
}

/* Takes all lines that wait, and says how many were lost after them. Called with the lock held. */
static size_t take_lines(void)
{
	size_t length = writer.n_waiting;
	memcpy(writer.writing, writer.waiting, length);
	if (writer.lost)
		length += (size_t)snprintf(
			writer.writing + length, sizeof writer.writing - length,
			"hbd: warning: %lu lines of the log were lost, because standard error was not read\n",
			writer.lost);
	writer.n_waiting = 0;
	writer.lost = 0;
	return length;
}

static void *run_writer(void *unused)
{
	pthread_mutex_lock(&writer.lock);
	while (writer.n_waiting || !writer.is_stopping) {
		if (!writer.n_waiting) {
			pthread_cond_wait(&writer.changed, &writer.lock);
			continue;
		}
		size_t length = take_lines();
		pthread_mutex_unlock(&writer.lock);
		write_all(writer.writing, length);
		pthread_mutex_lock(&writer.lock);
	}
	writer.is_running = false;
	pthread_cond_broadcast(&writer.changed);
	pthread_mutex_unlock(&writer.lock);
	return NULL;
}

static bool keep_line(const char *line, size_t length)
{
	bool running;
	pthread_mutex_lock(&writer.lock);
	running = writer.is_running;
	if (running && writer.n_waiting + length > sizeof writer.waiting) {
		writer.lost++;
	} else if (running) {
		memcpy(writer.waiting + writer.n_waiting, line, length);
		writer.n_waiting += length;
		pthread_cond_signal(&writer.changed);
	}
	pthread_mutex_unlock(&writer.lock);
	return running;
}

static void log_line(void *unused, enum hb_log_level level, const char *line)
{
	char complete[1100];
	int length = snprintf(complete, sizeof complete, "%.1090s\n", line);
	if (!keep_line(complete, (size_t)length))
		write_all(complete, (size_t)length);
}

int hb_log_writer_start(void)
{
	hb_condition_init(&writer.changed);
	writer.is_stopping = false;
	writer.is_running = true;
	int result = hb_thread_start(NULL, 0, run_writer, NULL);
	if (result == 0)
		hb_log_sink_set(log_line, NULL);
	else
		writer.is_running = false;
	return result;
}

void hb_log_writer_stop(void)
{
	int64_t until_ns = hb_clock_now_ns() + STOP_LIMIT_NS;
	pthread_mutex_lock(&writer.lock);
	writer.is_stopping = true;
	pthread_cond_broadcast(&writer.changed);
	while (writer.is_running && hb_condition_wait_until(&writer.changed, &writer.lock, until_ns))
		;
	pthread_mutex_unlock(&writer.lock);
}
