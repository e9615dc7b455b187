/* SPDX-License-Identifier: Apache-2.0 */
/* Starting programs and talking to them; see bench_process.h. */
#include "bench/bench_process.h"

#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define TAIL_BYTES 300
#define STEP_NS (20 * HB_NS_PER_MS)
#define KILLED_NS (10 * HB_NS_PER_S)

#define KILLED_LEAST_NS (200 * HB_NS_PER_MS)

static volatile sig_atomic_t interrupted;
static int64_t time_ends_ns; /* 0 = never */

static void interrupt(int signal)
{
	interrupted = 1;
}

void hb_bench_interrupt_watch(void)
{
	struct sigaction action = {.sa_handler = interrupt}; /* no SA_RESTART: waits are to end */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool hb_bench_interrupted(void)
{
	return interrupted;
}

static void sleep_ns(int64_t ns)
{
	struct timespec time = {ns / HB_NS_PER_S, ns % HB_NS_PER_S};
	if (ns > 0)
		nanosleep(&time, NULL);
}

/* --- the time there is --------------------------------------------------------------------------- */

void hb_bench_time_set(int64_t ends_ns)
{
	time_ends_ns = ends_ns;
}

int64_t hb_bench_time_left(int64_t wanted_ns)
{
	int64_t left_ns = time_ends_ns ? time_ends_ns - hb_clock_now_ns() : wanted_ns;
	return left_ns > wanted_ns ? wanted_ns : left_ns > 0 ? left_ns : 0;
}

static bool time_is_over(void)
{
	return time_ends_ns && hb_clock_now_ns() >= time_ends_ns;
}

int hb_bench_stopped(struct hb_error *error)
{
	if (interrupted)
		return hb_error_set(error, -EINTR, "interrupted");
	return time_is_over() ? hb_error_set(error, -ETIME, "the time was over") : 0;
}

bool hb_bench_sleep_until(int64_t at_ns)
{
	int64_t until_ns = time_ends_ns && time_ends_ns < at_ns ? time_ends_ns : at_ns;
	for (int64_t now; !interrupted && (now = hb_clock_now_ns()) < until_ns;)
		sleep_ns(until_ns - now);
	return !interrupted && until_ns == at_ns;
}

/* --- commands -------------------------------------------------------------------------------- */

bool hb_bench_command_add(struct hb_bench_command *command, const char *word)
{
	char *copy = command->n_words < HB_BENCH_WORDS_MAX ? strdup(word) : NULL;
	if (copy)
		command->words[command->n_words++] = copy;
	return copy;
}

bool hb_bench_command_split(struct hb_bench_command *command, const char *text)
{
	char *copy = strdup(text), *rest = NULL;
	bool added = copy;
	for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word && added; word = strtok_r(NULL, " ", &rest))
		added = hb_bench_command_add(command, word);
	free(copy);
	return added;
}

bool hb_bench_command_set(struct hb_bench_command *command, const char *name, const char *value)
{
	char *text;
	if (command->n_variables == HB_BENCH_VARIABLES_MAX || asprintf(&text, "%s=%s", name, value) < 0)
		return false;
	command->variables[command->n_variables++] = text;
	return true;
}

void hb_bench_command_fini(struct hb_bench_command *command)
{
	for (unsigned i = 0; i < command->n_words; i++)
		free(command->words[i]);
	for (unsigned i = 0; i < command->n_variables; i++)
		free(command->variables[i]);
	*command = (struct hb_bench_command){.n_words = 0};
}

/* --- starting ---------------------------------------------------------------------------------- */

