/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folder, daemons and MPS server of a measurement; see bench_stage.h. Programs
 * under Hummingbird are started by this very program as `hb run`. The caretaker
 * is a child that waits for the end of a pipe: when that comes, it tells every
 * MPS control program below the folder to quit and removes the folder.
 */
#include "bench/bench_stage.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "base/paths.h"
#include "daemon/socket_path.h"
#include "gpu/provider.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER_MAX 40
#define DAEMONS_MAX 4
#define STEP_LIMIT_NS (15 * HB_NS_PER_S)
#define DAEMON_END_NS (20 * HB_NS_PER_S)
#define CARETAKER_LIMIT_S 40

struct hb_bench_stage {
	bool simulated, mps;
	char folder[FOLDER_MAX + 32];
	char simcuda[PATH_MAX], control[PATH_MAX];
	struct hb_bench_daemon {
		const char *policy;
		struct hb_bench_process process;
	} daemons[DAEMONS_MAX];
	unsigned n_daemons;
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

/* A server left behind by a daemon or by us has its pipes in a folder whose name ends in "mps". */
static int quit_server(const char *path, const struct stat *status, int type, struct FTW *level)
{
	static const char end[] = "mps/control";
	size_t length = strlen(path);
	struct hb_bench_command command = {.end_signal = SIGKILL};
	struct hb_error ignored;
	char folder[PATH_MAX];
	if (length < sizeof end || strcmp(path + length - (sizeof end - 1), end) != 0)
		return 0;
	snprintf(folder, sizeof folder, "%.*s", (int)(length - strlen("/control")), path);
	if (hb_bench_command_add(&command, cared_for->control) &&
	    hb_bench_command_set(&command, "CUDA_MPS_PIPE_DIRECTORY", folder))
		hb_bench_command_run(&command, "MPS", "quit\n", cared_for->folder, STEP_LIMIT_NS, &ignored);
	hb_bench_command_fini(&command);
	return 0;
}

_Noreturn static void caretake(const struct hb_bench_stage *stage, int pipe)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
	char byte;
	setsid();
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	/* Whoever reads our standard output or error waits for its end, which must not be ours. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	while (read(pipe, &byte, 1) < 0 && errno == EINTR)
		;
	alarm(CARETAKER_LIMIT_S);
	cared_for = stage;
	if (stage->control[0])
		nftw(stage->folder, quit_server, 16, FTW_PHYS);
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

int hb_bench_stage_new(bool simulated, struct hb_bench_stage **stage, struct hb_error *error)
{
	struct hb_bench_stage *made = calloc(1, sizeof *made);
	if (!made)
		return hb_error_set(error, -ENOMEM, "out of memory");
	made->simulated = simulated;
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

void hb_bench_stage_free(struct hb_bench_stage *stage)
{
	if (!stage)
		return;
	for (unsigned i = 0; i < stage->n_daemons; i++)
		hb_bench_process_stop(&stage->daemons[i].process, SIGTERM, DAEMON_END_NS);
	close(stage->caretaker_pipe);
	while (waitpid(stage->caretaker, NULL, 0) < 0 && errno == EINTR)
		;
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
	return hb_bench_command_set(command, "PYTHONUNBUFFERED", "1") &&
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

static void daemon_socket(const struct hb_bench_stage *stage, const char *policy, char path[HB_PATH_MAX])
{
	snprintf(path, HB_PATH_MAX, "%s/%.16s/hbd.sock", stage->folder, policy);
}

static int daemon_command(const struct hb_bench_stage *stage, const char *policy, struct hb_bench_command *command,
			  struct hb_error *error)
{
	char path[PATH_MAX], config[128], socket[HB_PATH_MAX];
	if (hb_install_program("hbd", path, sizeof path) < 0)
		return hb_error_set(error, -ENOENT, "hbd is not found beside hb");
	snprintf(config, sizeof config, "%s/%.16s", stage->folder, policy);
	mkdir(config, 0700);
	strcat(config, "/hbd.yaml");
	FILE *file = fopen(config, "we");
	if (!file)
		return hb_error_set(error, -errno, "%s: %s", config, strerror(errno));
	fprintf(file, "policy: %s\n", policy);
	if (fclose(file) != 0)
		return hb_error_set(error, -EIO, "%s: cannot be written", config);
	daemon_socket(stage, policy, socket);
	bool whole = hb_bench_command_add(command, path) && hb_bench_command_add(command, "--foreground") &&
		     hb_bench_command_add(command, "--socket") && hb_bench_command_add(command, socket) &&
		     hb_bench_command_add(command, "--config") && hb_bench_command_add(command, config) &&
		     (!stage->simulated || hb_bench_command_split(command, "--gpu sim")) && set_common(stage, command);
	return whole ? 0 : out_of_words(error);
}

static int daemon_wait(struct hb_bench_process *process, const char *socket, struct hb_error *error)
{
	int64_t deadline_ns = hb_clock_now_ns() + STEP_LIMIT_NS;
	while (access(socket, F_OK) != 0) {
		int result = hb_bench_process_check(process, error);
		if (result)
			return result;
		if (hb_clock_now_ns() > deadline_ns)
			return hb_error_set(error, -ETIMEDOUT, "%s: no socket in time", process->name);
		if (!hb_bench_sleep_until(hb_clock_now_ns() + 10 * HB_NS_PER_MS))
			return hb_error_set(error, -EINTR, "interrupted");
	}
	return 0;
}

static int need_daemon(struct hb_bench_stage *stage, const char *policy, struct hb_error *error)
{
	char name[64], socket[HB_PATH_MAX];
	struct hb_bench_command command = {.end_signal = SIGTERM};
	for (unsigned i = 0; i < stage->n_daemons; i++)
		if (strcmp(stage->daemons[i].policy, policy) == 0)
			return 0;
	if (stage->n_daemons == DAEMONS_MAX)
		return hb_error_set(error, -E2BIG, "more than %d policies in one run", DAEMONS_MAX);
	snprintf(name, sizeof name, "hbd (policy %s)", policy);
	daemon_socket(stage, policy, socket);
	struct hb_bench_daemon *daemon = &stage->daemons[stage->n_daemons];
	int result = daemon_command(stage, policy, &command, error);
	result = result ? result : hb_bench_process_start(&daemon->process, name, &command, stage->folder, error);
	hb_bench_command_fini(&command);
	if (result)
		return result;
	daemon->policy = policy;
	stage->n_daemons++;
	return daemon_wait(&daemon->process, socket, error);
}

/* --- programs ------------------------------------------------------------------------------------------------ */

/* bench/workloads/torch_work.py: beside the build, or installed. */
static int find_script(char path[PATH_MAX], struct hb_error *error)
{
	static const char *const folders[] = {"../bench/workloads", "bench/workloads", "../share/hummingbird/bench"};
	char own[PATH_MAX];
	const char *given = getenv("HB_BENCH_DIR");
	bool found = given && snprintf(path, PATH_MAX, "%s/torch_work.py", given) < PATH_MAX && access(path, R_OK) == 0;
	for (size_t i = 0; !found && i < sizeof folders / sizeof *folders && hb_path_own_folder(own) == 0; i++)
		found = snprintf(path, PATH_MAX, "%s/%s/torch_work.py", own, folders[i]) < PATH_MAX &&
			access(path, R_OK) == 0;
	return found ? 0
		     : hb_error_set(error, -ENOENT, "torch_work.py is not found; set HB_BENCH_DIR to bench/workloads");
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
	char socket[HB_PATH_MAX];
	int result = need_daemon(stage, sharing->policy, error);
	if (result)
		return result;
	daemon_socket(stage, sharing->policy, socket);
	bool whole = hb_bench_command_add(command, "/proc/self/exe") && hb_bench_command_split(command, "run") &&
		     (!stage->simulated || hb_bench_command_split(command, "--gpu sim")) &&
		     hb_bench_command_split(command, high ? "--priority high" : "--priority low") &&
		     hb_bench_command_split(command, high ? "" : sharing->options) &&
		     hb_bench_command_add(command, "--") && hb_bench_command_set(command, "HB_SOCKET", socket);
	return whole ? 0 : out_of_words(error);
}

/* In front of the program, and around it. */
static int add_place(struct hb_bench_stage *stage, struct hb_bench_command *command, bool high,
		     const struct hb_bench_sharing *sharing, struct hb_error *error)
{
	enum hb_bench_place place = high ? sharing->high : sharing->low;
	char limit[16];
	if (place == HB_BENCH_HB)
		return add_hb_run(stage, command, high, sharing, error);
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
		[HB_BENCH_HB] = "hb run",
	};
	enum hb_bench_place place = high ? sharing->high : sharing->low;
	if (place == HB_BENCH_HB)
		snprintf(name, 64, "hb run, %.16s%s%.24s", sharing->policy, !high && *sharing->options ? " " : "",
			 high ? "" : sharing->options);
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
