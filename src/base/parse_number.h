/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decimal numbers in files and specs. Stricter than strtod(): the whole text
 * must be a decimal number, so that "nan", "0x10", "1 2" and "" are errors.
 */
#ifndef HB_BASE_PARSE_NUMBER_H
#define HB_BASE_PARSE_NUMBER_H

#include <stdbool.h>

/* Parses a number. Returns false when the text is not a finite decimal number; *value is then unchanged. */
bool hb_number_parse(const char *text, double *value);

#endif
