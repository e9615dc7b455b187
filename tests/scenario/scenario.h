/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scenario interpreter: a text drives a core, what the core does is printed.
 * It is an owner of a core like the daemon, with a clock of its own that only
 * the text moves. Called by scenario_main.c. The language: README.md here.
 */
#ifndef HB_TESTS_SCENARIO_H
#define HB_TESTS_SCENARIO_H

#include "base/error.h"

#include <stdio.h>

/* 0, or -EINVAL with "FILE:LINE: ..." in the error. What happened before the error is printed all the same. */
int hb_scenario_run(const char *path, FILE *in, FILE *out, struct hb_error *error);

#endif
