/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhb-signs, preloaded into this program: each call by which bytes arrive is
 * reported with the right source, and nothing else about the call changes. The test
 * takes the place of the shim.
 */
#include "fake_uring.h"
#include "signs/signs.h"
#include "unit/unit.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned n_reported; /* volatile, because the compiler assumes that raise() does not change it */
static volatile uint64_t last;
static volatile uint32_t last_who;

static void take(uint64_t source, uint32_t who)
{
	n_reported = n_reported + 1;
	last = source;
	last_who = who;
	errno = EDOM; /* the caller must not see this value */
}

static void attach(hb_signs_report *report)
{
	__typeof__(&hb_signs_attach) function = (__typeof__(function))dlsym(RTLD_DEFAULT, "hb_signs_attach");
	assert_non_null(function);
	function(report);
}

static int set_up(void **state)
{
	n_reported = 0;
	attach(take);
	return 0;
}

static int tear_down(void **state)
{
	attach(NULL);
	return 0;
}

/* Runs a call that returns bytes or events, and checks that it was reported once. */
#define REPORTED(call) \
	do { \
		unsigned before_ = n_reported; \
		errno = 0; \
		assert_true((call) > 0); \
		assert_int_equal(errno, 0); \
		assert_int_equal(n_reported, before_ + 1); \
	} while (0)
#define NOT_REPORTED(call) \
	do { \
		unsigned before_ = n_reported; \
		(void)!(call); \
		assert_int_equal(n_reported, before_); \
	} while (0)

static void give(int fd)
{
	assert_int_equal(write(fd, "12345678", 8), 8);
}

/* Opens a connection of that kind: fds[0] is the end to read, fds[1] the end to write. */
static void make_pipe(int fds[2])
{
	assert_int_equal(pipe(fds), 0);
}

static void make_pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
}

static uint16_t listen_somewhere(int *listener)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	*listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(*listener, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(*listener, 8), 0);
	assert_int_equal(getsockname(*listener, (struct sockaddr *)&address, &length), 0);
	return ntohs(address.sin_port);
}

static int call_port(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void close_both(int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static void every_way_to_read_is_a_sign(void **state)
{
	char buffer[8];
	struct iovec parts = {buffer, sizeof(buffer)};
	struct msghdr message = {.msg_iov = &parts, .msg_iovlen = 1};
	struct mmsghdr messages = {.msg_hdr = message};
	int fds[2];
	make_pair(fds);
	give(fds[1]);
	REPORTED(read(fds[0], buffer, 8));
	give(fds[1]);
	REPORTED(readv(fds[0], &parts, 1));
	give(fds[1]);
	REPORTED(recv(fds[0], buffer, 8, 0));
	give(fds[1]);
	REPORTED(recvfrom(fds[0], buffer, 8, 0, NULL, NULL));
	give(fds[1]);
	REPORTED(recvmsg(fds[0], &message, 0));
	give(fds[1]);
	REPORTED(recvmmsg(fds[0], &messages, 1, 0, NULL));
	close_both(fds);
}

static void every_way_to_wait_is_a_sign(void **state)
{
	struct timespec second = {.tv_sec = 1};
	struct timeval long_enough = {.tv_sec = 1};
	struct epoll_event event = {.events = EPOLLIN}, events[2];
	struct pollfd polled = {.events = POLLIN};
	fd_set set;
	int fds[2], epoll = epoll_create1(0);
	make_pair(fds);
	give(fds[1]);
	polled.fd = fds[0];
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event), 0);
	REPORTED(epoll_wait(epoll, events, 2, 1000));
	REPORTED(epoll_pwait(epoll, events, 2, 1000, NULL));
	REPORTED(poll(&polled, 1, 1000));
	REPORTED(ppoll(&polled, 1, &second, NULL));
	FD_ZERO(&set);
	FD_SET(fds[0], &set);
	REPORTED(select(fds[0] + 1, &set, NULL, NULL, &long_enough));
	REPORTED(pselect(fds[0] + 1, &set, NULL, NULL, &second, NULL));
	close(epoll);
	close_both(fds);
}

