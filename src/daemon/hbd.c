/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbd: reads the command line, chooses the folder, goes to the background and
 * runs the daemon. Started by `hb run`, by systemd or by a user.
 */
#include "base/hb-version.h"
#include "base/http_address.h"
#include "base/log.h"
#include "base/newer_calls.h"
#include "daemon/daemon_loop.h"
#include "daemon/end_processes.h"
#include "daemon/helper.h"
#include "daemon/log_writer.h"
#include "daemon/privileges.h"
#include "daemon/process.h"
#include "daemon/service_notify.h"
#include "daemon/user_places.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] = "usage: hbd [OPTION...]\n"
			    "\n"
			    "  --foreground        stay in the foreground, log to standard error\n"
			    "  --system            serve all users of group hummingbird from /run/hummingbird\n"
			    "  --socket PATH       serve this socket\n"
			    "  --config FILE       read this configuration\n"
			    "  --check-config      read the configuration, report errors in it, and exit\n"
			    "  --metrics ADDRESS   serve metrics and a live page over HTTP, e.g. 127.0.0.1:9464\n"
			    "  --gpu sim           serve programs that run on simulated GPUs\n"
			    "  --help, --version\n"
			    "\n"
			    "exit status: 0 done, 1 failed, 2 bad command line or configuration\n";

enum daemon_option_code {
	OPTION_FOREGROUND = 256,
	OPTION_SYSTEM,
	OPTION_SOCKET,
	OPTION_CONFIG,
	OPTION_CHECK,
	OPTION_GPU,
	OPTION_METRICS
};

struct command_line {
	struct hb_daemon_options options;
	bool foreground, check_config;
};

static int fail_with(int code, const char *text)
{
	fprintf(stderr, "hbd: %s\n", text);
	return code;
}

static int take_metrics(struct command_line *line, const char *value)
{
	struct sockaddr_storage address;
	struct hb_error error, full;
	if (strlen(value) >= sizeof line->options.metrics)
		return fail_with(2, "--metrics: the address is too long");
	if (hb_http_address_parse(value, &address, &error) < 0) {
		hb_error_set(&full, -EINVAL, "--metrics: %s", error.text);
		return fail_with(2, full.text);
	}
	strcpy(line->options.metrics, value);
	return -1;
}

static int take_option(struct command_line *line, int code, const char *value)
{
	switch (code) {
	case OPTION_FOREGROUND:
		line->foreground = true;
		return -1;
	case OPTION_SYSTEM:
		line->options.system_mode = true;
		return -1;
	case OPTION_CHECK:
		line->check_config = true;
		return -1;
	case OPTION_GPU:
		if (strcmp(value, "sim") != 0)
			return fail_with(2, "--gpu: the only value is `sim`");
		line->options.simulated = true;
		return -1;
	case OPTION_SOCKET:
		if (value[0] != '/' || strlen(value) >= sizeof line->options.socket)
			return fail_with(2, "--socket: the path must be absolute and at most 107 bytes long");
		strcpy(line->options.socket, value);
		return -1;
	case OPTION_CONFIG:
		if (strlen(value) >= sizeof line->options.config_path)
			return fail_with(2, "--config: the path is too long");
		strcpy(line->options.config_path, value);
		line->options.config_required = true;
		return -1;
	case OPTION_METRICS:
		return take_metrics(line, value);
	case 'h':
		fputs(usage, stdout);
		return 0;
	case 'V':
		printf("hbd %s\n", HB_VERSION);
		return 0;
	default:
		fputs("'hbd --help' explains the options\n", stderr);
		return 2;
	}
}

