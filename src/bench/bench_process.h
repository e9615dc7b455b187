/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that `hb bench` started and talks to: lines to its standard input,
 * JSON lines from its standard output, everything else into a log. Every wait
 * has an end, a program that dies or hangs is an error with its last lines, and
 * none outlives `hb bench`. Callers: bench_stage.c, bench_window.c.
 */
#ifndef HB_BENCH_BENCH_PROCESS_H
#define HB_BENCH_BENCH_PROCESS_H

#include "base/error.h"

#include <jansson.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HB_BENCH_WORDS_MAX 32
#define HB_BENCH_VARIABLES_MAX 16

/* What to start. Words and variables are copied texts. */
struct hb_bench_command {
	char *words[HB_BENCH_WORDS_MAX + 1];
	unsigned n_words;
	char *variables[HB_BENCH_VARIABLES_MAX]; /* "NAME=value" */
	unsigned n_variables;
	int end_signal; /* what it gets when `hb bench` dies */
	bool placed;    /* on the processors of its priority: */
	cpu_set_t cpus;
};

/* One word; all of a text's words, split at spaces. False = too many, or no memory. */
bool hb_bench_command_add(struct hb_bench_command *command, const char *word);
bool hb_bench_command_split(struct hb_bench_command *command, const char *text);
bool hb_bench_command_set(struct hb_bench_command *command, const char *name, const char *value);
void hb_bench_command_fini(struct hb_bench_command *command);

struct hb_bench_process {
	char name[128]; /* for messages */
	char log[PATH_MAX];
	pid_t pid; /* 0 = not running */
	int in, out;
	char *buffer;
	size_t length, size;
	bool ended;
	int status; /* of waitpid(), once ended */
};

/* 0 or negative errno with *error. Its log is `folder`/NUMBER.log. */
int hb_bench_process_start(struct hb_bench_process *process, const char *name, const struct hb_bench_command *command,
			   const char *folder, struct hb_error *error);
/* A line to it. -EPIPE: it has ended. */
int hb_bench_process_tell(struct hb_bench_process *process, struct hb_error *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Waits for {"event": EVENT, ...}: 0 and a new reference. -ETIMEDOUT, -EPIPE
 * (it has ended), -EPROTO (it said something else), -EINTR (Ctrl-C), -ETIME
 * (hb_bench_time_set()).
 */
int hb_bench_process_hear(struct hb_bench_process *process, const char *event, int64_t limit_ns, json_t **answer,
			  struct hb_error *error);
/* 0 while it runs; otherwise as hear() would say. */
int hb_bench_process_check(struct hb_bench_process *process, struct hb_error *error);
/* Asks it to end (a line "quit" or the signal), waits up to the limit, then kills it. */
void hb_bench_process_stop(struct hb_bench_process *process, int signal, int64_t limit_ns);
void hb_bench_process_kill(struct hb_bench_process *process);

/* Runs a command to its end with `input` on its standard input: its exit status, or negative errno. */
int hb_bench_command_run(const struct hb_bench_command *command, const char *name, const char *input,
			 const char *folder, int64_t limit_ns, struct hb_error *error);

/* From now on SIGINT, SIGTERM and SIGHUP end waits with -EINTR instead of ending the program. */
void hb_bench_interrupt_watch(void);
bool hb_bench_interrupted(void);
/* Sleeps up to a moment of hb_clock_now_ns(); false when interrupted, or when the time is over before. */
bool hb_bench_sleep_until(int64_t at_ns);

/*
 * The time there is: no wait of this file lasts beyond it, whatever its own limit (a process that was killed is waited
 * for a moment still). A moment of hb_clock_now_ns(), 0 = for ever.
 */
void hb_bench_time_set(int64_t ends_ns);
/* As much of `wanted_ns` as there is. */
int64_t hb_bench_time_left(int64_t wanted_ns);
/* 0, -EINTR (Ctrl-C) or -ETIME (the time is over). */
int hb_bench_stopped(struct hb_error *error);

#endif
