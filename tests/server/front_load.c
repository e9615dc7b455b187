/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP load generator for bench/front.py: keep-alive connections, one request
 * at a time on each (no pipelining). Closed loop: each connection sends again as
 * soon as it was answered. With --rate an open loop: requests are due at random
 * moments (Poisson), wait for a free connection, and their latency counts from
 * the moment they were due. It knows nothing of what it sends.
 *
 * With --threads each has its share of connections, requests and rate, and a
 * processor of its own where the process may use just as many. A thread ends at the
 * latest GRACE_NS after its time; what was not answered by then is counted.
 *
 * Answers must carry Content-Length. Prints one JSON object.
 */
#include "base/clock.h"
#include "base/hist.h"
#include "base/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MOST 4096
#define EVENTS 256
#define HOSTS 8 /* 127.0.0.1 and up: each has ports of its own */
#define THREADS_MAX 64
#define GRACE_NS (30 * HB_NS_PER_S)

struct connection {
	int fd;
	int64_t due_ns;
	size_t bytes, whole; /* of the answer: what came, head and body; 0 = its head is not whole */
	char head[HEAD_MOST];
};

struct wish {
	uint16_t port;
	uint32_t connections, threads;
	uint64_t requests;
	double seconds, rate;
	const char *method, *path, *body_file, *headers;
	char *message;
	size_t message_bytes;
};

/* A thread's. */
struct load {
	const struct wish *wish;
	uint32_t index, connections, n_idle;
	uint64_t requests; /* 0 = any number */
	double rate;       /* 0 = closed loop */
	struct connection *all, **idle;
	int epoll;
	struct hb_rng rng;
	int64_t begun_ns, end_ns, over_ns, next_ns; /* next_ns: when the next request is due */
	uint64_t sent, answered, refused;
	double waited_ms;
	struct hb_hist latency, late; /* late: from due to sent, of an open loop */
};

static pthread_barrier_t all_connected;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("front-load: ", stderr);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

/* ---- requests ---- */

static void send_all(const struct connection *connection, const char *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = send(connection->fd, data + done, bytes - done, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			die("send: %s", strerror(errno));
		done += n > 0 ? (size_t)n : 0;
	}
}

static void begin(struct load *load, struct connection *connection, int64_t due_ns)
{
	connection->due_ns = due_ns;
	connection->bytes = connection->whole = 0;
	load->sent++;
	if (load->rate > 0)
		hb_hist_record(&load->late, hb_clock_now_ns() - due_ns);
	send_all(connection, load->wish->message, load->wish->message_bytes);
}

static void parse_head(struct connection *connection)
{
	const char *end = memmem(connection->head, connection->bytes, "\r\n\r\n", 4);
	connection->head[connection->bytes] = '\0';
	const char *length = strcasestr(connection->head, "\r\nContent-Length:");
	if (end && length && length < end)
		connection->whole = (size_t)(end + 4 - connection->head) + strtoul(length + 17, NULL, 10);
	else if (end || connection->bytes == HEAD_MOST - 1)
		die("an answer without Content-Length, or with a longer head than %d", HEAD_MOST);
}

static void receive(struct connection *connection)
{
	char rest[64 * 1024];
	bool in_head = connection->whole == 0;
	char *at = in_head ? connection->head + connection->bytes : rest;
	ssize_t n = recv(connection->fd, at, in_head ? HEAD_MOST - 1 - connection->bytes : sizeof(rest), 0);
	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0)
		die("the server has closed a connection: %s", n < 0 ? strerror(errno) : "end");
	connection->bytes += (size_t)n;
	if (in_head)
		parse_head(connection);
}

static bool is_over(const struct load *load, int64_t now_ns)
{
	return now_ns >= load->end_ns || (load->requests && load->sent >= load->requests);
}

static void finish(struct load *load, struct connection *connection, int64_t now_ns)
{
	load->answered++;
	if (strncmp(connection->head + 9, "200", 3) != 0)
		load->refused++;
	hb_hist_record(&load->latency, now_ns - connection->due_ns);
	if (load->rate == 0 && !is_over(load, now_ns))
		begin(load, connection, now_ns);
	else
		load->idle[load->n_idle++] = connection;
}

static void send_due(struct load *load, int64_t now_ns)
{
	while (load->rate > 0 && load->next_ns <= now_ns && load->n_idle && !is_over(load, now_ns)) {
		begin(load, load->idle[--load->n_idle], load->next_ns);
		load->next_ns += (int64_t)hb_rng_exponential(&load->rng, 1e9 / load->rate);
	}
}

/* ---- the run ---- */

