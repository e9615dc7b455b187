/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-supervisor, the program that `hb run` becomes when a low-priority command runs
 * inside the MPS server. It starts the command as its child and behaves towards
 * the outside as if it were the command: it passes signals on, stops and continues
 * with it, and ends as it ended. A process that is killed while it has GPU work may
 * take the other clients of the server with it. So before a signal that would kill
 * processes of the tenant, the supervisor lets the daemon end their GPU work
 * (TERMINATE). The daemon does the same if the supervisor itself is killed.
 *
 * A program of its own, because it stays in memory as long as the command runs: it
 * needs libc only. Its environment is that of the command.
 */
#include "base/clock.h"
#include "base/newer_calls.h"
#include "base/signal_action.h"
#include "cli/run_execute.h"
#include "cli/run_terminal.h"
#include "protocol/daemon_client.h"
#include "protocol/socket_path.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Limits of what the daemon may delay: a daemon that lives answers within milliseconds. */
#define GREETING_LIMIT_MS 2000  /* a daemon that looks up the user's name answers after 1 s at most */
#define TERMINATE_TOTAL_MS 5500 /* the daemon's own limit is HB_TERMINATE_LIMIT_MS */
#define BYE_LIMIT_MS 3000

#define LOOK_FOR_DAEMON_EVERY_S 2  /* costs one stat() */
#define TAKE_TERMINAL_AFTER_MS 200 /* by then the command has begun to read */
#define TRY_READING_AGAIN_MS 200

struct supervised {
	pid_t pid; /* also the command's process group */
	struct hb_tenant_options options;
	char socket[HB_PATH_MAX];
	struct hb_run_terminal terminal;
	struct hb_membership member; /* has only the tenant's page, for the next daemon */
	uint64_t daemon;             /* socket_file() of the daemon that knows this supervisor; 0 = none */
	char words[256];             /* the command, for `hb status` */
	int passed_on;               /* the last deadly signal that was passed on; 0 = none */
	int killed_by;               /* the first signal that had to kill the command when it was passed on; 0 = none */
	bool stop_is_ours;           /* the supervisor's own group got the signal that stops the command */
};

/* --- the daemon -------------------------------------------------------------------------- */

static int left_until_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - hb_clock_now_ns();
	return left_ns > 0 ? (int)(left_ns / HB_NS_PER_MS) : 0;
}

/* Ends the GPU work of the processes that this signal would kill. Without an answer of the daemon the signal is sent anyway. */
static void end_gpu_work(const struct supervised *command, int signal)
{
	struct hb_error error;
	int64_t until_ns = hb_clock_now_ns() + TERMINATE_TOTAL_MS * HB_NS_PER_MS;
	int socket = hb_client_open(command->socket, GREETING_LIMIT_MS, &error);
	if (socket < 0)
		return;
	hb_client_limit(socket, left_until_ms(until_ns));
	hb_client_terminate(socket, command->options.token, signal, &error);
	close(socket);
}

/* The tenant is no longer supervised: processes that the command leaves may run on. Prints what the daemon knows of a fault. */
static void say_bye(const struct supervised *command, bool failed)
{
	struct hb_error error;
	char said[512] = "";
	int socket = hb_client_open(command->socket, BYE_LIMIT_MS, &error);
	if (socket < 0)
		return;
	hb_client_bye_supervisor(socket, command->options.token, said, sizeof said, &error);
	close(socket);
	if (failed && said[0])
		fprintf(stderr, "hb run: %s\n", said);
}

/* Differs for each daemon, as each makes the socket anew. The number of a file may be used again, its time may not. */
static uint64_t socket_file(const struct supervised *command)
{
	struct stat found;
	if (stat(command->socket, &found) < 0)
		return 0;
	return (uint64_t)found.st_ctim.tv_sec * HB_NS_PER_S + (uint64_t)found.st_ctim.tv_nsec + found.st_ino;
}

