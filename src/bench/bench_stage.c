/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folder, daemons and MPS server of a measurement; see bench_stage.h. Programs
 * under Hummingbird are started by this very program as `hb run`. The caretaker
 * is a child that waits for the end of a pipe: when that comes, it waits for the
 * daemons to end, tells every MPS control program below the folder to quit, also
 * one that a dying daemon has just started, and removes the folder.
 */
#include "bench/bench_stage.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "bench/bench_cpus.h"
#include "bench/bench_daemon.h"
#include "bench/bench_scripts.h"
#include "bench/bench_xsched.h"
#include "gpu/provider.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_MAX 40
#define DAEMONS_MAX 4
#define STEP_LIMIT_NS (15 * HB_NS_PER_S)
#define PYTHON_LIMIT_NS (60 * HB_NS_PER_S)
#define DAEMON_END_NS (20 * HB_NS_PER_S)
#define CARETAKER_LIMIT_S 60
#define CARETAKER_LOOK_NS 2000000
#define LOOK_EVERY_NS (100 * HB_NS_PER_MS)

/* How long the caretaker looks for processes: until it has seen none so many times in a row, but not for ever. */
static const struct patience {
	int calm_looks;
	int64_t limit_ns;
} after_end = {1, 3 * HB_NS_PER_S}, after_death = {10, 20 * HB_NS_PER_S};

struct hb_bench_stage {
	bool simulated, mps;
	char folder[FOLDER_MAX + 32];
	char simcuda[PATH_MAX], control[PATH_MAX];
	struct hb_bench_daemon daemons[DAEMONS_MAX];
	unsigned n_daemons;
	const char *xsched; /* folder */
	struct hb_bench_process xserver;
	pid_t caretaker;
	int caretaker_pipe;
};

/* --- the caretaker ------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *level)
{
	remove(path);
	return 0;
}

/* The caretaker's own. */
static const struct hb_bench_stage *cared_for;
static unsigned found_alive;

static bool ends_with(const char *path, const char *end)
{
	size_t length = strlen(path), n = strlen(end);
	return length >= n && strcmp(path + length - n, end) == 0;
}

/* A server left behind by a daemon or by us has its pipes in a folder whose name ends in "mps". */
static void quit_server(const char *control)
{
	char folder[PATH_MAX];
	struct hb_bench_command command = {.end_signal = SIGKILL};
	struct hb_error ignored;
	snprintf(folder, sizeof folder, "%.*s", (int)(strlen(control) - strlen("/control")), control);
	if (hb_bench_command_add(&command, cared_for->control) &&
	    hb_bench_command_set(&command, "CUDA_MPS_PIPE_DIRECTORY", folder))
		hb_bench_command_run(&command, "MPS", "quit\n", cared_for->folder, STEP_LIMIT_NS, &ignored);
	hb_bench_command_fini(&command);
}

static int look_at(const char *path, const struct stat *status, int type, struct FTW *level)
{
	if (ends_with(path, "mps/control")) {
		found_alive++;
		quit_server(path);
	} else if (ends_with(path, "/hbd.sock")) {
		int fd = hb_client_open(path, (int)(HB_NS_PER_S / HB_NS_PER_MS), NULL);
		if (fd >= 0) {
			found_alive++;
			close(fd);
		}
	}
	return 0;
}

static void see_them_off(const struct hb_bench_stage *stage, const struct patience *patience)
{
	int64_t deadline_ns = hb_clock_now_ns() + patience->limit_ns;
	int calm = 0;
	cared_for = stage;
	do {
		found_alive = 0;
		nftw(stage->folder, look_at, 16, FTW_PHYS);
		calm = found_alive ? 0 : calm + 1;
	} while (calm < patience->calm_looks && hb_bench_sleep_until(hb_clock_now_ns() + LOOK_EVERY_NS) &&
		 hb_clock_now_ns() < deadline_ns);
}