/* In the child. Its own process group, so that Ctrl-C reaches it only through us. */
_Noreturn static void become(const struct hb_bench_command *command, pid_t parent, const char *log, int in, int out)
{
	static const int given_back[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
	int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, command->end_signal);
	if (getppid() != parent)
		_exit(127); /* it died before we asked to be told */
	if (command->placed)
		sched_setaffinity(0, sizeof command->cpus, &command->cpus);
	for (size_t i = 0; i < sizeof given_back / sizeof *given_back; i++)
		signal(given_back[i], SIG_DFL);
	if (file < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
		_exit(127);
	for (unsigned i = 0; i < command->n_variables; i++)
		putenv(command->variables[i]);
	execvp(command->words[0], command->words);
	dprintf(STDERR_FILENO, "%s: %s\n", command->words[0], strerror(errno));
	_exit(127);
}

static void close_pair(int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

int hb_bench_process_start(struct hb_bench_process *process, const char *name, const struct hb_bench_command *command,
			   const char *folder, struct hb_error *error)
{
	static unsigned number;
	int in[2], out[2];
	*process = (struct hb_bench_process){.in = -1, .out = -1};
	snprintf(process->name, sizeof process->name, "%s", name);
	snprintf(process->log, sizeof process->log, "%.4000s/%u.log", folder, ++number);
	if (pipe2(in, O_CLOEXEC) < 0)
		return hb_error_set(error, -errno, "%s: %s", name, strerror(errno));
	if (pipe2(out, O_CLOEXEC) < 0) {
		close_pair(in);
		return hb_error_set(error, -errno, "%s: %s", name, strerror(errno));
	}
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0)
		become(command, parent, process->log, in[0], out[1]);
	int result = pid < 0 ? hb_error_set(error, -errno, "%s: %s", name, strerror(errno)) : 0;
	close(in[0]);
	close(out[1]);
	if (result) {
		close(in[1]);
		close(out[0]);
		return result;
	}
	process->pid = pid;
	process->in = in[1];
	process->out = out[0];
	return 0;
}

/* --- what went wrong ------------------------------------------------------------------------------ */

/* The end of its log on one line, for messages. */
static void last_lines(const struct hb_bench_process *process, char text[TAIL_BYTES + 1])
{
	FILE *file = fopen(process->log, "re");
	size_t n = 0;
	if (file && fseek(file, 0, SEEK_END) == 0) {
		long size = ftell(file);
		fseek(file, size > TAIL_BYTES ? size - TAIL_BYTES : 0, SEEK_SET);
		n = fread(text, 1, TAIL_BYTES, file);
	}
	if (file)
		fclose(file);
	while (n > 0 && strchr("\n ", text[n - 1]))
		n--;
	text[n] = '\0';
	for (char *at = text; *at; at++)
		*at = *at == '\n' ? '|' : (unsigned char)*at < ' ' ? ' ' : *at;
}

static int complain(const struct hb_bench_process *process, int code, const char *what, struct hb_error *error)
{
	char tail[TAIL_BYTES + 1];
	last_lines(process, tail);
	return hb_error_set(error, code, "%s %s%s%s", process->name, what, *tail ? "; its last lines: " : "", tail);
}

static bool reap(struct hb_bench_process *process, int options)
{
	if (process->pid > 0 && !process->ended)
		process->ended = waitpid(process->pid, &process->status, options) == process->pid;
	return process->ended;
}

static int complain_ended(struct hb_bench_process *process, struct hb_error *error)
{
	char what[64] = "has closed its output";
	for (int i = 0; i < 100 && !reap(process, WNOHANG); i++)
		sleep_ns(STEP_NS);
	if (process->ended && WIFSIGNALED(process->status))
		snprintf(what, sizeof what, "was ended by signal %d", WTERMSIG(process->status));
	else if (process->ended)
		snprintf(what, sizeof what, "ended with status %d", WEXITSTATUS(process->status));
	return complain(process, -EPIPE, what, error);
}

int hb_bench_process_check(struct hb_bench_process *process, struct hb_error *error)
{
	return reap(process, WNOHANG) ? complain_ended(process, error) : 0;
}

/* --- talking ----------------------------------------------------------------------------------- */

int hb_bench_process_tell(struct hb_bench_process *process, struct hb_error *error, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int n = vdprintf(process->in, format, arguments);
	va_end(arguments);
	return n < 0 || dprintf(process->in, "\n") < 0 ? complain_ended(process, error) : 0;
}

/* More of its output: 0, or as hear(). */
static int read_more(struct hb_bench_process *process, int64_t deadline_ns, const char *event, struct hb_error *error)
{
	char what[128];
	struct pollfd ready = {.fd = process->out, .events = POLLIN};
	if (process->length == process->size) {
		size_t size = process->size ? 2 * process->size : 65536;
		char *buffer = size <= LINE_MAX_BYTES ? realloc(process->buffer, size) : NULL;
		if (!buffer)
			return complain(process, -EPROTO, "says too much in one line", error);
		process->buffer = buffer;
		process->size = size;
	}
	int64_t left_ns = deadline_ns - hb_clock_now_ns();
	int64_t wait_ms = left_ns / HB_NS_PER_MS + 1;
	int found = poll(&ready, 1, left_ns <= 0 ? 0 : wait_ms < 1000 ? (int)wait_ms : 1000);
	int stopped = found > 0 && !interrupted ? 0 : hb_bench_stopped(error);
	if (stopped)
		return stopped;
	if (found <= 0 && left_ns <= 0) {
		snprintf(what, sizeof what, "hangs: no answer '%.40s' in time", event);
		return complain(process, -ETIMEDOUT, what, error);
	}
	if (found <= 0)
		return 0;
	ssize_t got = read(process->out, process->buffer + process->length, process->size - process->length);
	if (got < 0 && errno == EINTR)
		return 0;
	if (got <= 0)
		return complain_ended(process, error);
	process->length += (size_t)got;
	return 0;
}

/* Takes the first line off the buffer: NULL = there is none. *answer stays NULL for lines that are no objects. */
static bool take_line(struct hb_bench_process *process, json_t **answer)
{
	char *end = process->length ? memchr(process->buffer, '\n', process->length) : NULL;
	struct hb_error ignored;
	if (!end)
		return false;
	size_t length = (size_t)(end - process->buffer);
	if (length && process->buffer[0] == '{')
		hb_json_parse(process->buffer, length, process->name, answer, &ignored);
	process->length -= length + 1;
	memmove(process->buffer, end + 1, process->length);
	return true;
}

int hb_bench_process_hear(struct hb_bench_process *process, const char *event, int64_t limit_ns, json_t **answer,
			  struct hb_error *error)
{
	int64_t deadline_ns = hb_clock_now_ns() + hb_bench_time_left(limit_ns);
	for (;;) {
		json_t *line = NULL;
		while (!line && take_line(process, &line))
			;
		if (line) {
			const char *said = json_string_value(json_object_get(line, "event"));
			if (said && strcmp(said, event) == 0) {
				*answer = line;
				return 0;
			}
			json_decref(line);
			return complain(process, -EPROTO, "said something unexpected", error);
		}
		int result = read_more(process, deadline_ns, event, error);
		if (result)
			return result;
	}
}

/* --- the end ----------------------------------------------------------------------------------- */

static void release(struct hb_bench_process *process)
{
	if (process->in >= 0)
		close(process->in);
	if (process->out >= 0)
		close(process->out);
	free(process->buffer);
	*process = (struct hb_bench_process){.in = -1, .out = -1};
}

void hb_bench_process_kill(struct hb_bench_process *process)
{
	if (process->pid > 0 && !reap(process, WNOHANG)) {
		kill(-process->pid, SIGKILL);
		kill(process->pid, SIGKILL);
		/* One that is stuck in a driver is left to the kernel. */
		int64_t limit_ns = hb_bench_time_left(KILLED_NS);
		limit_ns = limit_ns > KILLED_LEAST_NS ? limit_ns : KILLED_LEAST_NS;
		for (int64_t end_ns = hb_clock_now_ns() + limit_ns; !reap(process, WNOHANG);) {
			if (hb_clock_now_ns() > end_ns)
				break;
			sleep_ns(STEP_NS / 10);
		}
	}
	release(process);
}

void hb_bench_process_stop(struct hb_bench_process *process, int signal, int64_t limit_ns)
{
	int64_t deadline_ns = hb_clock_now_ns() + hb_bench_time_left(limit_ns);
	if (process->pid <= 0) {
		release(process);
		return;
	}
	if (signal)
		kill(process->pid, signal);
	else if (process->in >= 0 && !process->ended)
		dprintf(process->in, "quit\n");
	if (process->in >= 0)
		close(process->in);
	process->in = -1;
	while (!reap(process, WNOHANG) && hb_clock_now_ns() < deadline_ns)
		sleep_ns(STEP_NS);
	hb_bench_process_kill(process);
}

int hb_bench_command_run(const struct hb_bench_command *command, const char *name, const char *input,
			 const char *folder, int64_t limit_ns, struct hb_error *error)
{
	struct hb_bench_process process;
	int result = hb_bench_process_start(&process, name, command, folder, error);
	if (result)
		return result;
	int64_t deadline_ns = hb_clock_now_ns() + hb_bench_time_left(limit_ns);
	dprintf(process.in, "%s", input);
	close(process.in);
	process.in = -1;
	while (!reap(&process, WNOHANG) && hb_clock_now_ns() < deadline_ns)
		sleep_ns(STEP_NS);
	if (!process.ended)
		result = complain(&process, -ETIMEDOUT, "did not end in time", error);
	else if (!WIFEXITED(process.status) || WEXITSTATUS(process.status) != 0)
		result = complain_ended(&process, error);
	hb_bench_process_kill(&process);
	return result;
}