/*
 * A daemon that was restarted does not know the supervisor, which registers again, with the tenant's page, as the
 * processes of the tenant do. Without an answer the next look tries again.
 */
static void look_for_new_daemon(struct supervised *command)
{
	struct hb_error error;
	uint64_t file = socket_file(command);
	if (!file || file == command->daemon || command->member.page_fd < 0)
		return;
	int socket = hb_client_open(command->socket, GREETING_LIMIT_MS, &error);
	if (socket < 0)
		return;
	struct hb_membership joined = command->member;
	int copy = joined.page_fd = fcntl(command->member.page_fd, F_DUPFD_CLOEXEC, 3);
	struct hb_tenant_options options = command->options;
	options.flags |= HB_REGISTER_CREATE | HB_REGISTER_SUPERVISED;
	options.command = command->words;
	int result = hb_client_register(socket, &options, &joined, NULL, 0, &error);
	close(socket);
	if (result == 0) {
		hb_membership_fini(&joined); /* the mappings, and a descriptor that came with them */
		command->daemon = file;
	}
	close(copy);
}

/* --- signals ----------------------------------------------------------------------------- */

static void send_signal(const struct supervised *command, const siginfo_t *info)
{
	/* The kernel's own signals come from the terminal, and are for the whole group of a job. */
	if (info->si_code == SI_KERNEL)
		kill(-command->pid, info->si_signo);
	else if (info->si_code == SI_QUEUE)
		sigqueue(command->pid, info->si_signo, info->si_value);
	else
		kill(command->pid, info->si_signo);
}

static void pass_on(struct supervised *command, const siginfo_t *info)
{
	if (hb_signal_is_deadly(info->si_signo)) {
		if (!command->killed_by && hb_signal_kills(command->pid, info->si_signo))
			command->killed_by = info->si_signo;
		end_gpu_work(command, info->si_signo);
		command->passed_on = info->si_signo;
	}
	send_signal(command, info);
}

/* Returns whether the process was stopped: not if its group has no shell that could continue it. */
static bool stop_myself(int signal)
{
	sigset_t one, none;
	const struct timespec now = {0};
	sigemptyset(&one);
	sigaddset(&one, signal);
	raise(signal);
	sigprocmask(SIG_UNBLOCK, &one, NULL); /* stops here, until SIGCONT */
	sigprocmask(SIG_BLOCK, &one, NULL);
	sigemptyset(&none);
	sigaddset(&none, SIGCONT);
	return sigtimedwait(&none, NULL, &now) == SIGCONT;
}

static void continue_command(struct supervised *command, bool with_terminal)
{
	if (with_terminal)
		hb_run_terminal_give(&command->terminal);
	kill(-command->pid, SIGCONT);
}

/* The command has stopped. */
static void stop_with_command(struct supervised *command, int signal)
{
	bool had_terminal = command->terminal.given;
	bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
	if (signal == SIGSTOP) /* the signal was for this process only */
		return;
	if (wants_terminal && hb_run_terminal_give(&command->terminal)) {
		kill(-command->pid, SIGCONT);
		return;
	}
	command->terminal.given = false;
	/* The other processes of the job stop, too, as they would if the command were one of them. */
	if (!command->stop_is_ours)
		kill(0, signal);
	command->stop_is_ours = false;
	if (!stop_myself(signal) && wants_terminal) {
		const struct timespec pause = {.tv_nsec = TRY_READING_AGAIN_MS * HB_NS_PER_MS};
		nanosleep(&pause, NULL);
	}
	continue_command(command, had_terminal || wants_terminal);
}

static void handle_signal(struct supervised *command, const siginfo_t *info)
{
	switch (info->si_signo) {
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		command->stop_is_ours = true;
		kill(-command->pid, info->si_signo);
		break;
	case SIGCONT:
		command->stop_is_ours = false;
		continue_command(command, command->terminal.given);
		break;
	default:
		pass_on(command, info);
	}
}

