/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign descriptors are closed on threads. A close that waits (here: of a TCP connection with SO_LINGER, whose data
 * is never read) delays neither the caller nor other users.
 */
#include "daemon/fd_closer.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOW_USER 1001
#define OTHER_USER 1002
#define LINGER_S 3600

/* A connection whose close() waits until `reader` is closed. */
struct slow_file {
	int fd, reader;
};

static struct slow_file make_slow_file(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	static char data[1 << 16];
	int small = 4096, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct slow_file made = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(connect(made.fd, (struct sockaddr *)&address, sizeof address), 0);
	made.reader = accept(listener, NULL, NULL);
	assert_true(made.reader >= 0);
	close(listener);
	while (send(made.fd, data, sizeof data, MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(made.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	return made;
}

/* An end of a pipe; the other end sees when it has been closed. */
static int make_pipe_end(int *other)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	*other = ends[0];
	return ends[1];
}

static bool is_closed(int other)
{
	struct pollfd end = {.fd = other, .events = POLLIN};
	return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

static void tick_until_closed(struct hb_fd_closer *closer, int other)
{
	while (!is_closed(other)) {
		hb_fd_closer_tick(closer);
		poll(NULL, 0, 1);
	}
	close(other);
}

static void descriptors_are_closed(void **state)
{
	struct hb_fd_closer *closer;
	int others[100];
	assert_int_equal(hb_fd_closer_new(&closer), 0);
	for (unsigned i = 0; i < 100; i++)
		hb_fd_closer_add(closer, i % 70, make_pipe_end(&others[i]));
	for (int i = 0; i < 100; i++)
		tick_until_closed(closer, others[i]);
	while (hb_fd_closer_waiting(closer))
		poll(NULL, 0, 1);
	hb_fd_closer_free(closer);
}

static void a_close_that_waits_delays_its_user_only(void **state)
{
	struct hb_fd_closer *closer;
	int own, other;
	assert_int_equal(hb_fd_closer_new(&closer), 0);
	struct slow_file slow = make_slow_file();
	hb_fd_closer_add(closer, SLOW_USER, slow.fd); /* returns */
	hb_fd_closer_add(closer, SLOW_USER, make_pipe_end(&own));
	hb_fd_closer_add(closer, OTHER_USER, make_pipe_end(&other));
	tick_until_closed(closer, other);
	while (!hb_fd_closer_is_stuck(closer, SLOW_USER))
		poll(NULL, 0, 1);
	assert_false(hb_fd_closer_is_stuck(closer, OTHER_USER));
	assert_false(is_closed(own));
	assert_int_equal(hb_fd_closer_waiting(closer), 2);
	close(slow.reader);
	tick_until_closed(closer, own);
	while (hb_fd_closer_is_stuck(closer, SLOW_USER))
		poll(NULL, 0, 1);
	hb_fd_closer_free(closer);
}

static void ending_does_not_wait_for_a_close_that_waits(void **state)
{
	struct hb_fd_closer *closer;
	assert_int_equal(hb_fd_closer_new(&closer), 0);
	struct slow_file slow = make_slow_file();
	hb_fd_closer_add(closer, SLOW_USER, slow.fd);
	hb_fd_closer_free(closer);
	close(slow.reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(descriptors_are_closed),
		cmocka_unit_test(a_close_that_waits_delays_its_user_only),
		cmocka_unit_test(ending_does_not_wait_for_a_close_that_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