_Noreturn static void caretake(const struct hb_bench_stage *stage, int pipe)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
	char byte;
	setsid();
	hb_bench_time_set(0); /* its own limits hold */
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	/* Whoever reads our standard output or error waits for its end, which must not be ours. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	ssize_t got;
	while ((got = read(pipe, &byte, 1)) < 0 && errno == EINTR)
		;
	alarm(CARETAKER_LIMIT_S);
	if (stage->control[0])
		see_them_off(stage, got == 1 ? &after_end : &after_death);
	nftw(stage->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

static int start_caretaker(struct hb_bench_stage *stage, struct hb_error *error)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return hb_error_set(error, -errno, "pipe: %s", strerror(errno));
	fflush(NULL);
	stage->caretaker = fork();
	if (stage->caretaker == 0) {
		close(ends[1]);
		caretake(stage, ends[0]);
	}
	close(ends[0]);
	stage->caretaker_pipe = ends[1];
	return stage->caretaker < 0 ? hb_error_set(error, -errno, "fork: %s", strerror(errno)) : 0;
}

/* --- new and free ---------------------------------------------------------------------------------- */

static int find_parts(struct hb_bench_stage *stage, struct hb_error *error)
{
	const char *why;
	if (stage->simulated && hb_install_simcuda_dir(stage->simcuda, sizeof stage->simcuda) < 0)
		return hb_error_set(error, -ENOENT,
				    "the simulated driver is not found beside hb; set HB_SIMCUDA_DIR to its folder");
	/* Without it the ways to share that need it say so. */
	if (hb_provider_of(stage->simulated)->mps_control(stage->control, sizeof stage->control, &why) < 0)
		stage->control[0] = '\0';
	return 0;
}

int hb_bench_stage_new(bool simulated, const char *xsched, struct hb_bench_stage **stage, struct hb_error *error)
{
	struct hb_bench_stage *made = calloc(1, sizeof *made);
	if (!made)
		return hb_error_set(error, -ENOMEM, "out of memory");
	made->simulated = simulated;
	made->xsched = xsched;
	made->xserver = (struct hb_bench_process){.in = -1, .out = -1};
	made->caretaker_pipe = -1;
	const char *temporary = getenv("TMPDIR");
	/* Longer ones leave no room for the names of sockets. */
	bool usable = temporary && *temporary == '/' && strlen(temporary) < FOLDER_MAX;
	snprintf(made->folder, sizeof made->folder, "%s/hb-bench-XXXXXX", usable ? temporary : "/tmp");
	int result = mkdtemp(made->folder) ? 0 : hb_error_set(error, -errno, "%s: %s", made->folder, strerror(errno));
	if (result) {
		free(made);
		return result;
	}
	result = find_parts(made, error);
	result = result ? result : start_caretaker(made, error);
	if (result) {
		rmdir(made->folder);
		free(made);
		return result;
	}
	*stage = made;
	return 0;
}

/* One that needs longer than there is time goes on by itself. */
static void caretaker_await(pid_t caretaker)
{
	int64_t end_ns = hb_clock_now_ns() + hb_bench_time_left(CARETAKER_LIMIT_S * HB_NS_PER_S);
	while (waitpid(caretaker, NULL, WNOHANG) == 0 && hb_clock_now_ns() < end_ns)
		nanosleep(&(struct timespec){.tv_nsec = CARETAKER_LOOK_NS}, NULL);
}

void hb_bench_stage_free(struct hb_bench_stage *stage)
{
	if (!stage)
		return;
	for (unsigned i = 0; i < stage->n_daemons; i++)
		hb_bench_process_stop(&stage->daemons[i].process, SIGTERM, DAEMON_END_NS);
	hb_bench_process_stop(&stage->xserver, SIGTERM, HB_NS_PER_S);
	bool told = write(stage->caretaker_pipe, "", 1) == 1; /* else it takes its time */
	(void)told;
	close(stage->caretaker_pipe);
	caretaker_await(stage->caretaker);
	free(stage);
}

/* --- environment --------------------------------------------------------------------------------------- */