/* --- the end of the command ------------------------------------------------------------------ */

/* Whether a child (`id` of this type) is in such a state. It stays in that state for a later call. */
static pid_t find_child(idtype_t type, pid_t id, int states)
{
	siginfo_t child = {.si_pid = 0};
	return waitid(type, (id_t)id, &child, states | WNOHANG | WNOWAIT) < 0 ? 0 : child.si_pid;
}

/*
 * Handles children that have ended or stopped. True: the command has ended, and is still a zombie, so that no other process
 * can get its process group. As process 1 of a container the supervisor also gets children of others.
 */
static bool look_at_children(struct supervised *command)
{
	for (;;) {
		siginfo_t stopped = {.si_pid = 0};
		if (find_child(P_PID, command->pid, WEXITED))
			return true;
		waitid(P_PID, (id_t)command->pid, &stopped, WSTOPPED | WNOHANG);
		if (stopped.si_pid && stopped.si_code == CLD_STOPPED)
			stop_with_command(command, stopped.si_status);
		pid_t other = find_child(P_ALL, 0, WEXITED);
		if (other && other != command->pid)
			waitpid(other, NULL, 0);
		if (!other && !stopped.si_pid)
			return false;
	}
}

static int collect_status(const struct supervised *command)
{
	int status = 0;
	siginfo_t ended = {.si_pid = 0};
	waitid(P_PID, (id_t)command->pid, &ended, WEXITED | WNOWAIT);
	/* A signal to a job is for all its processes; the kernel does not say whether it was sent to one process or a group. */
	if (ended.si_code != CLD_EXITED && ended.si_status == command->passed_on)
		kill(-command->pid, command->passed_on);
	while (waitpid(command->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Ends by the signal that ended the command, without a core dump of its own. */
static void die_by(int signal)
{
	sigset_t one;
	const struct rlimit no_core = {0, 0};
	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_DUMPABLE, 0);
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigaction(signal, &action, NULL);
	raise(signal);
	sigemptyset(&one);
	sigaddset(&one, signal);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	_exit(128 + signal); /* process 1 of a container ignores such signals */
}

static int end_as(struct supervised *command, int status)
{
	hb_run_terminal_take(&command->terminal, false);
	say_bye(command, !command->killed_by && status != 0);
	/* Its GPU work ends a moment before the signal is sent: it may have noticed that, and have ended by itself. */
	if (command->killed_by && WIFEXITED(status))
		die_by(command->killed_by);
	if (WIFSIGNALED(status))
		die_by(WTERMSIG(status));
	return WEXITSTATUS(status);
}

static int supervise(struct supervised *command)
{
	sigset_t all;
	const struct timespec take_after = {.tv_nsec = TAKE_TERMINAL_AFTER_MS * HB_NS_PER_MS};
	const struct timespec look_after = {.tv_sec = LOOK_FOR_DAEMON_EVERY_S};
	int64_t looked_ns = hb_clock_now_ns();
	sigfillset(&all);
	for (;;) {
		siginfo_t info;
		int signal = sigtimedwait(&all, &info, command->terminal.given ? &take_after : &look_after);
		if (signal < 0 && errno == EAGAIN)
			hb_run_terminal_take(&command->terminal, true);
		else if (signal == SIGCHLD && look_at_children(command))
			return end_as(command, collect_status(command));
		else if (signal > 0 && signal != SIGCHLD)
			handle_signal(command, &info);
		/* By the clock, because frequent signals would keep the wait from ever timing out. */
		if (hb_clock_now_ns() - looked_ns >= LOOK_FOR_DAEMON_EVERY_S * HB_NS_PER_S) {
			look_for_new_daemon(command);
			looked_ns = hb_clock_now_ns();
		}
	}
}

/* --- the start of the command ---------------------------------------------------------------- */

/* systemd names the process for which descriptors and the watchdog are meant. */
static void rename_process(const char *variable, pid_t from)
{
	char text[16];
	const char *given = getenv(variable);
	snprintf(text, sizeof text, "%d", (int)from);
	if (!given || strcmp(given, text) != 0)
		return;
	snprintf(text, sizeof text, "%d", (int)getpid());
	setenv(variable, text, 1);
}

static void become_command(char **command, const sigset_t *mask, const struct sigaction *kept, const int *kept_signals,
			   size_t n_kept)
{
	pid_t supervisor = getppid();
	setpgid(0, 0);
	rename_process("LISTEN_PID", supervisor);
	rename_process("WATCHDOG_PID", supervisor);
	for (size_t i = 0; i < n_kept; i++)
		sigaction(kept_signals[i], &kept[i], NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	_exit(hb_run_execute(command));
}

/* The supervisor keeps nothing open that the command may want to close, but stderr, for the last message. */
static void let_go_of_files(const struct supervised *command)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
	}
	int page = command->member.page_fd;
	if (page > STDERR_FILENO + 1)
		hb_close_range(STDERR_FILENO + 1, (unsigned)page - 1);
	hb_close_range(page > STDERR_FILENO ? (unsigned)page + 1 : STDERR_FILENO + 1, UINT_MAX);
	if (command->socket[0] == '/' && chdir("/") < 0)
		return; /* then it keeps its folder busy */
}

static pid_t start_command(char **command)
{
	static const int changed[] = {SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU};
	enum { N_CHANGED = sizeof changed / sizeof changed[0] };
	struct sigaction kept[N_CHANGED], usual = {.sa_handler = SIG_DFL};
	sigset_t all, mask;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &mask);
	/* These may be ignored by inheritance. Others are blocked, and blocked signals are never lost. */
	for (size_t i = 0; i < N_CHANGED; i++)
		sigaction(changed[i], &usual, &kept[i]);
	pid_t child = fork();
	if (child == 0)
		become_command(command, &mask, kept, changed, N_CHANGED);
	if (child > 0)
		setpgid(child, child); /* so does the child: one of the two is first */
	return child;
}

