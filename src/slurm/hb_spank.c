/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb_spank.so: a plugin of Slurm that makes job steps tenants (docs/slurm.md). In slurmstepd, as root, it asks slurmctld for
 * the job's partition and QOS, which the user cannot forge, and runs `hb register` for the step; the tenant exists as long as
 * slurmstepd. The output of `hb register` becomes the environment of the step's tasks. If that fails, the plugin refuses the
 * task, not the node: an error before the tasks start would drain the node.
 *
 * The plugin uses only Slurm's headers and libc, so a site can build it for its version of Slurm:
 *	gcc -std=gnu17 -O2 -shared -fPIC -o hb_spank.so hb_spank.c
 *
 * Arguments in plugstack.conf:
 *	high=PARTITION[,...]      jobs there may have high priority, and have it unless they request low
 *	low=PARTITION[,...]       jobs there have low priority
 *	high_qos=, low_qos=       the same for QOS; a QOS decides before a partition
 *	hb=PATH                   the program hb (default: /usr/bin/hb)
 *	socket=PATH               the daemon's socket (default: the system's daemon)
 *	gpu=sim                   simulated GPUs; HB_SIM_GPU of slurmd's environment names the node's
 *	mps                       programs of low priority run in the MPS server
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(hb_spank, 1)

#define LIMIT_MS 25000 /* `hb register` waits at most 22 s for the MPS server */
#define TEXT_MAX 8192

struct settings {
	const char *high, *low, *high_qos, *low_qos; /* lists, separated by commas; NULL = empty */
	const char *hb, *socket;
	bool simulated, in_mps;
};

/* Values of the options of srun, sbatch and salloc; "" = not given. */
static char priority_option[8], slo_option[32], memory_option[32];
static char failure[512];         /* why the step must not start; "" = it may */
static char registered[TEXT_MAX]; /* what `hb register` printed; "" = the step is no tenant */

/* --- options ---------------------------------------------------------------------------------- */

static int take_priority(int val, const char *value, int remote)
{
	if (!value || (strcmp(value, "high") != 0 && strcmp(value, "low") != 0)) {
		slurm_error("--hb-priority: '%s' is neither high nor low", value ? value : "");
		return -1;
	}
	snprintf(priority_option, sizeof priority_option, "%s", value);
	return 0;
}

/* Checks only that the text may be an argument of hb, which explains what is wrong with it when the step starts. */
static int take_word(const char *option, const char *value, char *text, size_t size)
{
	size_t length = value ? strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.<=") : 0;
	if (!length || value[length] || length >= size) {
		slurm_error("%s: '%s' is not a value such as 10ms or 40GiB", option, value ? value : "");
		return -1;
	}
	memcpy(text, value, length + 1);
	return 0;
}

static int take_slo(int val, const char *value, int remote)
{
	return take_word("--hb-slo", value, slo_option, sizeof slo_option);
}

static int take_memory(int val, const char *value, int remote)
{
	return take_word("--hb-memory", value, memory_option, sizeof memory_option);
}

static struct spank_option options[] = {
	{(char *)"hb-priority", (char *)"high|low",
	 (char *)"GPU priority; partition or QOS decides which is allowed (Hummingbird)", 1, 0, take_priority},
	{(char *)"hb-slo", (char *)"OBJECTIVE", (char *)"latency objective of high priority, e.g. 10ms (Hummingbird)",
	 1, 0, take_slo},
	{(char *)"hb-memory", (char *)"SIZE", (char *)"most memory on each GPU, e.g. 40GiB (Hummingbird)", 1, 0,
	 take_memory},
};

/* Returns the rest of `text` after `name`, or NULL. */
static const char *value_after(const char *text, const char *name)
{
	size_t length = strlen(name);
	return strncmp(text, name, length) == 0 ? text + length : NULL;
}