static void calls_without_bytes_are_no_signs(void **state)
{
	char buffer[8];
	struct pollfd polled = {.events = POLLIN | POLLOUT};
	struct epoll_event event = {.events = EPOLLOUT}, events[2];
	int fds[2], file = open("/proc/self/status", O_RDONLY), epoll = epoll_create1(0);
	NOT_REPORTED(read(file, buffer, 8));
	NOT_REPORTED(poll(NULL, 0, 0));
	make_pair(fds);
	polled.fd = fds[0];
	NOT_REPORTED(poll(&polled, 1, 0)); /* only writable */
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event), 0);
	NOT_REPORTED(epoll_wait(epoll, events, 2, 0));
	errno = 0;
	NOT_REPORTED(recv(fds[0], buffer, 8, MSG_DONTWAIT));
	assert_int_equal(errno, EAGAIN);
	close(fds[1]);
	NOT_REPORTED(recv(fds[0], buffer, 8, 0)); /* the other end is closed */
	close(fds[0]);
	close(file);
	close(epoll);
}

static uint64_t source_of_read(int fd)
{
	char buffer[8];
	REPORTED(read(fd, buffer, 8));
	return last;
}

static void kinds_of_descriptors_are_different_sources(void **state)
{
	int pipes[2], pair[2], event = eventfd(1, 0), served, called, listener;
	uint16_t port = listen_somewhere(&listener);
	make_pipe(pipes);
	make_pair(pair);
	called = call_port(port);
	served = accept(listener, NULL, NULL);
	give(pipes[1]), give(pair[1]), give(called), give(served);
	uint64_t sources[] = {source_of_read(pipes[0]), source_of_read(pair[0]), source_of_read(event),
			      source_of_read(served)};
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(sources[i], sources[j]);
	source_of_read(called);
	close_both(pipes);
	close_both(pair);
	close(event), close(served), close(called), close(listener);
}

/* Connections are short-lived; what foresight learns must belong to the service. */
static void connections_of_one_port_are_one_source(void **state)
{
	int first, second, other;
	uint16_t port = listen_somewhere(&first), other_port = listen_somewhere(&other);
	uint64_t sources[3];
	for (int i = 0; i < 3; i++) {
		int called = call_port(i < 2 ? port : other_port);
		second = accept4(i < 2 ? first : other, NULL, NULL, SOCK_CLOEXEC);
		give(called);
		sources[i] = source_of_read(second);
		close(second);
		close(called);
	}
	assert_int_equal(sources[0], sources[1]);
	assert_int_not_equal(sources[0], sources[2]);
	close(first);
	close(other);
}

static void callers_are_different_sources(void **state)
{
	char buffer[4];
	int fds[2];
	make_pair(fds);
	give(fds[1]);
	REPORTED(read(fds[0], buffer, 4));
	uint64_t here = last;
	REPORTED(read(fds[0], buffer, 4));
	assert_int_not_equal(here, last);
	close_both(fds);
}

static void a_reused_descriptor_is_another_one(void **state)
{
	char buffer[8];
	int fds[2], file;
	make_pair(fds);
	give(fds[1]);
	REPORTED(read(fds[0], buffer, 8));
	int number = fds[0];
	close(fds[0]);
	file = open("/proc/self/status", O_RDONLY);
	assert_int_equal(dup2(file, number), number);
	NOT_REPORTED(read(number, buffer, 8));
	make_pair(fds);
	assert_int_equal(dup3(fds[0], number, 0), number);
	give(fds[1]);
	REPORTED(read(number, buffer, 8));
	close(number);
	close(file);
	close_both(fds);
}

static void new_connections_are_signs(void **state)
{
	int listener;
	uint16_t port = listen_somewhere(&listener);
	int first = call_port(port), second = call_port(port), served;
	REPORTED(served = accept(listener, NULL, NULL));
	close(served);
	REPORTED(served = accept4(listener, NULL, NULL, 0));
	close(served), close(first), close(second), close(listener);
}

static void nothing_is_reported_without_a_shim(void **state)
{
	char buffer[8];
	int fds[2];
	make_pair(fds);
	attach(NULL);
	give(fds[1]);
	NOT_REPORTED(read(fds[0], buffer, 8));
	close_both(fds);
}

/* Like an application that reads in its signal handlers. */
static int interrupted[2];
static void read_in_handler(int signal_number)
{
	char buffer[8];
	(void)!read(interrupted[0], buffer, 8);
}

