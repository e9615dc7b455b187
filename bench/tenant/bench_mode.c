/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-tenant's mode `bench KIND [ARGUMENT...]`: a GPU program that the harness
 * starts and talks to over its standard input and output; docs/bench.md
 * describes the lines. The program does not know of Hummingbird. It ends when
 * its input does, so it never outlives the harness.
 */
#include "bench_mode.h"
#include "bench_tenant.h"

#include "base/rng.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATENCIES_MAX 20000
#define ENDS_MAX 100000

/* --- lines in ------------------------------------------------------------------------------------ */

static char input[256];
static size_t input_length;

/* The next line without its end; NULL when there is none yet and `wait` is false. The end of input ends the program. */
static const char *next_line(bool wait)
{
	static char line[sizeof input];
	for (;;) {
		char *end = memchr(input, '\n', input_length);
		if (end) {
			size_t length = (size_t)(end - input);
			memcpy(line, input, length);
			line[length] = '\0';
			input_length -= length + 1;
			memmove(input, end + 1, input_length);
			return line;
		}
		struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
		if (poll(&ready, 1, wait ? -1 : 0) <= 0 && !wait)
			return NULL;
		ssize_t got = read(STDIN_FILENO, input + input_length, sizeof input - input_length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			fflush(stdout);
			_Exit(0);
		}
		input_length += (size_t)got;
	}
}

static void print_values(const char *name, const int64_t *values, size_t n)
{
	printf(", \"%s\": [", name);
	for (size_t i = 0; i < n; i++)
		printf("%s%lld", i ? "," : "", (long long)values[i]);
	putchar(']');
}

static void say_event(const char *event)
{
	printf("{\"event\": \"%s\"}\n", event);
	fflush(stdout);
}

/* --- a service ------------------------------------------------------------------------------------- */

static struct hb_rng rng;
static unsigned long long seed;
static int64_t *latencies, *measured_at, *waits, *works;
static int64_t begun_ns, again_ns; /* of the window, and when its arrivals begin again */
static size_t n_latencies, n_seen;
static bool open_loop; /* the window had requests with due times */

double bench_random(void)
{
	return hb_rng_double(&rng);
}

static int64_t gap_ns(const struct bench_arrivals *arrivals)
{
	double mean_ns = 1e9 / arrivals->rate_per_s;
	return (int64_t)(arrivals->periodic ? mean_ns : hb_rng_exponential(&rng, mean_ns));
}

static int64_t first_due_from(const struct bench_arrivals *arrivals, int64_t start_ns)
{
	hb_rng_init(&rng, seed, 1);
	again_ns = arrivals->repeat_ns ? start_ns + arrivals->repeat_ns : INT64_MAX;
	int64_t phase_ns = arrivals->periodic ? (int64_t)(arrivals->phase * 1e9 / arrivals->rate_per_s) : 0;
	return start_ns + phase_ns + gap_ns(arrivals);
}

int64_t bench_first_due(const struct bench_arrivals *arrivals)
{
	return arrivals->rate_per_s > 0 ? first_due_from(arrivals, begun_ns) : begun_ns;
}

int64_t bench_next_due(const struct bench_arrivals *arrivals, int64_t due_ns)
{
	if (arrivals->rate_per_s <= 0)
		return bench_now_ns();
	due_ns += gap_ns(arrivals);
	return due_ns < again_ns ? due_ns : first_due_from(arrivals, again_ns);
}

/* When there are more latencies than fit, an even choice of all is kept (reservoir sampling). */
void bench_add_latency(int64_t at_ns, int64_t latency_ns)
{
	static struct hb_rng choice = {{1, 2, 3, 4}};
	size_t at = n_latencies < LATENCIES_MAX ? n_latencies++ : hb_rng_below(&choice, n_seen + 1);
	n_seen++;
	if (at >= LATENCIES_MAX)
		return;
	measured_at[at] = at_ns;
	latencies[at] = latency_ns;
	waits[at] = works[at] = 0;
}

void bench_add_request(const struct bench_request *request)
{
	open_loop = true;
	bench_add_latency(request->due_ns, request->answered_ns - request->due_ns);
	if (n_seen > LATENCIES_MAX)
		return;
	waits[n_latencies - 1] = request->ended_ns - request->launched_ns;
	works[n_latencies - 1] = request->ended_ns - request->begun_ns;
}

/* The clocks drift apart by some parts in a million, so the difference is interpolated between two comparisons. */
struct comparison {
	int64_t at_ns, difference_ns, round_trip_ns;
};

static struct comparison compare_clocks(void)
{
	struct comparison now;
	now.difference_ns = bench_clock_difference(&now.round_trip_ns);
	now.at_ns = bench_now_ns();
	return now;
}

static void correct_latencies(const struct comparison *before, const struct comparison *after)
{
	double span = (double)(after->at_ns - before->at_ns);
	double drift = (double)(after->difference_ns - before->difference_ns);
	for (size_t i = 0; i < n_latencies; i++) {
		double passed = span > 0 ? (double)(measured_at[i] - before->at_ns) / span : 0;
		latencies[i] -= before->difference_ns + (int64_t)(drift * passed);
		/* The comparison is good to half a round trip; nothing begins before it was launched. */
		latencies[i] = latencies[i] < 0 ? 0 : latencies[i];
	}
}

