/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer is the process that connected, not one that has ended, and not another
 * process that got its pid, on kernels with and without SO_PEERPIDFD.
 */
#include "daemon/peer.h"
#include "daemon/process.h"
#include "unit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERPIDFD 77 /* of getsockopt() */

/* A process that made a pair of sockets; the test has one end. */
struct other {
	pid_t pid;
	int socket;
};

static int send_fd(int to, int fd)
{
	char byte = 0, space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	return sendmsg(to, &message, 0) == 1 ? 0 : -1;
}

static int receive_fd(int from)
{
	char byte, space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	int fd = -1;
	assert_int_equal(recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1);
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (!header)
		fail_msg("no descriptor came");
	else
		memcpy(&fd, CMSG_DATA(header), sizeof fd);
	return fd;
}

static void live_on(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

/* Makes the pair and passes both ends on, so that they stay open when the process dies. */
static struct other start_other(int *its_end)
{
	int way[2], pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, way), 0);
	struct other other = {.pid = fork()};
	if (other.pid == 0) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || send_fd(way[1], pair[0]) < 0 ||
		    send_fd(way[1], pair[1]) < 0)
			_exit(1);
		live_on();
	}
	assert_true(other.pid > 0);
	other.socket = receive_fd(way[0]);
	*its_end = receive_fd(way[0]);
	close(way[0]);
	close(way[1]);
	return other;
}

static void end_process(pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Starts a child with this pid; 0 = not permitted. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
	pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
	if (child == 0)
		live_on();
	return child > 0 ? child : 0;
}

/* Makes this process behave as before Linux 6.5, until it ends. */
static void forget_peerpidfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PEERPIDFD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void a_running_peer_is_opened(void **state)
{
	struct hb_peer peer;
	int its_end;
	(void)state;
	struct other other = start_other(&its_end);
	assert_int_equal(hb_peer_read(other.socket, &peer), 0);
	assert_int_equal(peer.pid, other.pid);
	assert_int_equal(peer.uid, geteuid());
	assert_int_equal(hb_peer_open(other.socket, &peer), 0);
	assert_true(hb_process_lives(peer.pidfd));
	end_process(other.pid);
	assert_false(hb_process_lives(peer.pidfd));
	hb_peer_close(&peer);
	assert_int_equal(peer.pidfd, -1);
	close(its_end);
	close(other.socket);
}