/* Returns -1 to continue, else the exit status. */
static int read_command_line(int argc, char **argv, struct command_line *line)
{
	static const struct option options[] = {
		{"foreground", no_argument, NULL, OPTION_FOREGROUND},
		{"system", no_argument, NULL, OPTION_SYSTEM},
		{"socket", required_argument, NULL, OPTION_SOCKET},
		{"config", required_argument, NULL, OPTION_CONFIG},
		{"check-config", no_argument, NULL, OPTION_CHECK},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"metrics", required_argument, NULL, OPTION_METRICS},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int code;
	while ((code = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
		int status = take_option(line, code, optarg);
		if (status >= 0)
			return status;
	}
	if (optind < argc)
		return fail_with(2, "hbd takes options only, no other arguments");
	return -1;
}

/* All files of the daemon are in the folder of its socket. */
static int choose_paths(struct hb_daemon_options *options, struct hb_error *error)
{
	const char *name = options->simulated ? "/" HB_SOCKET_NAME_SIMULATED : "/" HB_SOCKET_NAME;
	if (options->socket[0]) {
		strcpy(options->dir, options->socket);
		*strrchr(options->dir, '/') = '\0';
		return 0;
	}
	if (options->system_mode) {
		strcpy(options->dir, HB_SYSTEM_DIR);
		if (mkdir(options->dir, 0755) < 0 && errno != EEXIST)
			return hb_error_set(error, -errno, "%s: %s", options->dir, strerror(errno));
	} else {
		int result = hb_runtime_dir(options->dir, error);
		if (result < 0)
			return result;
	}
	strcpy(options->socket, options->dir);
	strcat(options->socket, name);
	return 0;
}

/* Without pidfds the daemon cannot know which process a pid names. */
static int check_kernel(struct hb_error *error)
{
	int self = hb_process_open(getpid());
	if (self == -ENOSYS)
		return hb_error_set(error, self,
				    "this kernel has no pidfd_open(): Hummingbird needs Linux 5.3 or newer");
	if (self >= 0)
		close(self);
	return 0;
}

/*
 * Goes to the background. The parent ends once the child serves its socket, so
 * that the program that started the daemon can connect at once. The child writes
 * one NUL byte, or a text that says why it failed.
 */
static int detach_from_terminal(int *ready)
{
	int ends[2];
	char text[512];
	/* Closes the descriptors of the program that started the daemon: its pipes and locks would otherwise stay open. */
	hb_close_range(STDERR_FILENO + 1, UINT_MAX);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return fail_with(1, strerror(errno));
	pid_t child = fork();
	if (child < 0)
		return fail_with(1, strerror(errno));
	if (child == 0) {
		close(ends[0]);
		setsid();
		*ready = ends[1];
		return -1;
	}
	close(ends[1]);
	ssize_t n = read(ends[0], text, sizeof text - 1);
	if (n == 1 && text[0] == '\0')
		return 0;
	text[n > 0 ? n : 0] = '\0';
	return fail_with(1, n > 0 ? text : "the daemon ended before it served its socket");
}

/* Opens a log that only this user can read. If other users can write to the folder, their files are left alone. */
static int open_log(const char *dir)
{
	char path[HB_PATH_MAX + 16];
	struct stat found;
	snprintf(path, sizeof path, "%s/hbd.log", dir);
	int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	int result = log < 0 || fstat(log, &found) < 0 ? -errno : 0;
	if (result == 0 && (!S_ISREG(found.st_mode) || found.st_uid != geteuid() || found.st_nlink != 1))
		result = -EPERM;
	if (result == 0 && fchmod(log, 0600) < 0)
		result = -errno;
	if (result == 0)
		return log;
	/* If the folder does not exist, opening the socket reports that. */
	if (lstat(path, &found) == 0)
		hb_log_warning("%s: cannot be used as the log, so nothing is logged: %s", path,
			       result == -EPERM ? "it belongs to another user, or is a link; remove it"
						: strerror(-result));
	if (log >= 0)
		close(log);
	return -1;
}

/* A daemon in the background has no terminal: it logs to a file beside its socket. */
static void log_to_file(struct hb_daemon_options *options)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), log = open_log(options->dir);
	options->has_log = log >= 0;
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
	}
	if (log >= 0 || null >= 0)
		dup2(log >= 0 ? log : null, STDERR_FILENO);
	if (log >= 0)
		close(log);
	if (null >= 0)
		close(null);
	if (chdir("/") < 0)
		hb_log_warning("cannot leave the working folder");
}