static void wait_for_answers(struct load *load)
{
	struct epoll_event events[EVENTS];
	struct timespec wait = {.tv_sec = 1};
	int64_t now_ns = hb_clock_now_ns();
	if (load->rate > 0 && load->n_idle && !is_over(load, now_ns)) {
		int64_t left_ns = load->next_ns > now_ns ? load->next_ns - now_ns : 0;
		wait = (struct timespec){.tv_sec = left_ns / HB_NS_PER_S, .tv_nsec = left_ns % HB_NS_PER_S};
	}
	int n = epoll_pwait2(load->epoll, events, EVENTS, &wait, NULL);
	if (n < 0 && errno == ENOSYS) /* then times of less than 1 ms are waited for by looking */
		n = epoll_wait(load->epoll, events, EVENTS, (int)(wait.tv_sec * 1000 + wait.tv_nsec / 1000000));
	if (n < 0 && errno != EINTR)
		die("epoll: %s", strerror(errno));
	for (int i = 0; i < n; i++) {
		struct connection *connection = events[i].data.ptr;
		receive(connection);
		if (connection->whole && connection->bytes >= connection->whole)
			finish(load, connection, hb_clock_now_ns());
	}
}

static void run(struct load *load)
{
	load->begun_ns = load->next_ns = hb_clock_now_ns();
	load->end_ns = load->begun_ns + (int64_t)(load->wish->seconds * 1e9);
	if (load->rate == 0)
		while (load->n_idle)
			begin(load, load->idle[--load->n_idle], load->begun_ns);
	int64_t now_ns = load->begun_ns;
	while ((load->n_idle < load->connections || !is_over(load, now_ns)) && now_ns < load->end_ns + GRACE_NS) {
		send_due(load, now_ns);
		wait_for_answers(load);
		now_ns = hb_clock_now_ns();
	}
	load->over_ns = now_ns;
}

static void open_connections(struct load *load)
{
	load->all = calloc(load->connections, sizeof(*load->all));
	load->idle = calloc(load->connections, sizeof(struct connection *));
	load->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!load->all || !load->idle || load->epoll < 0)
		die("out of memory");
	for (uint32_t i = 0; i < load->connections; i++) {
		struct connection *connection = load->idle[load->n_idle++] = &load->all[i];
		struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001 + i % HOSTS)};
		struct sockaddr_in to = {.sin_family = AF_INET,
					 .sin_port = htons(load->wish->port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
		connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connection->fd < 0 || bind(connection->fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
		    connect(connection->fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
		    epoll_ctl(load->epoll, EPOLL_CTL_ADD, connection->fd, &event) < 0)
			die("connection %u of %u of thread %u: %s", i + 1, load->connections, load->index + 1,
			    strerror(errno));
	}
}

static void read_body(const char *path, char *body, size_t size, size_t *bytes)
{
	FILE *file = fopen(path, "r");
	if (!file)
		die("%s: %s", path, strerror(errno));
	*bytes = fread(body, 1, size, file);
	fclose(file);
}

static void make_message(struct wish *wish)
{
	static char body[1 << 20];
	size_t bytes = 0;
	if (wish->body_file)
		read_body(wish->body_file, body, sizeof(body), &bytes);
	wish->message = malloc(bytes + HEAD_MOST);
	if (!wish->message)
		die("out of memory");
	int n = snprintf(wish->message, HEAD_MOST,
			 "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s%s\r\n", wish->method,
			 wish->path, bytes, wish->headers, wish->headers[0] ? "\r\n" : "");
	if (n >= HEAD_MOST)
		die("the request's head is too long");
	memcpy(wish->message + n, body, bytes);
	wish->message_bytes = (size_t)n + bytes;
}

/* How long it could have run but had no processor, which its requests' latencies contain. */
static double waited_ms(void)
{
	unsigned long long waited_ns = 0;
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	if (!file || fscanf(file, "%*u %llu", &waited_ns) != 1)
		waited_ns = 0;
	if (file)
		fclose(file);
	return (double)waited_ns / 1e6;
}

/* The i-th of the processors that the process was given, where it was given one for each thread. */
static void take_processor(uint32_t index, uint32_t threads)
{
	cpu_set_t allowed, mine;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 || (uint32_t)CPU_COUNT(&allowed) != threads)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed) || index-- > 0)
			continue;
		CPU_ZERO(&mine);
		CPU_SET(i, &mine);
		sched_setaffinity(0, sizeof(mine), &mine);
		return;
	}
}