static int read_settings(struct settings *settings, int argc, char **argv)
{
	const struct {
		const char *name;
		const char **value;
	} texts[] = {{"high=", &settings->high},       {"low=", &settings->low}, {"high_qos=", &settings->high_qos},
		     {"low_qos=", &settings->low_qos}, {"hb=", &settings->hb},   {"socket=", &settings->socket}};
	*settings = (struct settings){.hb = "/usr/bin/hb"};
	for (int i = 0; i < argc; i++) {
		bool known = false;
		for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
			const char *value = value_after(argv[i], texts[k].name);
			if (value)
				*texts[k].value = value;
			known |= value != NULL;
		}
		settings->simulated |= strcmp(argv[i], "gpu=sim") == 0;
		settings->in_mps |= strcmp(argv[i], "mps") == 0;
		if (known || strcmp(argv[i], "gpu=sim") == 0 || strcmp(argv[i], "mps") == 0)
			continue;
		snprintf(failure, sizeof failure, "plugstack.conf: '%s' is no argument of hb_spank.so", argv[i]);
		return -1;
	}
	return 0;
}

/* --- which priority --------------------------------------------------------------------------- */

static bool is_listed(const char *list, const char *name)
{
	size_t length = name ? strlen(name) : 0;
	while (list && *list && length) {
		size_t item = strcspn(list, ",");
		if (item == length && strncmp(list, name, length) == 0)
			return true;
		list += item + (list[item] == ',');
	}
	return false;
}

/*
 * The priority that partition and QOS give. Returns "high", "low" or NULL: neither is listed. The first partition of a list
 * counts: a job that runs has only one.
 */
static const char *given_priority(const struct settings *settings, const char *partition, const char *qos)
{
	if (is_listed(settings->high_qos, qos))
		return "high";
	if (is_listed(settings->low_qos, qos))
		return "low";
	if (is_listed(settings->high, partition))
		return "high";
	return is_listed(settings->low, partition) ? "low" : NULL;
}

typedef int load_by_number(job_info_msg_t **, uint32_t, uint16_t);
typedef int load_by_step(job_info_msg_t **, slurm_step_id_t, uint16_t);

/* Newer releases of Slurm changed the type of the second argument. */
static int load_job(job_info_msg_t **message, uint32_t job_id)
{
	void *load = (void *)slurm_load_job;
	if (__builtin_types_compatible_p(__typeof__(slurm_load_job), load_by_number))
		return ((load_by_number *)load)(message, job_id, SHOW_ALL);
	return ((load_by_step *)load)(
		message, (slurm_step_id_t){.job_id = job_id, .step_id = NO_VAL, .step_het_comp = NO_VAL}, SHOW_ALL);
}

/* Sets *priority: "high", "low", or NULL = the step is no tenant. Returns -1 with `failure`. */
static int choose_priority(const struct settings *settings, uint32_t job_id, const char **priority)
{
	job_info_msg_t *message = NULL;
	bool asks = settings->high || settings->low || settings->high_qos || settings->low_qos;
	*priority = *priority_option ? priority_option : NULL;
	if (!asks && strcmp(priority_option, "high") != 0)
		return 0;
	if (asks && (load_job(&message, job_id) != SLURM_SUCCESS || message->record_count < 1)) {
		snprintf(failure, sizeof failure, "slurmctld does not tell partition and QOS of job %u: %s", job_id,
			 slurm_strerror(errno));
		return -1;
	}
	const char *partition = message ? message->job_array[0].partition : NULL;
	const char *qos = message ? message->job_array[0].qos : NULL;
	const char *given = given_priority(settings, partition, qos);
	if (strcmp(priority_option, "high") == 0 && (!given || strcmp(given, "high") != 0))
		snprintf(
			failure, sizeof failure,
			"--hb-priority=high is not allowed in partition '%s' with QOS '%s'; plugstack.conf lists where it is",
			partition ? partition : "", qos ? qos : "");
	else if (!*priority_option)
		*priority = given;
	if (message)
		slurm_free_job_info_msg(message);
	return *failure ? -1 : 0;
}

