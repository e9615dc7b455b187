/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-simgpu: the process that plays the simulated GPU. The first process that
 * opens the GPU starts it, and it ends with the last one. Its single thread
 * sleeps until the next event of the model or the next submission. Nothing
 * needs it when no GPU is simulated.
 *
 *   hb-simgpu DIR      serve on DIR/broker.sock; the caller holds DIR/lock and
 *                      descriptor 3 is a pipe that is closed when ready
 *
 * HB_SIM_GPUS, HB_SIM_SPEC, HB_SIM_SCALE, HB_SIM_MEMORY: see docs/simcuda.md.
 */
#include "simcuda/broker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/newer_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define READY_FD 3
#define MEMORY_DEFAULT INT64_C(150754820096) /* H200: 143771 MiB */
/* For shorter waits, poll costs more than it saves. */
#define SPIN_NS 15000
/* A broker without any client for this long ends: its starter died before it connected. */
#define ORPHAN_NS (INT64_C(10) * HB_NS_PER_S)

int64_t broker_gpu_time(const struct broker *broker, int64_t monotonic_ns)
{
	return (int64_t)((double)(monotonic_ns - broker->origin_ns) / broker->scale);
}

static double number_from(const char *name, double low, double high, double otherwise)
{
	const char *text = getenv(name);
	if (!text || !*text)
		return otherwise;
	char *end;
	double value = strtod(text, &end);
	if (*end || !(value >= low && value <= high)) {
		hb_log_error("%s=%s: expected a number from %g to %g; using %g", name, text, low, high, otherwise);
		return otherwise;
	}
	return value;
}

static int open_gpus(struct broker *broker)
{
	const char *name = getenv("HB_SIM_SPEC");
	struct hb_error error;
	broker->n_gpus = (uint32_t)number_from("HB_SIM_GPUS", 1, SIM_GPUS, 1);
	broker->scale = number_from("HB_SIM_SCALE", 1e-4, 1e4, 1);
	broker->origin_ns = hb_clock_now_ns();
	broker->host_total = (int64_t)number_from("HB_SIM_HOST_MEMORY", 0, 1e15, 1e15);
	for (uint32_t i = 0; i < broker->n_gpus; i++) {
		struct broker_gpu *gpu = &broker->gpu[i];
		int result = hb_gpu_spec_load(name && *name ? name : "h200", &gpu->spec, &error);
		if (result < 0) {
			hb_log_error("%s", error.text);
			return result;
		}
		gpu->memory_total = (int64_t)number_from("HB_SIM_MEMORY", 1 << 20, 1e15, (double)MEMORY_DEFAULT);
		gpu->model = hb_gpu_model_new(&gpu->spec);
		if (!gpu->model)
			return -ENOMEM;
	}
	return 0;
}

/* The folder's path may be longer than a socket address: bind relative to it. */
static int listen_in(int folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/broker.sock", folder);
	unlinkat(folder, "broker.sock", 0);
	struct stat found;
	bool shared = fstat(folder, &found) == 0 && found.st_mode & S_IWOTH; /* then every user may use the GPU */
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    (shared && fchmodat(folder, "broker.sock", 0666, 0) < 0) || listen(fd, 128) < 0) {
		int result = -errno;
		close(fd);
		return result;
	}
	return fd;
}

static void take_connections(struct broker *broker, int listener)
{
	int fd;
	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		if (!broker_client_add(broker, fd))
			close(fd);
}

/* Decides whether the broker may end after its last client. Under the lock no process is about to connect; later ones start a new broker. */
static bool may_end(struct broker *broker, int folder, int listener)
{
	int lock = openat(folder, "lock", O_RDWR | O_CLOEXEC);
	if (lock < 0)
		return true;
	if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		close(lock);
		return false;
	}
	take_connections(broker, listener);
	if (broker->n_clients == 0)
		unlinkat(folder, "broker.sock", 0);
	close(lock);
	return broker->n_clients == 0;
}

static void set_asleep(struct broker *broker, uint32_t asleep)
{
	for (size_t i = 0; i < broker->n_clients; i++)
		if (broker->clients[i]->share)
			atomic_store(&broker->clients[i]->share->broker_asleep, asleep);
}