static void print_results(const struct bench_high *kind, const struct comparison *before)
{
	struct comparison after = {0};
	if (kind->device_clock) {
		after = compare_clocks();
		correct_latencies(before, &after);
	}
	int64_t worst = before->round_trip_ns > after.round_trip_ns ? before->round_trip_ns : after.round_trip_ns;
	printf("{\"event\": \"results\", \"seen\": %zu, \"clock_error_ns\": %lld", n_seen, (long long)worst / 2);
	print_values("latency_ns", latencies, n_latencies);
	if (open_loop && n_seen <= LATENCIES_MAX) {
		for (size_t i = 0; i < n_latencies; i++)
			measured_at[i] -= begun_ns;
		print_values("due_ns", measured_at, n_latencies);
		print_values("wait_ns", waits, n_latencies);
		print_values("work_ns", works, n_latencies);
	}
	puts("}");
	fflush(stdout);
}

static void serve_window(const struct bench_high *kind, const char *line)
{
	double seconds, rate, phase, repeat = 0;
	char arrivals[16];
	if (sscanf(line, "serve %lf %15s %lf %lf %llu %lf", &seconds, arrivals, &rate, &phase, &seed, &repeat) < 5)
		bench_fail("'%s' is no command for a service", line);
	hb_rng_init(&rng, seed, 1);
	struct bench_arrivals asked = {.rate_per_s = strcmp(arrivals, "closed") == 0 ? 0 : rate,
				       .periodic = strcmp(arrivals, "periodic") == 0,
				       .phase = phase,
				       .repeat_ns = (int64_t)(repeat * 1e9)};
	begun_ns = bench_now_ns();
	kind->serve(begun_ns + (int64_t)(seconds * 1e9), &asked);
	say_event("served");
}

static int run_high(const struct bench_high *kind)
{
	struct comparison before = {0};
	latencies = bench_calloc(LATENCIES_MAX, sizeof *latencies);
	measured_at = bench_calloc(LATENCIES_MAX, sizeof *measured_at);
	waits = bench_calloc(LATENCIES_MAX, sizeof *waits);
	works = bench_calloc(LATENCIES_MAX, sizeof *works);
	for (;;) {
		const char *line = next_line(true);
		if (strcmp(line, "quit") == 0)
			return 0;
		if (strcmp(line, "prepare") == 0) {
			n_latencies = n_seen = 0;
			if (kind->device_clock)
				before = compare_clocks();
			say_event("prepared");
		} else if (strcmp(line, "finish") == 0) {
			print_results(kind, &before);
		} else {
			serve_window(kind, line);
		}
	}
}

/* --- a program without pause -------------------------------------------------------------------------- */

/* Works until the next line arrives. Two iterations are queued at a time, and the end of each is noted. */
static void work_until_line(const struct bench_low *kind, double seconds)
{
	static CUevent events[2];
	static int64_t *ends;
	size_t n = 0, queued = 0;
	int64_t end_ns = bench_host_ns() + (int64_t)(seconds * 1e9);
	const char *line;
	if (!ends) {
		ends = bench_calloc(ENDS_MAX, sizeof *ends);
		CU(cuEventCreate(&events[0], CU_EVENT_DISABLE_TIMING));
		CU(cuEventCreate(&events[1], CU_EVENT_DISABLE_TIMING));
	}
	for (; !(line = next_line(false)) && n < ENDS_MAX; queued++) {
		int64_t left_ns = end_ns - bench_host_ns();
		kind->iterate(left_ns > 0 ? left_ns : 1000);
		CU(cuEventRecord(events[queued & 1], bench_stream));
		if (queued == 0 && !kind->single)
			continue;
		CU(cuEventSynchronize(events[(queued + kind->single + 1) & 1]));
		ends[n++] = bench_host_ns();
	}
	CU(cuStreamSynchronize(bench_stream));
	line = line ? line : next_line(true);
	if (strcmp(line, "rest") != 0)
		bench_fail("'%s' while it works", line);
	printf("{\"event\": \"rested\", \"simulated\": %s", bench_simulated() ? "true" : "false");
	print_values("ends_ns", ends, kind->endless ? 0 : n);
	puts("}");
	fflush(stdout);
}

static int run_low(const struct bench_low *kind)
{
	for (;;) {
		const char *line = next_line(true);
		double seconds;
		if (strcmp(line, "quit") == 0)
			return 0;
		if (sscanf(line, "work %lf", &seconds) != 1)
			bench_fail("'%s' is no command for a program without pause", line);
		work_until_line(kind, seconds);
	}
}

static int show_kinds(void)
{
	fputs("usage: cuda-tenant bench KIND [ARGUMENT...], see docs/bench.md\n", stderr);
	return 2;
}

int tenant_bench(int argc, char **argv)
{
	const struct bench_high *high = argc > 0 ? bench_find_high(argv[0]) : NULL;
	const struct bench_low *low = argc > 0 ? bench_find_low(argv[0]) : NULL;
	char name[128];
	if ((!high && !low) || argc - 1 != (high ? high->n_arguments : low->n_arguments))
		return show_kinds();
	bench_gpu_open();
	high ? high->prepare(argv + 1) : low->prepare(argv + 1);
	CU(cuCtxSynchronize());
	bench_device_name(name, sizeof name);
	printf("{\"event\": \"ready\", \"gpu\": \"%s\"}\n", name);
	fflush(stdout);
	int status = high ? run_high(high) : run_low(low);
	bench_gpu_close();
	return status;
}
