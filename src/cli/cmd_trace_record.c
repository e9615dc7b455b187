/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb trace record`: records the events and actions of a running daemon's scheduling cores, and the launches of
 * low-priority tenants, and writes them as a timeline. `hb sim --replay` runs such a recording again.
 */
#include "cli/trace_record.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/out_file.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/record_timeline.h"
#include "cli/status_source.h"
#include "core/policy.h"
#include "core/recording.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "trace"

#define SECONDS_DEFAULT 10
#define SECONDS_MOST 3600

struct record_command {
	const char *file;
	long seconds;
	bool simulated;
};

static int call_recorder(bool simulated, uint32_t seconds, char **text, struct hb_error *error)
{
	char path[HB_PATH_MAX];
	int socket = hb_daemon_link(simulated, false, path, error);
	if (socket < 0)
		return socket;
	int result = hb_client_record(socket, seconds, text, error);
	close(socket);
	return result;
}

/* Blocks SIGINT and SIGTERM, which would otherwise lose the recording or leave an incomplete file. */
static void block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGTERM);
	sigprocmask(SIG_BLOCK, signals, NULL);
}

/* Waits until the time is over, or for SIGINT or SIGTERM. SIGSTOP and SIGCONT do not end the wait. */
static void wait_for_end(const sigset_t *signals, long seconds)
{
	int64_t end_ns = hb_clock_now_ns() + seconds * HB_NS_PER_S, left_ns;
	while ((left_ns = end_ns - hb_clock_now_ns()) > 0) {
		const struct timespec limit = {.tv_sec = (time_t)(left_ns / HB_NS_PER_S),
					       .tv_nsec = (long)(left_ns % HB_NS_PER_S)};
		if (sigtimedwait(signals, NULL, &limit) > 0 || errno != EINTR)
			break;
	}
}

static int save_recording(const char *text, const struct record_command *command, struct hb_out_file *file,
			  struct hb_error *error)
{
	json_t *status = NULL;
	struct hb_error ignored;
	/* The status only adds names; the daemon may have ended, so its absence is no error. */
	if (hb_status_ask(command->simulated, &status, &ignored) < 0)
		status = NULL;
	json_t *root = hb_record_timeline(text, status, error);
	int result = root ? hb_json_write(root, file->stream ? file->stream : stdout, error) : -EINVAL;
	if (result == 0)
		result = hb_out_file_commit(file, error);
	if (result == 0 && file->path)
		printf("%s: %zu events; open it in ui.perfetto.dev, or replay it: hb sim --replay %s\n", command->file,
		       json_array_size(json_object_get(root, "traceEvents")), command->file);
	json_decref(root);
	json_decref(status);
	return result;
}

static int take_seconds(struct record_command *command, const char *value)
{
	char *end = NULL;
	command->seconds = strtol(value, &end, 10);
	if (end == value || *end || command->seconds < 1 || command->seconds > SECONDS_MOST)
		return hb_cli_usage_error(COMMAND, "--seconds: '%s' is not a number from 1 to %d", value, SECONDS_MOST);
	return -1;
}

static int take_option(void *argument, int code, const char *value)
{
	struct record_command *command = argument;
	return code == 's' ? take_seconds(command, value) : hb_cli_take_gpu(COMMAND, value, &command->simulated);
}

static int parse_record(int argc, char **argv, const char *usage, struct record_command *command)
{
	static const struct option options[] = {
		{"seconds", required_argument, NULL, 's'},
		{"gpu", required_argument, NULL, 'g'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, true};
	int status = hb_cli_read_options(&syntax, argc, argv, command);
	if (status >= 0)
		return status;
	if (argc - optind != 1)
		return hb_cli_usage_error(COMMAND, "give the file to write");
	command->file = argv[optind];
	return -1;
}

int hb_trace_record(int argc, char **argv, const char *usage)
{
	struct record_command command = {.seconds = SECONDS_DEFAULT};
	struct hb_out_file file;
	struct hb_error error = {""};
	char *text = NULL;
	sigset_t signals;
	int status = parse_record(argc, argv, usage, &command);
	if (status >= 0 || !command.file)
		return status;
	block_signals(&signals);
	int result = hb_out_file_open(&file, strcmp(command.file, "-") == 0 ? NULL : command.file, &error);
	/* The daemon stops recording some seconds after this limit if hb does not ask for the recording. */
	if (result == 0)
		result = call_recorder(command.simulated, (uint32_t)command.seconds, NULL, &error);
	if (result == 0) {
		fprintf(file.path ? stdout : stderr, "recording for %ld s; Ctrl-C ends it\n", command.seconds);
		fflush(stdout);
		wait_for_end(&signals, command.seconds);
		result = call_recorder(command.simulated, 0, &text, &error);
	}
	if (result == 0)
		result = save_recording(text, &command, &file, &error);
	hb_out_file_fini(&file);
	free(text);
	return result < 0 ? hb_cli_error(COMMAND, -EIO, error.text) : HB_EXIT_OK;
}

/* --- replay --------------------------------------------------------------------------------- */

static int replay_file(const char *file, const char *policy, bool actions, struct hb_replay *replay,
		       struct hb_error *error)
{
	json_t *root = NULL;
	int result = hb_json_load(file, &root, error);
	if (result < 0)
		return result;
	char *text = hb_record_text(root, file, error);
	result = text ? hb_recording_replay(text, file, policy, actions ? stdout : NULL, replay, error) : -EINVAL;
	free(text);
	json_decref(root);
	return result;
}

static int parse_replay(int argc, char **argv, const char **policy, bool *actions)
{
	static const struct option options[] = {
		{"replay", no_argument, NULL, 'r'},
		{"policy", required_argument, NULL, 'p'},
		{"actions", no_argument, NULL, 'a'},
		{NULL, 0, NULL, 0},
	};
	int code;
	opterr = 0;
	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (code == '?')
			return hb_cli_usage_error("sim",
						  "--replay can only be combined with --policy NAME and --actions");
		if (code == 'p')
			*policy = optarg;
		*actions |= code == 'a';
	}
	if (*policy && !hb_policy_find(*policy))
		return hb_cli_usage_error("sim", "--policy: no policy '%s'; known:%s", *policy, hb_policy_words);
	return argc - optind == 1 ? -1 : hb_cli_usage_error("sim", "--replay: no file is given");
}

int hb_sim_replay(int argc, char **argv)
{
	struct hb_error error = {""};
	struct hb_replay replay;
	const char *policy = NULL;
	bool actions = false;
	int status = parse_replay(argc, argv, &policy, &actions);
	if (status >= 0)
		return status;
	int result = replay_file(argv[optind], policy, actions, &replay, &error);
	if (result < 0)
		return hb_cli_error("sim", result, error.text);
	printf("%llu events, %llu actions; %llu differ from the recording\n", (unsigned long long)replay.events,
	       (unsigned long long)replay.actions, (unsigned long long)replay.different);
	if (replay.different && !policy && !actions)
		puts("the recording began while tenants were running, so the replay lacks their past and the first "
		     "actions may differ; --actions prints the actions");
	return replay.different && !policy ? HB_EXIT_FAILURE : HB_EXIT_OK;
}