/* Leaves n free descriptors. */
static void leave_descriptors(struct rlimit *before, rlim_t n)
{
	int next = dup(STDERR_FILENO);
	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
	const struct rlimit few = {(rlim_t)next + n, before->rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

/* The peer runs, and rules need its unit and cgroup: so opening must fail instead of leaving them empty. */
static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals = signals + 1;
}

/* poll() fails with EINTR if a signal comes, for example when a child of the daemon ends. */
static void a_signal_to_the_daemon_does_not_end_a_peer(void **state)
{
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	struct sigaction before, counted = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
	struct hb_peer peer;
	int its_end;
	(void)state;
	struct other other = start_other(&its_end);
	assert_int_equal(hb_peer_read(other.socket, &peer), 0);
	assert_int_equal(hb_peer_open(other.socket, &peer), 0);
	sigaction(SIGALRM, &counted, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	bool lives = true;
	while (lives && signals < 1000)
		lives = hb_process_lives(peer.pidfd);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_true(lives);
	end_process(other.pid);
	hb_peer_close(&peer);
	close(its_end);
	close(other.socket);
}

static void without_descriptors_opening_a_peer_fails(void **state)
{
	struct hb_peer peer;
	struct rlimit before;
	int its_end;
	(void)state;
	struct other other = start_other(&its_end);
	assert_int_equal(hb_peer_read(other.socket, &peer), 0);
	for (rlim_t n = 0; n < 2; n++) {
		leave_descriptors(&before, n);
		int result = hb_peer_open(other.socket, &peer);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_int_equal(result, -EMFILE);
		assert_int_equal(peer.pidfd, -1);
	}
	assert_int_equal(hb_peer_open(other.socket, &peer), 0);
	hb_peer_close(&peer);
	end_process(other.pid);
	close(its_end);
	close(other.socket);
}

static void a_peer_that_has_ended_is_not_opened(void **state)
{
	struct hb_peer before, after;
	int its_end;
	(void)state;
	struct other other = start_other(&its_end);
	assert_int_equal(hb_peer_read(other.socket, &before), 0);
	end_process(other.pid);
	assert_int_equal(hb_peer_open(other.socket, &before), -ESRCH);
	assert_int_equal(hb_peer_read(other.socket, &after), 0);
	assert_int_equal(hb_peer_open(other.socket, &after), -ESRCH);
	assert_int_equal(after.pidfd, -1);
	close(its_end);
	close(other.socket);
}

/* Another process with the pid of a dead peer is not the peer. `seen`: the daemon had read the peer before it died. */
static void try_same_pid(bool seen)
{
	struct hb_peer peer;
	int its_end;
	struct other other = start_other(&its_end);
	uint64_t started = hb_process_start_ticks(other.pid);
	if (seen)
		assert_int_equal(hb_peer_read(other.socket, &peer), 0);
	else
		close(its_end); /* so that its death closes the connection, as in reality */
	end_process(other.pid);
	pid_t stranger = fork_as(other.pid);
	if (!stranger)
		skip();
	/* Without SO_PEERPIDFD, a process that starts within the same clock tick looks like the peer. */
	while (hb_process_start_ticks(stranger) == started) {
		end_process(stranger);
		stranger = fork_as(other.pid);
		assert_int_equal(stranger, other.pid);
	}
	if (!seen)
		assert_int_equal(hb_peer_read(other.socket, &peer), 0);
	assert_int_equal(peer.pid, stranger);
	assert_int_equal(hb_peer_open(other.socket, &peer), -ESRCH);
	end_process(stranger);
	close(other.socket);
	if (seen)
		close(its_end);
}

static void another_process_with_the_same_pid_is_not_the_peer(void **state)
{
	(void)state;
	try_same_pid(true);
	try_same_pid(false);
}

static void a_process_with_pids_of_its_own_is_found(void **state)
{
	struct clone_args how = {.flags = CLONE_NEWUSER | CLONE_NEWPID, .exit_signal = SIGCHLD};
	pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
	if (child == 0)
		live_on();
	if (child < 0)
		skip(); /* namespaces cannot be made here */
	assert_true(hb_process_has_own_pids(child));
	assert_false(hb_process_has_own_pids(getpid()));
	end_process(child);
	assert_false(hb_process_has_own_pids(child));
}

static void the_start_environment_of_a_process_is_read(void **state)
{
	int ends[2];
	char byte;
	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("HB_TENANT", "0123", 1);
		execl("/bin/sh", "sh", "-c", "echo; kill -STOP $$", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	assert_true(hb_process_began_with(child, "HB_TENANT=0123"));
	assert_false(hb_process_began_with(child, "HB_TENANT=012"));
	assert_false(hb_process_began_with(child, "HB_TENANT=01234"));
	uid_t uid;
	gid_t gid;
	assert_true(hb_process_user(child, &uid, &gid));
	assert_int_equal(uid, geteuid());
	assert_int_equal(gid, getegid());
	struct hb_peer peer;
	assert_int_equal(hb_peer_of(child, &peer), 0);
	assert_int_equal(peer.uid, geteuid());
	assert_true(hb_process_lives(peer.pidfd));
	hb_peer_close(&peer);
	end_process(child);
	assert_int_equal(hb_peer_of(child, &peer), -ESRCH);
	assert_false(hb_process_began_with(child, "HB_TENANT=0123"));
	assert_false(hb_process_user(child, &uid, &gid));
	assert_int_equal(hb_process_open(child), -ESRCH);
	assert_int_equal(hb_process_open(0), -ESRCH);
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_running_peer_is_opened),
		cmocka_unit_test(a_signal_to_the_daemon_does_not_end_a_peer),
		cmocka_unit_test(without_descriptors_opening_a_peer_fails),
		cmocka_unit_test(a_peer_that_has_ended_is_not_opened),
		cmocka_unit_test(another_process_with_the_same_pid_is_not_the_peer),
		cmocka_unit_test(the_start_environment_of_a_process_is_read),
		cmocka_unit_test(a_process_with_pids_of_its_own_is_found),
	};
	const struct CMUnitTest old_kernel[] = {
		cmocka_unit_test(a_running_peer_is_opened),
		cmocka_unit_test(a_peer_that_has_ended_is_not_opened),
		cmocka_unit_test(another_process_with_the_same_pid_is_not_the_peer),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	forget_peerpidfd();
	return failed + cmocka_run_group_tests(old_kernel, NULL, NULL);
}
