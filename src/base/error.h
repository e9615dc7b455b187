/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an error a user will read: "FILE:LINE: what is wrong, what to do".
 * Functions that can fail because of input take one (NULL allowed) beside their
 * negative errno. The function that detects the error writes the text; callers pass it on.
 */
#ifndef HB_BASE_ERROR_H
#define HB_BASE_ERROR_H

struct hb_error {
	char text[512]; /* always NUL-terminated once set */
};

/*
 * Formats into *error (if it is not NULL) and evaluates to `code`, so that callers can
 * `return hb_error_set(error, -EINVAL, "%s:%d: ...", file, line)`. A macro, so
 * that compilers and analyzers see that the code is not 0.
 */
#define hb_error_set(error, code, ...) \
	({ \
		int hb_error_code_ = (code); \
		hb_error_format((error), __VA_ARGS__); \
		hb_error_code_; \
	})

void hb_error_format(struct hb_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