static bool set_folder(const struct hb_bench_stage *stage, struct hb_bench_command *command, const char *variable,
		       const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", stage->folder, name);
	return hb_bench_command_set(command, variable, path);
}

/* What every process of the stage gets. */
static bool set_common(const struct hb_bench_stage *stage, struct hb_bench_command *command)
{
	/* HB_LOG=info is for us: what shims would log takes time. */
	return hb_bench_command_set(command, "PYTHONUNBUFFERED", "1") &&
	       hb_bench_command_set(command, "HB_LOG", "warning") &&
	       set_folder(stage, command, "HB_BENCH_LOCK", "lock") &&
	       (!stage->simulated || set_folder(stage, command, "HB_SIM_GPU", "gpu"));
}

/* And those that are not started through `hb run`, which finds the driver itself. */
static bool set_driver(const struct hb_bench_stage *stage, struct hb_bench_command *command)
{
	return !stage->simulated || hb_bench_command_set(command, "LD_LIBRARY_PATH", stage->simcuda);
}

static bool set_mps(const struct hb_bench_stage *stage, struct hb_bench_command *command)
{
	return set_folder(stage, command, "CUDA_MPS_PIPE_DIRECTORY", "own-mps") &&
	       set_folder(stage, command, "CUDA_MPS_LOG_DIRECTORY", "own-mps");
}

static int out_of_words(struct hb_error *error)
{
	return hb_error_set(error, -ENOMEM, "a command of the bench has too many words, or memory is out");
}

/* --- the MPS server ------------------------------------------------------------------------------------- */

static int need_mps(struct hb_bench_stage *stage, struct hb_error *error)
{
	char folder[128];
	struct hb_bench_command command = {.end_signal = SIGTERM};
	if (stage->mps)
		return 0;
	if (!stage->control[0])
		return hb_error_set(error, -ENOENT,
				    "nvidia-cuda-mps-control is not on PATH; leave out the ways to share with mps "
				    "(--sharing)");
	snprintf(folder, sizeof folder, "%s/own-mps", stage->folder);
	mkdir(folder, 0700);
	int result = -ENOMEM;
	if (hb_bench_command_add(&command, stage->control) && hb_bench_command_add(&command, "-d") &&
	    set_common(stage, &command) && set_driver(stage, &command) && set_mps(stage, &command))
		result = hb_bench_command_run(&command, "nvidia-cuda-mps-control", "", stage->folder, STEP_LIMIT_NS,
					      error);
	else
		out_of_words(error);
	hb_bench_command_fini(&command);
	stage->mps = result == 0;
	return result;
}

/* --- daemons ------------------------------------------------------------------------------------------------ */

static struct hb_bench_daemon *find_daemon(struct hb_bench_stage *stage, const char *engine)
{
	for (unsigned i = 0; i < stage->n_daemons; i++)
		if (strcmp(stage->daemons[i].engine, engine) == 0)
			return &stage->daemons[i];
	return NULL;
}

static int need_daemon(struct hb_bench_stage *stage, const char *engine, struct hb_error *error)
{
	struct hb_bench_command command = {.end_signal = SIGTERM};
	if (find_daemon(stage, engine))
		return 0;
	if (stage->n_daemons == DAEMONS_MAX)
		return hb_error_set(error, -E2BIG, "more than %d engines in one run", DAEMONS_MAX);
	struct hb_bench_daemon *daemon = &stage->daemons[stage->n_daemons++];
	int result = set_common(stage, &command) ? 0 : out_of_words(error);
	result = result ? result
			: hb_bench_daemon_start(daemon, engine, stage->simulated, stage->folder, &command, error);
	hb_bench_command_fini(&command);
	return result;
}

int hb_bench_stage_set(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, struct hb_error *error)
{
	struct hb_bench_daemon *daemon = find_daemon(stage, sharing->engine);
	return daemon ? hb_bench_daemon_set(daemon, sharing->settings, error) : 0;
}

