/* SPDX-License-Identifier: Apache-2.0 */
/* Runs parts of `hb doctor` as child processes; see doctor_trial.h. */
#include "cli/doctor_trial.h"

#include "base/clock.h"
#include "cli/child_process.h"

#include <errno.h>

#define TRIAL_TEXT_MAX 65536
#define ARGUMENTS_MAX 16

/* Runs `arguments` and reads the JSON object that the program prints. */
static json_t *run_trial(const char *const *arguments, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	static char text[TRIAL_TEXT_MAX];
	json_t *answer = NULL;
	/* With a simulated GPU, the message of hb run that the GPU is simulated is hidden. */
	struct hb_child child = {.arguments = arguments,
				 .errors = simulated ? HB_CHILD_ERRORS_HIDDEN : HB_CHILD_ERRORS_SHOWN,
				 .limit_ns = limit_ns};
	int length = hb_child_read(&child, text, sizeof text);
	if (length == -ETIMEDOUT)
		hb_error_set(error, length, "no answer within %lld ms; the trial was killed",
			     (long long)(limit_ns / HB_NS_PER_MS));
	else if (length <= 0)
		hb_error_set(error, -EIO, "the trial program printed nothing; see the message above");
	else
		hb_json_parse(text, (size_t)length, "the trial program", &answer, error);
	return answer;
}

json_t *hb_trial_inside(const char *priority, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	const char *arguments[ARGUMENTS_MAX];
	char program[PATH_MAX];
	size_t n = 0;
	hb_child_own_path(program);
	arguments[n++] = program;
	arguments[n++] = "run";
	arguments[n++] = "--priority";
	arguments[n++] = priority;
	if (simulated) {
		arguments[n++] = "--gpu";
		arguments[n++] = "sim";
	}
	arguments[n++] = "--";
	arguments[n++] = program;
	arguments[n++] = "doctor";
	arguments[n++] = "--inside";
	arguments[n] = NULL;
	return run_trial(arguments, simulated, limit_ns, error);
}

/* Runs a trial that needs no daemon. */
static json_t *run_plain_trial(const char *option, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	char program[PATH_MAX];
	hb_child_own_path(program);
	const char *const arguments[] = {program, "doctor", option, simulated ? "--gpu" : NULL, "sim", NULL};
	return run_trial(arguments, simulated, limit_ns, error);
}

json_t *hb_trial_slice(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--slice", simulated, limit_ns, error);
}

json_t *hb_trial_masks(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--masks", simulated, limit_ns, error);
}

json_t *hb_trial_gpcs(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--gpcs", simulated, limit_ns, error);
}
