/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs programs for `hb doctor` and `hb report` and waits for them: with a time limit and their output in memory, or with
 * the terminal of `hb`. A program is found on the PATH.
 */
#ifndef HB_CLI_CHILD_PROCESS_H
#define HB_CLI_CHILD_PROCESS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum hb_child_errors { HB_CHILD_ERRORS_SHOWN, HB_CHILD_ERRORS_HIDDEN, HB_CHILD_ERRORS_READ };

struct hb_child {
	const char *const *arguments; /* ends with NULL; the first is the program */
	const char *input;            /* what it reads from standard input; NULL = nothing. At most PIPE_BUF bytes */
	enum hb_child_errors errors;  /* what happens to its standard error */
	int64_t limit_ns;             /* hb_child_read(): after this time it is killed */
};

/*
 * Reads the program's output, up to `size` - 1 bytes, into `text`, which is ended with a NUL; what comes after that is lost.
 * The program is killed when its output has ended and it has not, and when `hb` ends. Returns the length, -ETIMEDOUT (text holds what came until
 * then), or the negative errno of starting it.
 */
int hb_child_read(const struct hb_child *child, char *text, size_t size);

/* Runs the program without time limit; it uses the output of `hb`. Returns its exit status, 128 + a signal, or a negative errno. */
int hb_child_run(const struct hb_child *child);

/* Stores the path of this program; "" without /proc. */
void hb_child_own_path(char path[PATH_MAX]);

#endif