/* --- hb register ------------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Reads both pipes until they close. False: it took too long. */
static bool read_pipes(int out, int err, char *printed, char *said)
{
	struct pollfd pipes[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
	char *texts[2] = {printed, said}, rest[512];
	size_t used[2] = {0, 0}, sizes[2] = {TEXT_MAX - 1, sizeof failure - 1};
	int64_t until_ms = now_ms() + LIMIT_MS;
	while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
		int64_t left_ms = until_ms - now_ms();
		if (left_ms <= 0 || (poll(pipes, 2, (int)left_ms) < 0 && errno != EINTR))
			return false;
		for (int i = 0; i < 2; i++) {
			if (pipes[i].fd < 0 || !pipes[i].revents)
				continue;
			bool full = used[i] == sizes[i];
			ssize_t n = read(pipes[i].fd, full ? rest : texts[i] + used[i],
					 full ? sizeof rest : sizes[i] - used[i]);
			if (n > 0 && !full)
				used[i] += (size_t)n;
			else if (n == 0 || (n < 0 && errno != EINTR))
				pipes[i].fd = -1;
		}
	}
	printed[used[0]] = said[used[1]] = '\0';
	return true;
}

/* Starts the program with clean variables: the job's own, such as LD_LIBRARY_PATH, must not reach a program of root. */
static pid_t start_program(char **argv, const struct settings *settings, int out, int err)
{
	char socket_variable[160] = "";
	char *environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", (char *)"HB_START_DAEMON=0", NULL, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t child = -1;
	if (settings->socket && snprintf(socket_variable, sizeof socket_variable, "HB_SOCKET=%s", settings->socket) <
					(int)sizeof socket_variable)
		environment[2] = socket_variable;
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, err, 2);
	int result = posix_spawn(&child, argv[0], &actions, &attributes, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	errno = result;
	return result ? -1 : child;
}

static void set_failure(const char *hb, const char *said)
{
	size_t length = strlen(said);
	while (length && isspace((unsigned char)said[length - 1]))
		length--;
	snprintf(failure, sizeof failure, "%s register: %.*s", hb, length ? (int)length : 13,
		 length ? said : "it has failed");
}