/* hb handed over a descriptor of the tenant's page, which the command must not inherit. */
static void keep_page(struct supervised *command, const char *fd)
{
	struct stat found;
	command->member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	int page = atoi(fd);
	if (page <= STDERR_FILENO || fstat(page, &found) < 0 || fcntl(page, F_SETFD, FD_CLOEXEC) < 0)
		return;
	command->member.page_fd = page;
	command->member.page_inode = found.st_ino;
}

static void describe_command(struct supervised *command, char **words)
{
	size_t used = 0, size = sizeof command->words;
	for (; *words && used < size; words++)
		used += (size_t)snprintf(command->words + used, size - used, "%s%s", used ? " " : "", *words);
}

int main(int argc, char **argv)
{
	static struct supervised command;
	if (argc < 3) {
		fprintf(stderr,
			"hb-supervisor: `hb run` starts this program for a low-priority command in the MPS server\n");
		return HB_RUN_FAILED;
	}
	hb_tenant_options_init(&command.options);
	if (hb_tenant_options_from_environment(&command.options) < 0 ||
	    hb_socket_path(command.options.flags & HB_REGISTER_SIMULATED, command.socket) < 0) {
		fprintf(stderr, "hb-supervisor: HB_TENANT or HB_SOCKET is missing; start the command with `hb run`\n");
		return HB_RUN_FAILED;
	}
	keep_page(&command, argv[1]);
	describe_command(&command, argv + 2);
	command.pid = start_command(argv + 2);
	if (command.pid < 0) {
		fprintf(stderr, "hb run: cannot start %s: %s\n", argv[2], strerror(errno));
		return HB_RUN_FAILED;
	}
	command.terminal = (struct hb_run_terminal)HB_RUN_TERMINAL_NONE(command.pid);
	command.daemon = socket_file(&command);
	let_go_of_files(&command);
	return supervise(&command);
}
