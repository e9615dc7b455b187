/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb bench` executes the benchmark harness, a Python package (bench/hbbench)
 * that is part of the source tree or is installed with hb. The harness reads the
 * options itself and prints every message under this command's name.
 */
#include "base/paths.h"
#include "cli/cli.h"
#include "hb-commit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "bench"

/* The harness relative to the folder of hb: in build/, build-test/gcc/, and bin/ of an installation. */
static const char *const harness_places[] = {
	"../bench/hbbench/__main__.py",
	"../../bench/hbbench/__main__.py",
	"../share/hummingbird/bench/hbbench/__main__.py",
};

/* A build folder may be anywhere; its data folder is always in the source tree. */
static bool find_harness(const char *own, char path[PATH_MAX])
{
	bool found = false;
	for (size_t i = 0; !found && i < sizeof harness_places / sizeof *harness_places; i++)
		found = snprintf(path, PATH_MAX, "%s/%s", own, harness_places[i]) < PATH_MAX && access(path, R_OK) == 0;
	if (!found && hb_path_data("../bench/hbbench/__main__.py", path, PATH_MAX, NULL) < 0)
		return false;
	*strrchr(path, '/') = '\0';
	return true;
}

/* Passes the path of this program to the harness, which starts `hb run` and `hb sim` with it. */
static void set_environment(const char *own)
{
	char hb[PATH_MAX + 4];
	snprintf(hb, sizeof hb, "%s/hb", own);
	setenv("HB_BENCH_HB", hb, 1);
	setenv("HB_BENCH_COMMIT", HB_COMMIT, 1);
}

int hb_cmd_bench(int argc, char **argv)
{
	char own[PATH_MAX], harness[PATH_MAX], python[] = "python3";
	char **words = calloc((size_t)argc + 3, sizeof *words);
	if (!words)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	if (hb_path_own_folder(own) < 0 || !find_harness(own, harness)) {
		free(words);
		return hb_cli_error(
			COMMAND, -ENOENT,
			"bench/hbbench is not found, neither in the source tree of hb nor installed with it");
	}
	set_environment(own);
	words[0] = python;
	words[1] = harness;
	for (int i = 1; i < argc; i++)
		words[i + 1] = argv[i];
	execvp(words[0], words);
	free(words);
	return hb_cli_error(COMMAND, -ENOEXEC, "python3 is not found; the harness needs Python 3.11 or newer");
}
