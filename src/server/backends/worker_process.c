/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends the processes of workers; see worker_process.h. */
#include "server/backends/worker_process.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "base/newer_calls.h"
#include "base/paths.h"
#include "base/thread.h"
#include "server/backends/worker_ring.h"
#include "server/kserve/inference.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Everything needed to start a worker. `hb` is "" if it runs without hb run. */
struct worker_start {
	const struct hb_model_config *config;
	char hb[4096], shell[1100];
	bool simulated;
	char **environment;        /* the server's variables and the worker's */
	char device[128], sms[64]; /* "" = as the server's */
	char fds[64], inputs[HB_TENSORS_MAX * (HB_TENSOR_NAME_MAX + 8) + 32],
		outputs[HB_TENSORS_MAX * (HB_TENSOR_NAME_MAX + 8) + 32],
		shapes[2 * HB_TENSORS_MAX * HB_TENSOR_DIMS_MAX * 12 + 32], python[2 * PATH_MAX];
};

bool hb_worker_gpu_there(enum hb_worker_gpu gpu)
{
	return gpu == HB_WORKER_GPU_REAL || gpu == HB_WORKER_GPU_SIM ||
	       (gpu == HB_WORKER_GPU_AUTO && access("/dev/nvidiactl", F_OK) == 0);
}

uint32_t hb_worker_gpu_count(enum hb_worker_gpu gpu)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char path[32];
	uint32_t n = 0;
	if (gpu == HB_WORKER_GPU_SIM || !hb_worker_gpu_there(gpu))
		return 1;
	for (const char *at = visible; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		n++;
	/* Minor numbers may have gaps: a container sees some of the machine's devices. */
	for (int minor = 0; minor < 64 && !visible; minor++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
		n += access(path, F_OK) == 0;
	}
	return n ? n : 1;
}

void hb_worker_gpu_name(enum hb_worker_gpu gpu, char *out, size_t size)
{
	glob_t files;
	char line[256];
	FILE *file = NULL;
	out[0] = '\0';
	if (gpu == HB_WORKER_GPU_SIM) {
		const char *spec = getenv("HB_SIM_SPEC");
		snprintf(out, size, "simulated %s", spec ? spec : "");
		return;
	}
	if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &files) == 0) {
		file = fopen(files.gl_pathv[0], "re");
		globfree(&files);
	}
	while (file && !out[0] && fgets(line, sizeof(line), file))
		if (strncmp(line, "Model:", 6) == 0)
			snprintf(out, size, "%.*s", (int)strcspn(line + 6, "\n"), line + 6);
	if (file)
		fclose(file);
}

/*
 * Called through a pointer, because a build that measures coverage replaces direct calls by one that writes its counters first.
 * That allocates memory, and can wait forever for another thread of the server that held the lock at the fork.
 */
static int (*const volatile execute)(const char *path, char *const words[], char *const environment[]) = execve;

static void execute_worker(const struct worker_start *start)
{
	const char *priority = start->config->priority == HB_SCHEDULER_HIGH ? "high" : "low", *words[12];
	size_t n = 0;
	if (start->hb[0]) {
		words[n++] = "hb";
		words[n++] = "run";
		if (start->simulated) {
			words[n++] = "--gpu";
			words[n++] = "sim";
		}
		words[n++] = "--priority";
		words[n++] = priority;
		words[n++] = "--";
		words[n++] = "/bin/sh";
	} else {
		words[n++] = "sh";
	}
	words[n++] = "-c";
	words[n++] = start->shell;
	words[n] = NULL;
	execute(start->hb[0] ? start->hb : "/bin/sh", (char *const *)words, start->environment);
}

/*
 * PR_SET_PDEATHSIG ends the worker with the server, but not the processes that the worker has started, which may own GPU
 * memory (`command: ./start.sh`). So the read end of a pipe sends SIGKILL to the process group when the server, the only
 * writer, closes the pipe or dies.
 */
static void end_with_server(int lifeline)
{
	fcntl(lifeline, F_SETOWN, -getpid());
	fcntl(lifeline, F_SETSIG, SIGKILL);
	fcntl(lifeline, F_SETFL, O_ASYNC);
	fcntl(lifeline, F_SETFD,
	      0); /* inherited by the group: the signal is sent while at least one of its processes keeps the pipe open */
}

