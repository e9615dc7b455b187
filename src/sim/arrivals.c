/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival times; see arrivals.h for the specs. */
#include "sim/arrivals.h"

#include "base/parse_number.h"
#include "base/rng.h"
#include "trace/grow.h"
#include "trace/line_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rates whose gaps neither vanish in ns nor outlast any run. */
#define RATE_LEAST 0.001
#define RATE_MOST 1000000.0
#define TIMES_MAX (16u << 20)
#define TIME_MOST_S 86400.0 /* a day */

/* Bursts unless the spec says otherwise: how much faster the on-state is, and how long a state lasts. */
#define BURST_RATIO 5.0
#define BURST_RATIO_MOST 1000.0
#define BURST_SOJOURN_S 0.5
#define BURST_SOJOURN_LEAST_S 0.001
#define BURST_SOJOURN_MOST_S 3600.0

/* Keeps arrivals apart from whatever else draws from the run's seed. */
#define RNG_STREAM UINT64_C(0x6172726976616c73)

struct hb_arrivals {
	enum hb_arrival_kind kind;
	double rate_per_s;
	struct hb_rng rng;
	int64_t now_ns;
	uint64_t count; /* given out */
	/* Bursts. */
	double ratio, sojourn_s;
	bool on;
	int64_t state_end_ns;
	double phase; /* of periodic ones, in periods */
	/* From a file. */
	int64_t *times_ns;
	uint32_t n_times;
	uint32_t first;     /* of a trace: the index of the time that is 0 */
	double time_factor; /* of a trace: how much slower it is than the file */
	size_t room;
};

static const char how_to_write[] =
	"write RATE/s, RATE/s:periodic, RATE/s:burst, RATE/s:burst=RATIO,SECONDS, RATE/s:trace=PATH, closed or "
	"file:PATH";

/* Saturates: INT64_MAX says that nothing comes any more. */
static int64_t add_ns(int64_t now_ns, double ns)
{
	double sum = (double)now_ns + ns;
	return sum >= 9.2e18 ? INT64_MAX : now_ns + (int64_t)(ns + 0.5);
}

static int64_t next_poisson(struct hb_arrivals *arrivals)
{
	return add_ns(arrivals->now_ns, hb_rng_exponential(&arrivals->rng, 1e9 / arrivals->rate_per_s));
}

static int64_t next_periodic(const struct hb_arrivals *arrivals)
{
	/* From the count, not from the last time: a rounded period would drift. */
	return add_ns(0, ((double)(arrivals->count + 1) + arrivals->phase) * 1e9 / arrivals->rate_per_s);
}

/*
 * States last equally long on average, so half the time is spent in each and
 * the mean of the two rates is the rate asked for. A gap that would outlast its
 * state is drawn again in the next one, which the exponential's lack of memory
 * allows.
 */
static int64_t next_burst(struct hb_arrivals *arrivals)
{
	double off_rate = 2.0 * arrivals->rate_per_s / (1.0 + arrivals->ratio);
	int64_t from = arrivals->now_ns;
	for (;;) {
		double rate = arrivals->on ? off_rate * arrivals->ratio : off_rate;
		int64_t next = add_ns(from, hb_rng_exponential(&arrivals->rng, 1e9 / rate));
		if (next <= arrivals->state_end_ns)
			return next;
		from = arrivals->state_end_ns;
		arrivals->on = !arrivals->on;
		arrivals->state_end_ns = add_ns(from, hb_rng_exponential(&arrivals->rng, arrivals->sojourn_s * 1e9));
	}
}

/* The time after the file's last one is as long after it as the mean gap. */
static int64_t next_of_trace(const struct hb_arrivals *arrivals)
{
	const int64_t *times_ns = arrivals->times_ns;
	uint64_t at = arrivals->first + arrivals->count + 1, rounds = at / arrivals->n_times;
	double n = arrivals->n_times, last_ns = (double)times_ns[arrivals->n_times - 1];
	double round_ns = last_ns + last_ns / n;
	double ns = (double)rounds * round_ns + (double)times_ns[at % arrivals->n_times] -
		    (double)times_ns[arrivals->first];
	return add_ns(0, ns * arrivals->time_factor);
}

int64_t hb_arrivals_next(struct hb_arrivals *arrivals)
{
	int64_t next = INT64_MAX;
	if (arrivals->now_ns == INT64_MAX)
		return next;
	switch (arrivals->kind) {
	case HB_ARRIVE_POISSON:
		next = next_poisson(arrivals);
		break;
	case HB_ARRIVE_PERIODIC:
		next = next_periodic(arrivals);
		break;
	case HB_ARRIVE_BURST:
		next = next_burst(arrivals);
		break;
	case HB_ARRIVE_FILE:
		if (arrivals->count < arrivals->n_times)
			next = arrivals->times_ns[arrivals->count];
		break;
	case HB_ARRIVE_TRACE:
		next = next_of_trace(arrivals);
		break;
	case HB_ARRIVE_CLOSED:
		break;
	}
	arrivals->count++;
	return arrivals->now_ns = next;
}