static void signal_handlers_and_children_may_read(void **state)
{
	make_pair(interrupted);
	signal(SIGUSR1, read_in_handler);
	give(interrupted[1]);
	unsigned before = n_reported;
	raise(SIGUSR1);
	assert_int_equal(n_reported, before + 1);
	give(interrupted[1]);
	pid_t child = fork();
	if (child == 0) {
		read_in_handler(0);
		_exit(n_reported == before + 2 ? 0 : 1);
	}
	int status = 1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close_both(interrupted);
}

/* read() must remain a cancellation point. */
static void *wait_for_ever(void *fd)
{
	char buffer[8];
	(void)!read(*(int *)fd, buffer, 8);
	return NULL;
}

static void a_thread_that_reads_can_be_cancelled(void **state)
{
	pthread_t thread;
	void *result = NULL;
	int fds[2];
	make_pair(fds);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &fds[0]), 0);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	close_both(fds);
}

/* Completions are reported; calls without a completion or a wait are not. */
static void completions_of_a_ring_are_reported(void **state)
{
	void *cqe = NULL;
	fake_uring_cqe = &cqe;
	fake_uring_result = 0;
	REPORTED(__io_uring_get_cqe(NULL, &cqe, 0, 1, NULL) + 1);
	REPORTED(io_uring_wait_cqes(NULL, &cqe, 1, NULL, NULL) + 1);
	REPORTED(io_uring_wait_cqe_timeout(NULL, &cqe, NULL) + 1);
	REPORTED(io_uring_submit_and_wait(NULL, 1) + 1);
	REPORTED(io_uring_submit_and_wait_timeout(NULL, &cqe, 1, NULL, NULL) + 1);
	NOT_REPORTED(io_uring_submit_and_wait(NULL, 0));
	NOT_REPORTED(io_uring_peek_batch_cqe(NULL, &cqe, 4));
	fake_uring_cqe = NULL;
	NOT_REPORTED(__io_uring_get_cqe(NULL, &cqe, 0, 0, NULL));
	fake_uring_result = 2;
	REPORTED(io_uring_peek_batch_cqe(NULL, &cqe, 4));
	fake_uring_result = -EAGAIN;
	NOT_REPORTED(__io_uring_get_cqe(NULL, &cqe, 0, 0, NULL));
	NOT_REPORTED(io_uring_wait_cqe_timeout(NULL, &cqe, NULL));
}

/* The peer: one number per connection; none for descriptors that may carry bytes of several peers. */
static void connections_are_different_peers(void **state)
{
	char buffer[8];
	int first[2], second[2], pipes[2];
	make_pair(first);
	make_pair(second);
	make_pipe(pipes);
	give(first[1]);
	REPORTED(read(first[0], buffer, 8));
	uint32_t who = last_who;
	assert_int_not_equal(who, 0);
	for (int i = 0; i < 2; i++) {
		int *pair = i ? second : first;
		give(pair[1]);
		REPORTED(recv(pair[0], buffer, 8, 0));
		assert_int_equal(last_who == who, pair == first);
	}
	give(first[1]);
	REPORTED(recv(first[0], buffer, 8, 0));
	assert_int_equal(last_who, who);
	give(pipes[1]);
	REPORTED(read(pipes[0], buffer, 8));
	assert_int_equal(last_who, 0);
	give(first[1]);
	struct pollfd polled = {.fd = first[0], .events = POLLIN};
	REPORTED(poll(&polled, 1, -1));
	assert_int_equal(last_who, 0);
	close_both(first);
	close_both(second);
	close_both(pipes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(every_way_to_read_is_a_sign),
		TEST(every_way_to_wait_is_a_sign),
		TEST(calls_without_bytes_are_no_signs),
		TEST(kinds_of_descriptors_are_different_sources),
		TEST(connections_of_one_port_are_one_source),
		TEST(connections_are_different_peers),
		TEST(callers_are_different_sources),
		TEST(a_reused_descriptor_is_another_one),
		TEST(new_connections_are_signs),
		TEST(nothing_is_reported_without_a_shim),
		TEST(signal_handlers_and_children_may_read),
		TEST(a_thread_that_reads_can_be_cancelled),
		TEST(completions_of_a_ring_are_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