/* Runs between fork and exec: must not wait for another thread of the server (no malloc, no locks). */
static void run_child(const struct worker_start *start, const int fds[3], int lifeline, pid_t parent)
{
	sigset_t none;
	/* Also of what the program that started the server left open, nothing but three files and the pipe reaches the worker. */
	hb_close_range_at_exec(STDERR_FILENO + 1, UINT_MAX);
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_with_server(lifeline);
	if (getppid() != parent || chdir(start->config->folder) < 0)
		_exit(126);
	for (int i = 0; i < 3; i++)
		fcntl(fds[i], F_SETFD, 0);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* the server's stdout has its addresses, and its reader may have stopped */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	execute_worker(start);
	_exit(127);
}

/* Writes NAME= and a line "TYPE name" for each tensor. */
static void list_tensors(const char *name, const struct hb_tensor_spec *specs, uint32_t n, char *out, size_t size)
{
	size_t at = (size_t)snprintf(out, size, "%s=", name);
	for (uint32_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s %s", i ? "\n" : "",
				       hb_dtype_name((enum hb_dtype)specs[i].dtype), specs[i].name);
}

/* Writes a line of dimensions for each tensor, the batch dimension first if there is one. */
static size_t list_shapes(const struct hb_model_config *config, const struct hb_tensor_spec *specs, uint32_t n,
			  char *out, size_t size)
{
	size_t at = 0;
	for (uint32_t i = 0; i < n && at < size; i++) {
		if (config->max_batch)
			at += (size_t)snprintf(out + at, size - at, "%d ", config->max_batch == 1 ? 1 : -1);
		for (uint32_t d = 0; d < specs[i].n_dims && at < size; d++)
			at += (size_t)snprintf(out + at, size - at, "%lld ", (long long)specs[i].dims[d]);
		if (at < size)
			at += (size_t)snprintf(out + at, size - at, "\n");
	}
	return at;
}

/* Writes PYTHONPATH with the folder of the module `hummingbird` appended: the worker may use any Python. */
static void list_python_folders(char *out, size_t size)
{
	char ours[PATH_MAX];
	const char *theirs = getenv("PYTHONPATH");
	bool given = theirs && theirs[0];
	if (hb_path_data("python", ours, sizeof(ours), NULL) < 0 && /* installed */
	    hb_path_data("../python", ours, sizeof(ours), NULL) < 0)
		ours[0] = '\0';
	snprintf(out, size, "PYTHONPATH=%s%s%s", given ? theirs : "", given && ours[0] ? ":" : "", ours);
}

static bool has_same_name(const char *a, const char *b)
{
	size_t length = strcspn(a, "=");
	return strncmp(a, b, length + 1) == 0;
}

/*
 * Makes the environment: the worker's variables, and the server's without those of the same names. Of two equal names, shells
 * use the last and other programs the first.
 */
static bool make_environment(struct worker_start *start)
{
	char *ours[7] = {start->fds, start->inputs, start->outputs, start->shapes, start->python};
	size_t n = 0, given_ours = 5;
	if (start->device[0])
		ours[given_ours++] = start->device;
	if (start->sms[0])
		ours[given_ours++] = start->sms;
	size_t at = given_ours;
	while (environ[n])
		n++;
	start->environment = calloc(n + at + 1, sizeof(*start->environment));
	if (!start->environment)
		return false;
	memcpy(start->environment, ours, given_ours * sizeof(*ours));
	for (size_t i = 0; i < n; i++) {
		bool given = false;
		for (size_t k = 0; k < given_ours; k++)
			given |= has_same_name(ours[k], environ[i]);
		if (!given)
			start->environment[at++] = environ[i];
	}
	return true;
}

