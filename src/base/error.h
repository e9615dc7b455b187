/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an error a user will read: "FILE:LINE: what is wrong, what to do".
 * Functions that can fail because of input take one (NULL allowed) beside their
 * negative errno. Whoever first decides the error writes it; callers pass it on.
 */
#ifndef HB_BASE_ERROR_H
#define HB_BASE_ERROR_H

struct hb_error {
	char text[512]; /* always NUL-terminated once set */
};

/* Formats into *error (NULL: does nothing) and returns `code`, so that callers can `return hb_error_set(...)`. */
int hb_error_set(struct hb_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
