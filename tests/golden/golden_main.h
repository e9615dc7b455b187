/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() of the scenario interpreters:
 *
 *	PROGRAM [--check | --refresh] FILE.txt|FOLDER...
 *
 * Without an option prints what a scenario does, for people. --check compares it
 * with FILE.out beside it, --refresh writes that file. A folder stands for its
 * *.txt in order of name. Exit status 1 on any difference, 2 on a file that
 * cannot be read. A scenario whose error is the point has the error as the last
 * line of its output.
 */
#ifndef HB_TESTS_GOLDEN_MAIN_H
#define HB_TESTS_GOLDEN_MAIN_H

#include <stdint.h>
#include <stdio.h>

/* Reads a scenario, prints what happens, errors included. `name` is the file's, without folders. */
typedef void (*hb_golden_run)(const char *name, FILE *in, FILE *out);

int hb_golden_main(int argc, char **argv, hb_golden_run run);

#define HB_GOLDEN_WORDS 16 /* the most words of a line; further ones are ignored */

/* Splits a line into words, which point into it. Returns their number. */
uint32_t hb_golden_split(char *line, char *words[HB_GOLDEN_WORDS]);
/* Returns VALUE of "key=VALUE" among the words, or NULL. */
const char *hb_golden_value(char *const *words, uint32_t n, const char *key);

#endif
