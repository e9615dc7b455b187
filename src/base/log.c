/* SPDX-License-Identifier: Apache-2.0 */
/* Writes log lines to stderr; see log.h. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static const char *const level_names[] = {"error", "warning", "info", "debug"};

#define LEVEL_UNKNOWN (-1)
static _Atomic int level_limit = LEVEL_UNKNOWN;
static _Atomic(const char *) log_name = "hb";
static void (*log_sink)(void *argument, enum hb_log_level level, const char *line);
static void *log_sink_argument;

static int read_level_from_environment(void)
{
	const char *text = getenv("HB_LOG");
	for (int i = HB_LOG_ERROR; text && i <= HB_LOG_DEBUG; i++)
		if (!strcmp(text, level_names[i]))
			return i;
	return HB_LOG_WARNING;
}

void hb_log_name_set(const char *name)
{
	atomic_store(&log_name, name);
}

void hb_log_level_set(enum hb_log_level level)
{
	atomic_store(&level_limit, (int)level);
}

void hb_log_sink_set(void (*sink)(void *argument, enum hb_log_level level, const char *line), void *argument)
{
	log_sink = sink;
	log_sink_argument = argument;
}

bool hb_log_enabled(enum hb_log_level level)
{
	int limit = atomic_load_explicit(&level_limit, memory_order_relaxed);
	if (limit == LEVEL_UNKNOWN) {
		/* Two threads may both read the environment; they find the same value. */
		limit = read_level_from_environment();
		atomic_store_explicit(&level_limit, limit, memory_order_relaxed);
	}
	return (int)level <= limit;
}

void hb_log_write(enum hb_log_level level, const char *format, ...)
{
	int saved_errno = errno;
	char line[LINE_MAX_BYTES];
	int head = snprintf(line, sizeof line, "%.32s: %s: ", atomic_load(&log_name), level_names[level]);
	va_list arguments;
	va_start(arguments, format);
	int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
	va_end(arguments);
	size_t length = strlen(line);

	if (body >= 0 && log_sink) {
		log_sink(log_sink_argument, level, line);
	} else if (body >= 0) {
		line[length++] = '\n';
		/* A failure to log cannot be reported anywhere. */
		ssize_t ignored = write(STDERR_FILENO, line, length);
		(void)ignored;
	}
	errno = saved_errno;
}

bool hb_log_limit_pass(struct hb_log_limit *limit, int64_t now_ns, uint64_t *dropped)
{
	int64_t next_ns = atomic_load(&limit->next_ns);
	if ((next_ns && now_ns < next_ns) ||
	    !atomic_compare_exchange_strong(&limit->next_ns, &next_ns, now_ns + limit->period_ns)) {
		atomic_fetch_add(&limit->dropped, 1);
		return false;
	}
	*dropped = atomic_exchange(&limit->dropped, 0);
	return true;
}