static void make_variables(struct worker_start *start, const int fds[3])
{
	const struct hb_model_config *config = start->config;
	snprintf(start->fds, sizeof(start->fds), "HB_WORKER_FDS=%d,%d,%d", fds[0], fds[1], fds[2]);
	list_tensors("HB_WORKER_INPUTS", config->inputs, config->n_inputs, start->inputs, sizeof(start->inputs));
	list_tensors("HB_WORKER_OUTPUTS", config->outputs, config->n_outputs, start->outputs, sizeof(start->outputs));
	size_t at = (size_t)snprintf(start->shapes, sizeof(start->shapes), "HB_WORKER_SHAPES=");
	at += list_shapes(config, config->inputs, config->n_inputs, start->shapes + at, sizeof(start->shapes) - at);
	list_shapes(config, config->outputs, config->n_outputs, start->shapes + at, sizeof(start->shapes) - at);
	list_python_folders(start->python, sizeof(start->python));
}

/*
 * Adds `exec`, so that the worker replaces the shell and the watched process is the worker itself. A command that is a
 * list or a pipe stays as it is.
 */
static void make_command(const char *command, char *out, size_t size)
{
	const char *begin = command + strspn(command, " \t\n"), *assigned = strchr(begin, '=');
	if (strpbrk(begin, ";&|\n"))
		snprintf(out, size, "%s", begin);
	else if (assigned && assigned < begin + strcspn(begin, " \t"))
		snprintf(out, size, "exec env %s", begin);
	else
		snprintf(out, size, "exec %s", begin);
}

/*
 * Writes CUDA_VISIBLE_DEVICES with the entry of the server's own list that stands for the device; without a list its number.
 * Returns whether there is such an entry and it fits.
 */
static bool choose_device(int device, char *out, size_t size)
{
	const char *at = getenv("CUDA_VISIBLE_DEVICES");
	if (!at)
		return (size_t)snprintf(out, size, "CUDA_VISIBLE_DEVICES=%d", device) < size;
	for (int i = 0; i < device && at; i++)
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	return at && (size_t)snprintf(out, size, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(at, ","), at) < size;
}

