/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that old kernels and C libraries lack; see newer_calls.h. */
#include "base/newer_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Applies to each number below the limit of open files. The limit may be a billion, but no process opens that many. */
#define DESCRIPTORS_MAX (1u << 20)

static void change_descriptors(unsigned first, unsigned last, unsigned flags)
{
	struct rlimit limit;
	unsigned end = DESCRIPTORS_MAX;
	if (syscall(SYS_close_range, first, last, flags) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < end)
		end = (unsigned)limit.rlim_cur;
	for (unsigned fd = first; fd < end && fd <= last; fd++)
		if (flags & CLOSE_RANGE_CLOEXEC)
			fcntl((int)fd, F_SETFD, FD_CLOEXEC);
		else
			close((int)fd);
}

void hb_close_range(unsigned first, unsigned last)
{
	change_descriptors(first, last, 0);
}

void hb_close_range_at_exec(unsigned first, unsigned last)
{
	change_descriptors(first, last, CLOSE_RANGE_CLOEXEC);
}

int hb_epoll_wait(int epoll, struct epoll_event *events, int max, const struct timespec *limit)
{
	int n = (int)syscall(SYS_epoll_pwait2, epoll, events, max, limit, NULL, 0);
	if (n >= 0 || errno != ENOSYS)
		return n;
	/* epoll_wait() counts milliseconds; ppoll() waits for the same descriptors and counts nanoseconds. */
	struct pollfd any = {.fd = epoll, .events = POLLIN};
	n = ppoll(&any, 1, limit, NULL);
	return n > 0 ? epoll_wait(epoll, events, max, 0) : n;
}
