/* SPDX-License-Identifier: Apache-2.0 */
/* The files that fake_nvml.c reads: a test writes events and states of the fake driver to them. */
#ifndef HB_TESTS_UNIT_FAKE_NVML_FILES_H
#define HB_TESTS_UNIT_FAKE_NVML_FILES_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char events_path[40], state_path[40];

static inline void write_file(const char *path, const char *mode, const char *text)
{
	FILE *file = fopen(path, mode);
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static inline void make_nvml_files(void)
{
	strcpy(events_path, "/tmp/hb-events-XXXXXX");
	strcpy(state_path, "/tmp/hb-state-XXXXXX");
	close(mkstemp(events_path));
	close(mkstemp(state_path));
	setenv("HB_FAKE_NVML_EVENTS", events_path, 1);
	setenv("HB_FAKE_NVML_STATE", state_path, 1);
}

static inline void remove_nvml_files(void)
{
	unlink(events_path);
	unlink(state_path);
}

#endif