int hb_bench_stage_slo(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, pid_t pid, int64_t slo_ns,
		       struct hb_error *error)
{
	struct hb_bench_daemon *daemon = find_daemon(stage, sharing->engine);
	return daemon ? hb_bench_daemon_slo(daemon, pid, slo_ns, error) : 0;
}

int hb_bench_stage_verify(struct hb_bench_stage *stage, const struct hb_bench_sharing *sharing, struct hb_error *error)
{
	struct hb_bench_daemon *daemon = find_daemon(stage, sharing->engine);
	return daemon ? hb_bench_daemon_verify(daemon, error) : 0;
}

/* --- programs ------------------------------------------------------------------------------------------------ */

static int find_script(char path[PATH_MAX], struct hb_error *error)
{
	return hb_bench_script("workloads/", "torch_work.py", path, error);
}

int hb_bench_stage_check_python(struct hb_bench_stage *stage, const struct hb_bench_program *program,
				struct hb_error *error)
{
	char script[PATH_MAX];
	struct hb_bench_command command = {.end_signal = SIGKILL};
	struct hb_bench_process process = {.in = -1, .out = -1};
	json_t *answer = NULL;
	int result = find_script(script, error);
	if (result)
		return result;
	bool whole = hb_bench_command_split(&command, "python3") && hb_bench_command_add(&command, script) &&
		     hb_bench_command_add(&command, "--check") &&
		     hb_bench_command_split(&command, program->real + strcspn(program->real, " ") + 1);
	result = whole ? hb_bench_process_start(&process, "python3", &command, stage->folder, error)
		       : out_of_words(error);
	hb_bench_command_fini(&command);
	if (result)
		return result;
	result = hb_bench_process_hear(&process, "lacks", PYTHON_LIMIT_NS, &answer, error);
	const char *lacks = json_string_value(json_object_get(answer, "modules"));
	if (result == -EPIPE)
		result = -ENOENT;
	else if (result == 0 && lacks && *lacks)
		result = hb_error_set(error, -ENOENT, "python3 has no module %.80s, which %s needs", lacks,
				      program->name);
	json_decref(answer);
	hb_bench_process_stop(&process, 0, STEP_LIMIT_NS);
	return result;
}

static int add_program(struct hb_bench_command *command, const struct hb_bench_program *program, bool simulated,
		       struct hb_error *error)
{
	char path[PATH_MAX];
	const char *words = simulated ? program->simulated : program->real + strcspn(program->real, " ") + 1;
	int result = 0;
	if (!simulated && strncmp(program->real, "torch ", 6) == 0) {
		result = hb_bench_command_add(command, "python3") ? find_script(path, error) : out_of_words(error);
	} else if (hb_install_program("hb-bench-work", path, sizeof path) < 0) {
		result = hb_error_set(error, -ENOENT, "hb-bench-work is not found beside hb");
	}
	if (result)
		return result;
	return hb_bench_command_add(command, path) && hb_bench_command_split(command, words) ? 0 : out_of_words(error);
}

static int add_hb_run(struct hb_bench_stage *stage, struct hb_bench_command *command, bool high,
		      const struct hb_bench_sharing *sharing, struct hb_error *error)
{
	int result = need_daemon(stage, sharing->engine, error);
	if (result)
		return result;
	const char *socket = find_daemon(stage, sharing->engine)->socket;
	bool whole = hb_bench_command_add(command, "/proc/self/exe") && hb_bench_command_split(command, "run") &&
		     (!stage->simulated || hb_bench_command_split(command, "--gpu sim")) &&
		     hb_bench_command_split(command, high ? "--priority high" : "--priority low") &&
		     hb_bench_command_add(command, "--") && hb_bench_command_set(command, "HB_SOCKET", socket) &&
		     hb_bench_command_set(command, "HB_START_DAEMON",
					  "0"); /* one that outlives us would be left behind */
	return whole ? 0 : out_of_words(error);
}

