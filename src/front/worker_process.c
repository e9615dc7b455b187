/* SPDX-License-Identifier: Apache-2.0 */
/* See worker_process.h. */
#include "front/worker_process.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "front/infer_request.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The command line of the worker; `hb` is "" where it is run as it is. */
struct start {
	const struct hb_model_config *config;
	char hb[4096], shell[1100];
	bool simulated;
	char **environment; /* ours and the worker's variables */
	char fds[64], inputs[HB_TENSORS_MAX * (HB_TENSOR_NAME_MAX + 8) + 32],
		outputs[HB_TENSORS_MAX * (HB_TENSOR_NAME_MAX + 8) + 32];
};

bool hb_worker_gpu_there(enum hb_worker_gpu gpu)
{
	return gpu == HB_WORKER_GPU_REAL || gpu == HB_WORKER_GPU_SIM ||
	       (gpu == HB_WORKER_GPU_AUTO && access("/dev/nvidiactl", F_OK) == 0);
}

static void become(const struct start *start)
{
	const char *priority = start->config->priority == HB_SERVE_HIGH ? "high" : "low";
	if (!start->hb[0])
		execle("/bin/sh", "sh", "-c", start->shell, (char *)NULL, start->environment);
	else if (start->simulated)
		execle(start->hb, "hb", "run", "--gpu", "sim", "--priority", priority, "--", "/bin/sh", "-c",
		       start->shell, (char *)NULL, start->environment);
	else
		execle(start->hb, "hb", "run", "--priority", priority, "--", "/bin/sh", "-c", start->shell,
		       (char *)NULL, start->environment);
}

/* Between fork and exec: nothing that may wait for another thread of the server. */
static void run_child(const struct start *start, const int fds[3], pid_t parent)
{
	sigset_t none;
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || chdir(start->config->folder) < 0)
		_exit(126);
	for (int i = 0; i < 3; i++)
		fcntl(fds[i], F_SETFD, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	become(start);
	_exit(127);
}

/* NAME=TYPE tensor, a line each. */
static void list_tensors(const char *name, const struct hb_tensor_spec *specs, uint32_t n, char *out, size_t size)
{
	size_t at = (size_t)snprintf(out, size, "%s=", name);
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s %s", i ? "\n" : "",
				       hb_dtype_name((enum hb_dtype)specs[i].dtype), specs[i].name);
}

static bool make_environment(struct start *start)
{
	size_t n = 0;
	while (environ[n])
		n++;
	start->environment = calloc(n + 4, sizeof(*start->environment));
	if (!start->environment)
		return false;
	/* getenv() finds the first. */
	start->environment[0] = start->fds;
	start->environment[1] = start->inputs;
	start->environment[2] = start->outputs;
	memcpy(start->environment + 3, environ, n * sizeof(*environ));
	return true;
}

static int prepare(struct start *start, enum hb_worker_gpu gpu, const int fds[3], struct hb_error *error)
{
	const char *name = start->config->name;
	start->simulated = gpu == HB_WORKER_GPU_SIM;
	if (hb_worker_gpu_there(gpu) && hb_install_program("hb", start->hb, sizeof(start->hb)) < 0)
		return hb_error_set(error, -ENOENT, "model %s: hb, which gives its worker a priority, is not installed",
				    name);
	snprintf(start->shell, sizeof(start->shell), "exec %s", start->config->command);
	snprintf(start->fds, sizeof(start->fds), "HB_WORKER_FDS=%d,%d,%d", fds[0], fds[1], fds[2]);
	list_tensors("HB_WORKER_INPUTS", start->config->inputs, start->config->n_inputs, start->inputs,
		     sizeof(start->inputs));
	list_tensors("HB_WORKER_OUTPUTS", start->config->outputs, start->config->n_outputs, start->outputs,
		     sizeof(start->outputs));
	return make_environment(start) ? 0 : hb_error_set(error, -ENOMEM, "model %s: out of memory", name);
}

/* ---- those that were left ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t n;
} dying = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void note_dying(int change)
{
	pthread_mutex_lock(&dying.lock);
	dying.n += (uint32_t)change;
	pthread_cond_broadcast(&dying.ended);
	pthread_mutex_unlock(&dying.lock);
}

static void *await_end(void *pid)
{
	while (waitpid((pid_t)(intptr_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	note_dying(-1);
	return NULL;
}

static void leave(pid_t pid)
{
	pthread_t thread;
	if (waitpid(pid, NULL, WNOHANG) == pid)
		return;
	note_dying(1);
	/* Without a thread it stays a zombie until the server ends. */
	if (pthread_create(&thread, NULL, await_end, (void *)(intptr_t)pid) ==
	    0) /* NOLINT(performance-no-int-to-ptr) */
		pthread_detach(thread);
	else
		note_dying(-1);
}

uint32_t hb_worker_processes_await(int64_t for_ns)
{
	int64_t until_ns = hb_clock_now_ns() + for_ns;
	const struct timespec until = {.tv_sec = until_ns / HB_NS_PER_S, .tv_nsec = until_ns % HB_NS_PER_S};
	pthread_mutex_lock(&dying.lock);
	while (dying.n && pthread_cond_clockwait(&dying.ended, &dying.lock, CLOCK_MONOTONIC, &until) == 0)
		;
	uint32_t left = dying.n;
	pthread_mutex_unlock(&dying.lock);
	return left;
}

/* ---- one ---- */

int hb_worker_process_start(const struct hb_model_config *config, enum hb_worker_gpu gpu, const int fds[3],
			    struct hb_worker_process *out, struct hb_error *error)
{
	struct start start = {.config = config};
	int result = prepare(&start, gpu, fds, error);
	pid_t parent = getpid();
	if (result < 0)
		return result;
	pid_t pid = fork();
	if (pid == 0)
		run_child(&start, fds, parent);
	free(start.environment);
	if (pid < 0)
		return hb_error_set(error, -errno, "model %s: fork: %s", config->name, strerror(errno));
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		result = -errno;
		kill(pid, SIGKILL);
		leave(pid);
		return hb_error_set(error, result, "model %s: pidfd: %s", config->name, strerror(-result));
	}
	*out = (struct hb_worker_process){.pid = pid, .pidfd = pidfd};
	return 0;
}

static void forget(struct hb_worker_process *process)
{
	kill(-process->pid, SIGKILL); /* what it left behind */
	close(process->pidfd);
	*process = (struct hb_worker_process){.pidfd = -1};
}

bool hb_worker_process_ended(struct hb_worker_process *process, char *text, size_t size)
{
	int status;
	if (!process->pid || waitpid(process->pid, &status, WNOHANG) != process->pid)
		return false;
	if (WIFSIGNALED(status))
		snprintf(text, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exit status %d", WEXITSTATUS(status));
	forget(process);
	return true;
}

void hb_worker_process_kill(const struct hb_worker_process *process)
{
	if (!process->pid)
		return;
	kill(-process->pid, SIGKILL);
	kill(process->pid, SIGKILL);
}

void hb_worker_process_leave(struct hb_worker_process *process)
{
	if (!process->pid)
		return;
	hb_worker_process_kill(process);
	leave(process->pid);
	close(process->pidfd);
	*process = (struct hb_worker_process){.pidfd = -1};
}