static void *run_thread(void *argument)
{
	struct load *load = argument;
	take_processor(load->index, load->wish->threads);
	/* A request is due within microseconds; the kernel's usual slack is 50. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	hb_rng_init(&load->rng, 1, load->index);
	open_connections(load);
	pthread_barrier_wait(&all_connected);
	run(load);
	load->waited_ms = waited_ms();
	return NULL;
}

static uint32_t share_of(uint64_t all, uint32_t index, uint32_t threads)
{
	return (uint32_t)(all / threads + (index < all % threads));
}

static struct load *run_all(const struct wish *wish)
{
	pthread_t threads[THREADS_MAX];
	struct load *loads = calloc(wish->threads, sizeof(*loads));
	if (!loads)
		die("out of memory");
	pthread_barrier_init(&all_connected, NULL, wish->threads);
	for (uint32_t i = 0; i < wish->threads; i++) {
		loads[i].wish = wish;
		loads[i].index = i;
		loads[i].connections = share_of(wish->connections, i, wish->threads);
		loads[i].requests = share_of(wish->requests, i, wish->threads);
		loads[i].rate = wish->rate / wish->threads;
		if (pthread_create(&threads[i], NULL, run_thread, &loads[i]) != 0)
			die("no thread could be started");
	}
	for (uint32_t i = 0; i < wish->threads; i++)
		pthread_join(threads[i], NULL);
	return loads;
}

static void add(struct load *into, const struct load *from)
{
	into->begun_ns = from->begun_ns < into->begun_ns ? from->begun_ns : into->begun_ns;
	into->over_ns = from->over_ns > into->over_ns ? from->over_ns : into->over_ns;
	into->sent += from->sent;
	into->answered += from->answered;
	into->refused += from->refused;
	into->waited_ms += from->waited_ms;
	hb_hist_merge(&into->latency, &from->latency);
	hb_hist_merge(&into->late, &from->late);
}

static void print(const struct wish *wish, struct load *loads)
{
	const struct hb_hist *latency = &loads->latency;
	for (uint32_t i = 1; i < wish->threads; i++)
		add(loads, &loads[i]);
	double seconds = (double)(loads->over_ns - loads->begun_ns) / 1e9;
	printf("{\"connections\": %u, \"threads\": %u, \"answered\": %lu, \"not_200\": %lu, \"unanswered\": %lu, "
	       "\"seconds\": %.3f, \"per_second\": %.0f, \"load_waited_ms\": %.1f, \"late_p99_us\": %.1f, "
	       "\"latency_us\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}}\n",
	       wish->connections, wish->threads, loads->answered, loads->refused, loads->sent - loads->answered,
	       seconds, (double)loads->answered / seconds, loads->waited_ms,
	       (double)hb_hist_percentile(&loads->late, 0.99) / 1e3, (double)hb_hist_percentile(latency, 0.5) / 1e3,
	       (double)hb_hist_percentile(latency, 0.99) / 1e3, (double)hb_hist_percentile(latency, 0.999) / 1e3,
	       (double)latency->max_ns / 1e3);
}

static void raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void take_option(int code, struct wish *wish)
{
	switch (code) {
	case 'p':
		wish->port = (uint16_t)strtoul(optarg, NULL, 10);
		break;
	case 'c':
		wish->connections = (uint32_t)strtoul(optarg, NULL, 10);
		break;
	case 't':
		wish->threads = (uint32_t)strtoul(optarg, NULL, 10);
		break;
	case 'n':
		wish->requests = strtoull(optarg, NULL, 10);
		break;
	case 's':
		wish->seconds = strtod(optarg, NULL);
		break;
	case 'r':
		wish->rate = strtod(optarg, NULL);
		break;
	case 'u':
		wish->path = optarg;
		break;
	case 'b':
		wish->body_file = optarg;
		wish->method = "POST";
		break;
	case 'h':
		wish->headers = optarg;
		break;
	default:
		die("usage: front-load --port N [--connections N] [--threads N] [--requests N] [--seconds S] [--rate N] [--path PATH] [--body FILE] [--headers TEXT]");
	}
}

static void free_all(struct load *loads, struct wish *wish)
{
	for (uint32_t i = 0; i < wish->threads; i++) {
		free(loads[i].all);
		free(loads[i].idle);
	}
	free(loads);
	free(wish->message);
}

int main(int argc, char **argv)
{
	struct wish wish = {.connections = 16, .threads = 1, .seconds = 5, .method = "GET", .path = "/", .headers = ""};
	static const struct option options[] = {
		{"port", 1, NULL, 'p'},     {"connections", 1, NULL, 'c'}, {"threads", 1, NULL, 't'},
		{"requests", 1, NULL, 'n'}, {"seconds", 1, NULL, 's'},     {"rate", 1, NULL, 'r'},
		{"path", 1, NULL, 'u'},     {"body", 1, NULL, 'b'},        {"headers", 1, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int code;
	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1)
		take_option(code, &wish);
	if (wish.threads < 1 || wish.threads > THREADS_MAX || wish.threads > wish.connections ||
	    (wish.requests && wish.threads > wish.requests))
		die("--threads takes 1 to %d, and no more than connections and requests", THREADS_MAX);
	raise_descriptors();
	make_message(&wish);
	struct load *loads = run_all(&wish);
	print(&wish, loads);
	free_all(loads, &wish);
	return 0;
}