static int64_t real_wait_ns(const struct broker *broker, int64_t limit_ns)
{
	int64_t next_ns = broker_next_ns(broker);
	if (next_ns == INT64_MAX)
		return limit_ns;
	double at_ns = (double)next_ns * broker->scale + (double)broker->origin_ns;
	double wait_ns = at_ns - (double)hb_clock_now_ns();
	if (wait_ns < 0)
		return 0;
	return wait_ns < (double)limit_ns ? (int64_t)wait_ns : limit_ns;
}

static void wait_for_work(struct broker *broker, struct pollfd *fds, nfds_t n, int64_t limit_ns)
{
	int64_t wait_ns = real_wait_ns(broker, limit_ns);
	if (wait_ns > SPIN_NS) {
		set_asleep(broker, 1);
		if (!broker_rings_empty(broker))
			wait_ns = 0;
	} else {
		wait_ns = 0;
	}
	struct timespec timeout = {wait_ns / HB_NS_PER_S, wait_ns % HB_NS_PER_S};
	if (ppoll(fds, n, &timeout, NULL) < 0)
		for (nfds_t i = 0; i < n; i++)
			fds[i].revents = 0;
	set_asleep(broker, 0);
}

static void serve_clients(struct broker *broker, const struct pollfd *fds, size_t n)
{
	/* Runs from the end, because removing a client moves the last one into its place. */
	for (size_t i = n; i-- > 0;) {
		struct broker_client *client = broker->clients[i];
		if (fds[i].revents && !broker_client_serve(broker, client))
			broker_client_remove(broker, client);
	}
}

static void run_broker(struct broker *broker, int folder, int listener)
{
	int64_t started_ns = hb_clock_now_ns();
	bool used = false;
	struct pollfd *fds = NULL;
	for (;;) {
		struct pollfd *bigger = realloc(fds, (broker->n_clients + 2) * sizeof *fds);
		if (!bigger)
			break;
		fds = bigger;
		fds[0] = (struct pollfd){.fd = listener, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = broker->doorbell, .events = POLLIN};
		size_t n = broker->n_clients;
		for (size_t i = 0; i < n; i++)
			fds[i + 2] = (struct pollfd){.fd = broker->clients[i]->fd, .events = POLLIN};
		wait_for_work(broker, fds, n + 2, broker_raise_faults(broker, hb_clock_now_ns(), HB_NS_PER_S));
		if (fds[1].revents) {
			uint64_t rings;
			if (read(broker->doorbell, &rings, sizeof rings) < 0)
				rings = 0;
		}
		/* Work that was written before a request is processed first. */
		broker_run(broker, broker_gpu_time(broker, hb_clock_now_ns()));
		broker_raise_faults(broker, hb_clock_now_ns(), 0);
		serve_clients(broker, fds + 2, n);
		if (fds[0].revents)
			take_connections(broker, listener);
		broker_announce(broker);
		used |= broker->n_clients > 0;
		if (broker->n_clients == 0 && (used || hb_clock_now_ns() - started_ns > ORPHAN_NS) &&
		    may_end(broker, folder, listener))
			break;
	}
	free(fds);
}

/* Makes a session of its own, closes the starter's descriptors, and opens a log beside the socket. */
static int detach_from_starter(int folder)
{
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0)
		_exit(0);
	setsid();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int log = openat(folder, "broker.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(log >= 0 ? log : null, STDERR_FILENO);
	close(null);
	if (log >= 0)
		close(log);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: hb-simgpu DIR (started by the simulated driver)\n");
		return 2;
	}
	/* Only the ready pipe stays open of the application's descriptors. */
	hb_close_range(READY_FD + 1, UINT_MAX);
	hb_log_name_set("hb-simgpu");
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1);
	int folder = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 || detach_from_starter(folder) < 0) {
		fprintf(stderr, "hb-simgpu: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	static struct broker broker;
	broker.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int result = open_gpus(&broker);
	int listener = result < 0 ? result : listen_in(folder);
	if (listener < 0) {
		hb_log_error("%s: cannot serve: %s", argv[1], strerror(-listener));
		return 1;
	}
	close(READY_FD);
	hb_log_info("%u GPU(s) of type %s, scale %g", broker.n_gpus, broker.gpu[0].spec.name, broker.scale);
	run_broker(&broker, folder, listener);
	for (uint32_t i = 0; i < broker.n_gpus; i++)
		hb_gpu_model_free(broker.gpu[i].model);
	free(broker.clients);
	return 0;
}
