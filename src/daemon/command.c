/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program in the event loop; see command.h. */
#include "daemon/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program that starts a daemon leaves the pipe open. This is the longest wait for output after the program has ended. */
#define REST_MS 100

struct hb_command {
	uv_process_t process;
	uv_pipe_t in, out;
	uv_timer_t timer;
	uv_write_t write;
	struct hb_command_result result;
	char input[80];
	size_t n_output;
	bool exited, finished;
	int open; /* handles not closed yet */
	hb_command_done *done;
	void *argument;
};

static void count_closed(uv_handle_t *handle)
{
	struct hb_command *command = handle->data;
	if (--command->open == 0)
		free(command);
}

static void close_handle(uv_handle_t *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, count_closed);
}

static void finish_command(struct hb_command *command)
{
	if (command->finished)
		return;
	command->finished = true;
	command->result.output[command->n_output] = '\0';
	command->done(command->argument, &command->result);
	close_handle((uv_handle_t *)&command->process);
	close_handle((uv_handle_t *)&command->in);
	close_handle((uv_handle_t *)&command->out);
	close_handle((uv_handle_t *)&command->timer);
}

static void handle_timeout(uv_timer_t *timer)
{
	struct hb_command *command = timer->data;
	if (command->exited) {
		finish_command(command);
		return;
	}
	uv_process_kill(&command->process, SIGKILL);
}

static void handle_exit(uv_process_t *process, int64_t status, int signal)
{
	struct hb_command *command = process->data;
	command->exited = true;
	command->result.status = signal ? 128 + signal : (int)status;
	uv_timer_start(&command->timer, handle_timeout, REST_MS, 0);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	static char spill[512];
	struct hb_command *command = handle->data;
	size_t room = sizeof command->result.output - 1 - command->n_output;
	*buffer = room ? uv_buf_init(command->result.output + command->n_output, (unsigned)room)
		       : uv_buf_init(spill, sizeof spill);
}

static void handle_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
	struct hb_command *command = stream->data;
	char *start = command->result.output, *end = start + sizeof command->result.output;
	if (n > 0 && buffer->base >= start && buffer->base < end)
		command->n_output += (size_t)n;
	if (n < 0) {
		uv_read_stop(stream);
		if (command->exited)
			finish_command(command);
	}
}

static void handle_written(uv_write_t *write, int status)
{
	struct hb_command *command = write->data;
	close_handle((uv_handle_t *)&command->in);
}

static void init_handles(struct hb_command *command, uv_loop_t *loop)
{
	uv_pipe_init(loop, &command->in, 0);
	uv_pipe_init(loop, &command->out, 0);
	uv_timer_init(loop, &command->timer);
	command->in.data = command->out.data = command->timer.data = command->process.data = command->write.data =
		command;
	command->open = 4;
}

/* Uses one pipe for standard output and error, because libuv would make two. Closes or takes over both ends. */
static int spawn_process(struct hb_command *command, uv_loop_t *loop, char **arguments, char **environment,
			 const int ends[2])
{
	uv_stdio_container_t stdio[3] = {
		{.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_READABLE_PIPE),
		 .data.stream = (uv_stream_t *)&command->in},
		{.flags = UV_INHERIT_FD, .data.fd = ends[1]},
		{.flags = UV_INHERIT_FD, .data.fd = ends[1]},
	};
	uv_process_options_t options = {.exit_cb = handle_exit,
					.file = arguments[0],
					.args = arguments,
					.env = environment,
					.stdio = stdio,
					.stdio_count = 3};
	int result = uv_spawn(loop, &command->process, &options);
	close(ends[1]);
	if (result == 0)
		result = uv_pipe_open(&command->out, ends[0]);
	if (result < 0)
		close(ends[0]);
	return result;
}

int hb_command_start(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		     hb_command_done *done, void *argument, struct hb_command **started)
{
	int ends[2];
	struct hb_command *command = calloc(1, sizeof *command);
	if (!command)
		return -ENOMEM;
	/* Before the first call of libuv: a process handle that was never spawned cannot be closed. */
	if (pipe2(ends, O_CLOEXEC) < 0) {
		int result = -errno;
		free(command);
		return result;
	}
	command->done = done;
	command->argument = argument;
	snprintf(command->input, sizeof command->input, "%s", input ? input : "");
	init_handles(command, loop);
	int result = spawn_process(command, loop, arguments, environment, ends);
	if (result < 0) {
		command->finished = true;
		close_handle((uv_handle_t *)&command->process);
		close_handle((uv_handle_t *)&command->in);
		close_handle((uv_handle_t *)&command->out);
		close_handle((uv_handle_t *)&command->timer);
		return result;
	}
	uv_timer_start(&command->timer, handle_timeout, timeout_ms, 0);
	uv_read_start((uv_stream_t *)&command->out, give_buffer, handle_output);
	uv_buf_t text = uv_buf_init(command->input, (unsigned)strlen(command->input));
	if (!input || uv_write(&command->write, (uv_stream_t *)&command->in, &text, 1, handle_written) < 0)
		close_handle((uv_handle_t *)&command->in);
	*started = command;
	return 0;
}

int hb_command_run(uv_loop_t *loop, char **arguments, char **environment, const char *input, uint64_t timeout_ms,
		   hb_command_done *done, void *argument)
{
	struct hb_command *started;
	return hb_command_start(loop, arguments, environment, input, timeout_ms, done, argument, &started);
}

void hb_command_kill(struct hb_command *command)
{
	if (!command->exited)
		uv_process_kill(&command->process, SIGKILL);
}
