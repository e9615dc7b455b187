/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one log: lines "hb: warning: text" on stderr, quiet by default. HB_LOG
 * = error, warning (default), info or debug. Safe in any thread and inside
 * other people's programs: no lock, no allocation, one write(2) a line, errno
 * is kept. Errors that a user caused are returned as struct hb_error. They are logged only
 * where no caller can show them.
 */
#ifndef HB_BASE_LOG_H
#define HB_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hb_log_level { HB_LOG_ERROR, HB_LOG_WARNING, HB_LOG_INFO, HB_LOG_DEBUG };

/* Word before the level in every line: "hb" until set; must outlive the program (a literal). */
void hb_log_name_set(const char *name);
/* Sets the level, in place of the environment variable HB_LOG. */
void hb_log_level_set(enum hb_log_level level);
/* Passes lines (without a newline) to this function instead of stderr; NULL = stderr again. For one thread. */
void hb_log_sink_set(void (*sink)(void *argument, enum hb_log_level level, const char *line), void *argument);

bool hb_log_enabled(enum hb_log_level level);
void hb_log_write(enum hb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Arguments are not evaluated when the level is off. */
#define hb_log(level, ...) \
	do { \
		if (hb_log_enabled(level)) \
			hb_log_write(level, __VA_ARGS__); \
	} while (0)
#define hb_log_error(...) hb_log(HB_LOG_ERROR, __VA_ARGS__)
#define hb_log_warning(...) hb_log(HB_LOG_WARNING, __VA_ARGS__)
#define hb_log_info(...) hb_log(HB_LOG_INFO, __VA_ARGS__)
#define hb_log_debug(...) hb_log(HB_LOG_DEBUG, __VA_ARGS__)

/* A message that may occur often: at most one line in each period; the next line reports how many were dropped. */
struct hb_log_limit {
	int64_t period_ns;
	_Atomic int64_t next_ns; /* 0 = the next line may be written */
	_Atomic uint64_t dropped;
};

/* Returns true if the line may be written now; *dropped = lines suppressed since the last one. Any thread. */
bool hb_log_limit_pass(struct hb_log_limit *limit, int64_t now_ns, uint64_t *dropped);

#endif