static int prepare_start(struct worker_start *start, const struct hb_worker_place *place, const int fds[3],
			 struct hb_error *error)
{
	const char *name = start->config->name;
	int device = place->device;
	start->simulated = place->gpu == HB_WORKER_GPU_SIM;
	if (place->sm_percent)
		snprintf(start->sms, sizeof(start->sms), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u", place->sm_percent);
	if (hb_worker_gpu_there(place->gpu) && hb_install_program("hb", start->hb, sizeof(start->hb)) < 0)
		return hb_error_set(error, -ENOENT,
				    "model %s: the program hb, which gives the worker its priority, is not installed",
				    name);
	if (device >= 0 && !choose_device(device, start->device, sizeof(start->device)))
		return hb_error_set(error, -EINVAL, "model %s: CUDA_VISIBLE_DEVICES has no GPU %d", name, device);
	make_command(start->config->command, start->shell, sizeof(start->shell));
	make_variables(start, fds);
	return make_environment(start) ? 0 : hb_error_set(error, -ENOMEM, "model %s: out of memory", name);
}

/* ---- abandoned processes ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t n;
} dying = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void make_condition(void)
{
	hb_condition_init(&dying.ended);
}

static void lock_dying(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_condition);
	pthread_mutex_lock(&dying.lock);
}

static void count_dying(int change)
{
	lock_dying();
	dying.n += (uint32_t)change;
	pthread_cond_broadcast(&dying.ended);
	pthread_mutex_unlock(&dying.lock);
}

static void *await_end(void *pid)
{
	while (waitpid((pid_t)(intptr_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	count_dying(-1);
	return NULL;
}

/* Lets a background thread wait for the end of a killed process. */
static void await_in_background(pid_t pid)
{
	pthread_t thread;
	if (waitpid(pid, NULL, WNOHANG) == pid)
		return;
	count_dying(1);
	/* If no thread can be created, the process stays a zombie until the server ends. */
	if (pthread_create(&thread, NULL, await_end, (void *)(intptr_t)pid) ==
	    0) /* NOLINT(performance-no-int-to-ptr) */
		pthread_detach(thread);
	else
		count_dying(-1);
}

struct dismissed_process {
	struct hb_worker_process process;
	int64_t grace_ns;
};

static void *await_dismissed(void *argument)
{
	struct dismissed_process *dismissed = argument;
	struct pollfd ended = {.fd = dismissed->process.pidfd, .events = POLLIN};
	poll(&ended, 1, (int)(dismissed->grace_ns / HB_NS_PER_MS));
	hb_worker_process_kill(&dismissed->process);
	while (waitpid(dismissed->process.pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(dismissed->process.pidfd);
	close(dismissed->process.lifeline);
	free(dismissed);
	count_dying(-1);
	return NULL;
}

void hb_worker_process_dismiss(struct hb_worker_process *process, int64_t grace_ns)
{
	struct dismissed_process *dismissed = process->pid ? malloc(sizeof(*dismissed)) : NULL;
	if (dismissed) {
		*dismissed = (struct dismissed_process){*process, grace_ns};
		count_dying(1);
		if (hb_thread_start(NULL, 0, await_dismissed, dismissed) == 0) {
			*process = (struct hb_worker_process){.pidfd = -1, .lifeline = -1};
			return;
		}
		count_dying(-1);
		free(dismissed);
	}
	hb_worker_process_abandon(process);
}

uint32_t hb_worker_processes_await(int64_t for_ns)
{
	int64_t until_ns = hb_clock_now_ns() + for_ns;
	lock_dying();
	while (dying.n && hb_condition_wait_until(&dying.ended, &dying.lock, until_ns))
		;
	uint32_t left = dying.n;
	pthread_mutex_unlock(&dying.lock);
	return left;
}

/* ---- start ---- */

static int fork_worker(const struct worker_start *start, const int fds[3], struct hb_worker_process *out,
		       struct hb_error *error)
{
	const char *name = start->config->name;
	int lifeline[2];
	pid_t parent = getpid();
	if (pipe2(lifeline, O_CLOEXEC) < 0)
		return hb_error_set(error, -errno, "model %s: pipe: %s", name, strerror(errno));
	pid_t pid = fork();
	if (pid == 0)
		run_child(start, fds, lifeline[0], parent);
	int result = pid < 0 ? -errno : 0;
	int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (pid > 0 && pidfd < 0) {
		result = -errno;
		kill(pid, SIGKILL);
		await_in_background(pid);
	}
	close(lifeline[0]);
	if (result < 0) {
		close(lifeline[1]);
		return hb_error_set(error, result, "model %s: cannot start its worker: %s", name, strerror(-result));
	}
	*out = (struct hb_worker_process){.pid = pid, .pidfd = pidfd, .lifeline = lifeline[1]};
	return 0;
}

int hb_worker_process_start(const struct hb_model_config *config, const struct hb_worker_place *place, const int fds[3],
			    struct hb_worker_process *out, struct hb_error *error)
{
	struct worker_start start = {.config = config};
	int result = prepare_start(&start, place, fds, error);
	if (result == 0)
		result = fork_worker(&start, fds, out, error);
	free(start.environment);
	return result;
}

/* ---- end ---- */

static void forget_process(struct hb_worker_process *process)
{
	close(process->pidfd);
	close(process->lifeline);
	*process = (struct hb_worker_process){.pidfd = -1, .lifeline = -1};
}

bool hb_worker_process_ended(struct hb_worker_process *process, char *text, size_t size)
{
	siginfo_t info = {.si_pid = 0};
	int status;
	if (!process->pid || waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
		return false;
	kill(-process->pid,
	     SIGKILL); /* kill the worker's children; before waitpid(), so that the number cannot be reused yet */
	if (waitpid(process->pid, &status, 0) != process->pid)
		return false;
	if (WIFSIGNALED(status))
		snprintf(text, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == HB_WORKER_EXIT_BROKEN)
		snprintf(text, size, "an error of the GPU has broken its CUDA context");
	else
		snprintf(text, size, "exit status %d", WEXITSTATUS(status));
	forget_process(process);
	return true;
}

void hb_worker_process_kill(const struct hb_worker_process *process)
{
	if (!process->pid)
		return;
	kill(-process->pid, SIGKILL);
	kill(process->pid, SIGKILL);
}

void hb_worker_process_abandon(struct hb_worker_process *process)
{
	if (!process->pid)
		return;
	hb_worker_process_kill(process);
	await_in_background(process->pid);
	forget_process(process);
}