/* If descriptor 0, 1 or 2 were closed, the next opened file would get it, and messages would be written to that file. */
static void open_standard_fds(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Many systems allow only 1024 descriptors at first. */
static void raise_descriptors(void)
{
	struct rlimit limit;
	const rlim_t wanted = HB_DESCRIPTORS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* The C library loads the sources of user names with the first lookup, and crashes if memory runs out just then. */
static void load_user_names(void)
{
	struct passwd entry, *found;
	char buffer[4096];
	getpwuid_r(0, &entry, buffer, sizeof buffer, &found);
}

/*
 * Starts the helper process that keeps the rights of root. This process gives them up in hb_daemon_run(). Returns false if
 * the daemon keeps its rights.
 */
static bool start_helper(const struct hb_daemon_options *options, struct hb_helper *helper)
{
	const char *why;
	if (!options->system_mode)
		return false;
	if (hb_privileges_check(&why) < 0) {
		hb_log_warning("the daemon keeps the rights of the user that started it: %s", why);
		return false;
	}
	int result = hb_helper_start(options, helper);
	if (result < 0)
		hb_log_warning("the daemon keeps the rights of root: its helper process cannot be started: %s",
			       strerror(-result));
	return result == 0;
}

int main(int argc, char **argv)
{
	struct hb_helper helper;
	struct command_line line = {.options = {.socket = ""}};
	struct hb_error error = {""};
	hb_log_name_set("hbd");
	/* A core's tables are large and mostly unused: malloc() maps them, so unused pages cost nothing and freed ones return. */
	mallopt(M_MMAP_THRESHOLD, 1 << 18);
	open_standard_fds();
	/* Programs that the daemon starts must not inherit descriptors of the program that started the daemon. */
	hb_close_range_at_exec(STDERR_FILENO + 1, UINT_MAX);
	if (argc == 2 && strcmp(argv[1], HB_END_PROCESSES_OPTION) == 0)
		return hb_end_processes_main();
	hb_service_init();
	int status = read_command_line(argc, argv, &line);
	if (status >= 0)
		return status;
	struct hb_daemon_options *options = &line.options;
	/* Overrides the inherited umask: users must reach the folder and the MPS server's pipes. */
	if (options->system_mode)
		umask(022);
	if (!options->config_path[0])
		hb_daemon_config_path(options->system_mode, options->config_path, sizeof options->config_path);
	if (line.check_config) {
		struct hb_daemon_config config;
		hb_daemon_config_init(&config);
		int result = hb_daemon_config_load(options->config_path, &config, &error);
		bool none = result == -ENOENT && !options->config_required;
		return result < 0 && !none ? fail_with(2, error.text) : 0;
	}
	if (check_kernel(&error) < 0 || choose_paths(options, &error) < 0)
		return fail_with(1, error.text);
	options->ready_fd = -1;
	if (!line.foreground && (status = detach_from_terminal(&options->ready_fd)) >= 0)
		return status;
	signal(SIGPIPE, SIG_IGN);
	raise_descriptors();
	load_user_names();
	if (options->ready_fd >= 0)
		log_to_file(options);
	if (start_helper(options, &helper)) {
		options->helper = &helper;
		status = hb_privileges_limit();
		if (status < 0)
			return fail_with(1, strerror(-status));
	}
	int started = hb_log_writer_start();
	if (started < 0)
		hb_log_warning("the log has no thread of its own: %s", strerror(-started));
	int result = hb_daemon_run(options, &error);
	hb_log_writer_stop();
	if (result == 0)
		return 0;
	if (options->ready_fd >= 0 && write(options->ready_fd, error.text, strlen(error.text)) > 0)
		return 1;
	return fail_with(result == -EINVAL ? 2 : 1, error.text);
}