static int add_xsched(struct hb_bench_stage *stage, struct hb_bench_command *command, bool high, struct hb_error *error)
{
	struct hb_bench_command server = {.end_signal = SIGKILL};
	int result = 0;
	if (stage->xserver.pid <= 0) {
		result = set_common(stage, &server) ? 0 : out_of_words(error);
		result = result ? result
				: hb_bench_xsched_start(&stage->xserver, stage->xsched, &server, stage->folder, error);
		hb_bench_command_fini(&server);
	}
	if (result)
		return result;
	return set_folder(stage, command, "CUDA_MPS_PIPE_DIRECTORY", "none") &&
			       hb_bench_xsched_place(command, stage->xsched, stage->simcuda, high)
		       ? 0
		       : out_of_words(error);
}

/* In front of the program, and around it. */
static int add_place(struct hb_bench_stage *stage, struct hb_bench_command *command, bool high,
		     const struct hb_bench_sharing *sharing, struct hb_error *error)
{
	enum hb_bench_place place = high ? sharing->high : sharing->low;
	char limit[16];
	if (place == HB_BENCH_HB)
		return add_hb_run(stage, command, high, sharing, error);
	if (place == HB_BENCH_XSCHED)
		return add_xsched(stage, command, high, error);
	/* A folder without a server: the program runs outside MPS, also where somebody else runs one. */
	if (place == HB_BENCH_NATIVE)
		return set_driver(stage, command) && set_folder(stage, command, "CUDA_MPS_PIPE_DIRECTORY", "none")
			       ? 0
			       : out_of_words(error);
	int result = need_mps(stage, error);
	if (result)
		return result;
	bool whole = set_driver(stage, command) && set_mps(stage, command);
	if (place == HB_BENCH_MPS_PRIO)
		whole = whole && hb_bench_command_set(command, "HB_BENCH_STREAM", "high");
	if (!high && sharing->limit_percent < 100) {
		snprintf(limit, sizeof limit, "%u", sharing->limit_percent);
		whole = whole && hb_bench_command_set(command, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", limit);
	}
	return whole ? 0 : out_of_words(error);
}

static void place_name(bool high, const struct hb_bench_sharing *sharing, char name[64])
{
	static const char *const names[] = {
		[HB_BENCH_NONE] = "nowhere", [HB_BENCH_NATIVE] = "native",
		[HB_BENCH_MPS] = "mps",      [HB_BENCH_MPS_PRIO] = "mps, high stream",
		[HB_BENCH_HB] = "hb run",    [HB_BENCH_XSCHED] = "xsched",
	};
	enum hb_bench_place place = high ? sharing->high : sharing->low;
	if (place == HB_BENCH_HB)
		snprintf(name, 64, "hb run, %.16s", sharing->engine);
	else if (place == HB_BENCH_MPS && !high && sharing->limit_percent < 100)
		snprintf(name, 64, "mps, %u%%", sharing->limit_percent);
	else
		snprintf(name, 64, "%s", names[place]);
}

void hb_bench_stage_key(const struct hb_bench_program *program, unsigned index, bool high,
			const struct hb_bench_sharing *sharing, char key[160])
{
	char place[64];
	place_name(high, sharing, place);
	snprintf(key, 160, "%s %u %s %s", program->name, index, high ? "high" : "low", place);
}

int hb_bench_stage_start(struct hb_bench_stage *stage, const struct hb_bench_program *program, bool high,
			 const struct hb_bench_sharing *sharing, struct hb_bench_process *process,
			 struct hb_error *error)
{
	char name[128], place[64];
	struct hb_bench_command command = {.end_signal = SIGKILL};
	command.placed = hb_bench_cpus_choose(high, &command.cpus);
	place_name(high, sharing, place);
	snprintf(name, sizeof name, "%s (%s, %s)", program->name, high ? "high" : "low", place);
	int result = add_place(stage, &command, high, sharing, error);
	result = result ? result : add_program(&command, program, stage->simulated, error);
	if (!result && !set_common(stage, &command))
		result = out_of_words(error);
	if (!result)
		result = hb_bench_process_start(process, name, &command, stage->folder, error);
	hb_bench_command_fini(&command);
	return result;
}
