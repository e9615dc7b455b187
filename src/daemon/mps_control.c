/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_control.h. */
#include "daemon/mps_control.h"

#include "base/clock.h"
#include "gpu/provider.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED "Cannot send command"
#define REPEAT_MS 20

struct hb_mps_command {
	struct hb_mps_command *next;
	struct hb_mps_place *place;
	uv_loop_t *loop;
	const char *option;
	char input[80];
	uint64_t limit_ms;
	int64_t since_ns; /* the first attempt */
	uv_timer_t repeat;
	hb_command_done *done;
	void *argument;
};

static void command_ended(void *argument, const struct hb_command_result *result);

static int start(struct hb_mps_command *command)
{
	char program[PATH_MAX];
	const char *why;
	char *arguments[] = {program, (char *)(uintptr_t)command->option, NULL};
	int result = hb_provider_of(command->place->simulated)->mps_control(program, sizeof program, &why);
	if (result == 0 && !hb_mps_place_read_token(command->place))
		result = -ENOENT;
	if (result < 0)
		return result;
	if (command->since_ns == 0)
		command->since_ns = hb_clock_now_ns();
	char **environment = hb_mps_place_environment(command->place);
	if (!environment)
		return -ENOMEM;
	result = hb_command_run(command->loop, arguments, environment, command->option ? NULL : command->input,
				command->limit_ms, command_ended, command);
	hb_mps_environment_free(environment);
	return result;
}

/* Ends the first command, and starts the next one. `done` of the last command may free the place. */
static void end_first(struct hb_mps_place *place, const struct hb_command_result *result)
{
	struct hb_command_result failed = {.status = 127};
	int started;
	do {
		struct hb_mps_command *first = place->commands;
		place->commands = first->next;
		started = place->commands ? start(place->commands) : 0;
		first->done(first->argument, result);
		free(first);
		snprintf(failed.output, sizeof failed.output, "%s", strerror(-started));
		result = &failed;
	} while (started < 0);
}

static void repeat_closed(uv_handle_t *handle)
{
	struct hb_mps_command *command = handle->data;
	struct hb_command_result failed = {.status = 127};
	int result = start(command);
	snprintf(failed.output, sizeof failed.output, "%s", strerror(-result));
	if (result < 0)
		end_first(command->place, &failed);
}

static void repeat(uv_timer_t *timer)
{
	uv_close((uv_handle_t *)timer, repeat_closed);
}

static void command_ended(void *argument, const struct hb_command_result *result)
{
	struct hb_mps_command *command = argument;
	bool refused = strncmp(result->output, REFUSED, strlen(REFUSED)) == 0;
	if (!refused || hb_clock_now_ns() - command->since_ns >= (int64_t)command->limit_ms * HB_NS_PER_MS) {
		end_first(command->place, result);
		return;
	}
	uv_timer_init(command->loop, &command->repeat);
	command->repeat.data = command;
	uv_timer_start(&command->repeat, repeat, REPEAT_MS, 0);
}

int hb_mps_control_run(struct hb_mps_place *place, uv_loop_t *loop, const char *option, const char *input,
		       uint64_t limit_ms, hb_command_done *done, void *argument)
{
	struct hb_mps_command *command = calloc(1, sizeof *command), **end = &place->commands;
	if (!command)
		return -ENOMEM;
	*command = (struct hb_mps_command){.place = place,
					   .loop = loop,
					   .option = option,
					   .limit_ms = limit_ms,
					   .done = done,
					   .argument = argument};
	snprintf(command->input, sizeof command->input, "%s", input ? input : "");
	int result = place->commands ? 0 : start(command);
	if (result < 0) {
		free(command);
		return result;
	}
	while (*end)
		end = &(*end)->next;
	*end = command;
	return 0;
}
