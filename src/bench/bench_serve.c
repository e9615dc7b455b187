/* SPDX-License-Identifier: Apache-2.0 */
/* The suite `serve`: not programs beside each other but requests with deadlines, which bench/serving.py measures. */
#include "bench/bench_serve.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "bench/bench_scripts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hb_bench_is_serve(const struct hb_bench_suite *suite)
{
	return strcmp(suite->name, "serve") == 0;
}

int hb_bench_serve_become(const struct hb_bench_options *options, const char *out_folder, struct hb_error *error)
{
	char script[PATH_MAX], hb[PATH_MAX], seconds[32], budget[32], results[PATH_MAX + 16], keep[PATH_MAX + 16];
	const char *argv[16] = {"python3", script, "--hb", hb, "--seconds", seconds};
	int n = 6, rc = hb_bench_script("", "serving.py", script, error);
	if (!rc && hb_install_program("hb", hb, sizeof hb) < 0)
		rc = hb_error_set(error, -ENOENT, "hb is not found");
	if (rc)
		return rc;
	snprintf(seconds, sizeof seconds, "%g", options->seconds);
	if (!options->simulated) {
		argv[n++] = "--live";
		argv[n++] = "torch";
	}
	if (options->deadline_ns) {
		snprintf(budget, sizeof budget, "%.3f", (double)(options->deadline_ns - hb_clock_now_ns()) / 1e9);
		argv[n++] = "--budget";
		argv[n++] = budget;
	}
	if (out_folder) {
		snprintf(results, sizeof results, "%s/serve.json", out_folder);
		snprintf(keep, sizeof keep, "%s/serve", out_folder);
		argv[n++] = "--results";
		argv[n++] = results;
		argv[n++] = "--keep";
		argv[n++] = keep;
	}
	argv[n] = NULL;
	execvp(argv[0], (char *const *)argv);
	return hb_error_set(error, -errno, "python3: %s", strerror(errno));
}