static int add_time(struct hb_arrivals *arrivals, int64_t time_ns)
{
	if (arrivals->n_times == TIMES_MAX)
		return -E2BIG;
	int64_t *grown = hb_grow(arrivals->times_ns, arrivals->n_times, &arrivals->room, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	arrivals->times_ns = grown;
	arrivals->times_ns[arrivals->n_times++] = time_ns;
	return 0;
}

static int read_time(struct hb_arrivals *arrivals, const struct hb_line_reader *lines, const char *line,
		     struct hb_error *error)
{
	double seconds;
	if (!hb_number_parse(line, &seconds))
		return hb_line_error(lines, error, -EINVAL, "not a time in seconds, one a line");
	if (seconds < 0 || seconds > TIME_MOST_S)
		return hb_line_error(lines, error, -EINVAL, "time %s is not between 0 and 86400 s", line);
	int64_t time_ns = add_ns(0, seconds * 1e9);
	if (arrivals->n_times && time_ns < arrivals->times_ns[arrivals->n_times - 1])
		return hb_line_error(lines, error, -EINVAL, "time %s is before the one above: times must ascend", line);
	int code = add_time(arrivals, time_ns);
	if (code == -E2BIG)
		return hb_line_error(lines, error, code, "more than %u times", TIMES_MAX);
	return code ? hb_line_error(lines, error, code, "out of memory") : 0;
}

/* Cuts the other columns of a table off. Returns whether the line is the table's first one, which names the columns. */
static bool is_heading(char *line)
{
	line[strcspn(line, ",")] = '\0';
	return strcmp(line, "arrival_s") == 0;
}

static int read_times(struct hb_arrivals *arrivals, const char *path, struct hb_error *error)
{
	struct hb_line_reader *lines;
	int code = hb_line_reader_open(path, &lines, error);
	if (code)
		return code;
	char *line = NULL;
	while ((code = hb_line_next(lines, &line, error)) > 0) {
		if (*line == '\0' || *line == '#' || is_heading(line))
			continue;
		code = read_time(arrivals, lines, line, error);
		if (code)
			break;
	}
	if (!code && !arrivals->n_times)
		code = hb_line_error(lines, error, -EINVAL, "no times in the file: one in seconds a line");
	hb_line_reader_close(lines);
	return code;
}

static int parse_file(struct hb_arrivals *arrivals, const char *path, struct hb_error *error)
{
	arrivals->kind = HB_ARRIVE_FILE;
	if (!*path)
		return hb_error_set(error, -EINVAL, "arrivals 'file:': no path; %s", how_to_write);
	int code = read_times(arrivals, path, error);
	if (code)
		return code;
	int64_t last_ns = arrivals->times_ns[arrivals->n_times - 1];
	arrivals->rate_per_s = last_ns ? arrivals->n_times * 1e9 / (double)last_ns : 0;
	return 0;
}

/* The path, and the rate that *arrivals has already. */
static int parse_trace(struct hb_arrivals *arrivals, const char *path, struct hb_error *error)
{
	double rate_per_s = arrivals->rate_per_s;
	int code = parse_file(arrivals, path, error);
	if (code)
		return code;
	if (arrivals->times_ns[arrivals->n_times - 1] == 0)
		return hb_error_set(error, -EINVAL, "arrivals: %.200s: a trace needs times after 0", path);
	arrivals->kind = HB_ARRIVE_TRACE;
	/* n times and the gap after the last one take (n + 1) / n of the last time. */
	double n = arrivals->n_times;
	arrivals->time_factor = arrivals->rate_per_s / rate_per_s * n / (n + 1);
	arrivals->rate_per_s = rate_per_s;
	arrivals->first = (uint32_t)hb_rng_below(&arrivals->rng, arrivals->n_times);
	return 0;
}

/* "=R,T" or nothing. */
static int parse_burst(struct hb_arrivals *arrivals, const char *spec, const char *text, struct hb_error *error)
{
	char ratio[32] = "";
	arrivals->kind = HB_ARRIVE_BURST;
	arrivals->ratio = BURST_RATIO;
	arrivals->sojourn_s = BURST_SOJOURN_S;
	if (*text) {
		size_t length = strcspn(text + 1, ",");
		if (length < sizeof ratio)
			memcpy(ratio, text + 1, length);
		if (!text[1 + length] || !hb_number_parse(ratio, &arrivals->ratio) ||
		    !hb_number_parse(text + length + 2, &arrivals->sojourn_s))
			return hb_error_set(error, -EINVAL,
					    "arrivals '%.80s': burst takes a ratio and seconds, as in burst=5,0.5",
					    spec);
	}
	if (arrivals->ratio < 1 || arrivals->ratio > BURST_RATIO_MOST)
		return hb_error_set(error, -EINVAL, "arrivals '%.80s': the ratio must be 1 to 1000", spec);
	if (arrivals->sojourn_s < BURST_SOJOURN_LEAST_S || arrivals->sojourn_s > BURST_SOJOURN_MOST_S)
		return hb_error_set(error, -EINVAL,
				    "arrivals '%.80s': the mean length of a state must be 0.001 to 3600 seconds", spec);
	arrivals->on = hb_rng_u64(&arrivals->rng) >> 63;
	arrivals->state_end_ns = add_ns(0, hb_rng_exponential(&arrivals->rng, arrivals->sojourn_s * 1e9));
	return 0;
}

/* "=PHASE" or nothing. */
static int parse_periodic(struct hb_arrivals *arrivals, const char *spec, const char *text, struct hb_error *error)
{
	arrivals->kind = HB_ARRIVE_PERIODIC;
	if (*text && (!hb_number_parse(text + 1, &arrivals->phase) || arrivals->phase < 0 || arrivals->phase >= 1))
		return hb_error_set(error, -EINVAL,
				    "arrivals '%.80s': periodic takes a part of a period, 0 to 1, as in periodic=0.2",
				    spec);
	return 0;
}

static int parse_rate(struct hb_arrivals *arrivals, const char *spec, struct hb_error *error)
{
	char rate[32] = "";
	const char *slash = strchr(spec, '/');
	if (!slash || (size_t)(slash - spec) >= sizeof rate || slash[1] != 's')
		return hb_error_set(error, -EINVAL, "arrivals '%.80s': no rate a second; %s", spec, how_to_write);
	memcpy(rate, spec, (size_t)(slash - spec));
	if (!hb_number_parse(rate, &arrivals->rate_per_s))
		return hb_error_set(error, -EINVAL, "arrivals '%.80s': the rate '%s' is not a number; %s", spec, rate,
				    how_to_write);
	if (arrivals->rate_per_s < RATE_LEAST || arrivals->rate_per_s > RATE_MOST)
		return hb_error_set(error, -EINVAL, "arrivals '%.80s': the rate must be 0.001/s to 1000000/s", spec);
	const char *shape = slash + 2;
	if (!*shape)
		arrivals->kind = HB_ARRIVE_POISSON;
	else if (strcmp(shape, ":periodic") == 0 || strncmp(shape, ":periodic=", 10) == 0)
		return parse_periodic(arrivals, spec, shape + 9, error);
	else if (strcmp(shape, ":burst") == 0 || strncmp(shape, ":burst=", 7) == 0)
		return parse_burst(arrivals, spec, shape + 6, error);
	else if (strncmp(shape, ":trace=", 7) == 0)
		return parse_trace(arrivals, shape + 7, error);
	else
		return hb_error_set(error, -EINVAL, "arrivals '%.80s': unknown '%.40s'; %s", spec, shape, how_to_write);
	return 0;
}

static int parse(struct hb_arrivals *arrivals, const char *spec, struct hb_error *error)
{
	if (strncmp(spec, "file:", 5) == 0)
		return parse_file(arrivals, spec + 5, error);
	if (strcmp(spec, "closed") != 0)
		return parse_rate(arrivals, spec, error);
	arrivals->kind = HB_ARRIVE_CLOSED;
	return 0;
}

int hb_arrivals_new(const char *spec, uint64_t seed, struct hb_arrivals **out, struct hb_error *error)
{
	struct hb_arrivals *arrivals = calloc(1, sizeof *arrivals);
	if (!arrivals)
		return hb_error_set(error, -ENOMEM, "arrivals '%.80s': out of memory", spec);
	hb_rng_init(&arrivals->rng, seed, RNG_STREAM);
	int code = parse(arrivals, spec, error);
	if (code) {
		hb_arrivals_free(arrivals);
		return code;
	}
	*out = arrivals;
	return 0;
}

void hb_arrivals_free(struct hb_arrivals *arrivals)
{
	if (!arrivals)
		return;
	free(arrivals->times_ns);
	free(arrivals);
}

enum hb_arrival_kind hb_arrivals_kind(const struct hb_arrivals *arrivals)
{
	return arrivals->kind;
}

double hb_arrivals_rate_per_s(const struct hb_arrivals *arrivals)
{
	return arrivals->rate_per_s;
}