/* Runs the program; `registered` gets what it prints, or `failure` why it failed. */
static int run_program(char **argv, const struct settings *settings)
{
	int out[2], err[2], status = 0;
	char said[sizeof failure] = "";
	if (pipe2(out, O_CLOEXEC) < 0)
		return snprintf(failure, sizeof failure, "no pipe: %s", strerror(errno)), -1;
	if (pipe2(err, O_CLOEXEC) < 0) {
		close(out[0]);
		close(out[1]);
		return snprintf(failure, sizeof failure, "no pipe: %s", strerror(errno)), -1;
	}
	pid_t child = start_program(argv, settings, out[1], err[1]);
	int why = errno;
	close(out[1]);
	close(err[1]);
	bool ended = child > 0 && read_pipes(out[0], err[0], registered, said);
	close(out[0]);
	close(err[0]);
	if (child > 0 && !ended)
		kill(child, SIGKILL);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (child > 0 && ended && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	registered[0] = '\0';
	set_failure(settings->hb, child < 0 ? strerror(why) : ended ? said : "no answer within 25 s");
	return -1;
}

static void register_step(spank_t spank, const struct settings *settings, const char *priority)
{
	uid_t uid = 0;
	uint32_t job_id = 0, step_id = 0;
	char user[16], process[16], name[320], *argv[24], **command = NULL;
	int n = 0, words = 0;
	spank_get_item(spank, S_JOB_UID, &uid);
	spank_get_item(spank, S_JOB_ID, &job_id);
	spank_get_item(spank, S_JOB_STEPID, &step_id);
	spank_get_item(spank, S_JOB_ARGV, &words, &command);
	snprintf(user, sizeof user, "%u", (unsigned)uid);
	snprintf(process, sizeof process, "%d", (int)getpid());
	const char *program = words > 0 && command ? command[0] : "";
	if (step_id < SLURM_INTERACTIVE_STEP)
		snprintf(name, sizeof name, "slurm %u.%u %.200s", job_id, step_id, program);
	else
		snprintf(name, sizeof name, "slurm %u.%s", job_id,
			 step_id == SLURM_BATCH_SCRIPT ? "batch" : "interactive");
	const char *fixed[] = {settings->hb, "register", "--require",  "--user", user,
			       "--process",  process,    "--priority", priority};
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		argv[n++] = (char *)fixed[i];
	const char *optional[][2] = {{"--slo", slo_option}, {"--memory", memory_option}};
	for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
		if (*optional[i][1]) {
			argv[n++] = (char *)optional[i][0];
			argv[n++] = (char *)optional[i][1];
		}
	if (settings->simulated) {
		argv[n++] = (char *)"--gpu";
		argv[n++] = (char *)"sim";
	}
	if (settings->in_mps && strcmp(priority, "low") == 0)
		argv[n++] = (char *)"--mps";
	argv[n++] = (char *)"--";
	argv[n++] = name;
	argv[n] = NULL;
	run_program(argv, settings);
}

/* --- what Slurm calls --------------------------------------------------------------------------- */

static bool is_remote(spank_t spank)
{
	return spank_context() == S_CTX_REMOTE;
}

/* A table `spank_options` would offer the options to srun, but not to sbatch and salloc. */
int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
		if (spank_context() != S_CTX_SLURMD && spank_context() != S_CTX_JOB_SCRIPT &&
		    spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			slurm_error("Hummingbird: cannot register option --%s", options[i].name);
	return 0;
}

/* As root in slurmstepd, before it takes the user's rights. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	struct settings settings;
	uint32_t job_id = 0, step_id = 0;
	const char *priority = NULL;
	if (!is_remote(spank) || spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS || step_id == SLURM_EXTERN_CONT)
		return 0;
	if (read_settings(&settings, argc, argv) == 0 && choose_priority(&settings, job_id, &priority) == 0 && priority)
		register_step(spank, &settings, priority);
	return 0;
}

/* Lists begin with the new item; the job's own follow. */
static void set_variable(spank_t spank, const char *name, const char *value)
{
	char old[TEXT_MAX / 2], text[TEXT_MAX];
	bool is_list = strcmp(name, "LD_LIBRARY_PATH") == 0 || strcmp(name, "LD_PRELOAD") == 0;
	bool extends = is_list && spank_getenv(spank, name, old, sizeof old) == ESPANK_SUCCESS && *old;
	snprintf(text, sizeof text, "%.4000s%s%s", value, extends ? ":" : "", extends ? old : "");
	spank_setenv(spank, name, text, 1);
}

static void apply_line(spank_t spank, char *line)
{
	const char *removed = value_after(line, "unset ");
	char *set = (char *)value_after(line, "export "), *value = set ? strchr(set, '=') : NULL;
	if (removed)
		spank_unsetenv(spank, removed);
	if (!value)
		return;
	*value = '\0';
	set_variable(spank, set, value + 1);
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	char *rest = registered, *line;
	if (!is_remote(spank))
		return 0;
	/* With gpu=sim: the simulated GPU of this slurmd, not one of the user. */
	const char *simulated_gpu = *registered ? getenv("HB_SIM_GPU") : NULL;
	if (simulated_gpu)
		spank_setenv(spank, "HB_SIM_GPU", simulated_gpu, 1);
	while ((line = strsep(&rest, "\n")))
		apply_line(spank, line);
	return 0;
}

/* In the task, so that the message reaches the user and only this task fails. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	if (!is_remote(spank) || !*failure)
		return 0;
	slurm_error("Hummingbird: %s", failure);
	return -1;
}
