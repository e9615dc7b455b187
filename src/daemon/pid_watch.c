/* SPDX-License-Identifier: Apache-2.0 */
/* A pidfd in the event loop; see pid_watch.h. */
#include "daemon/pid_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct hb_pid_watch {
	uv_poll_t poll;
	int fd;
	void (*gone)(void *argument);
	void *argument;
};

static void readable(uv_poll_t *poll, int status, int events)
{
	struct hb_pid_watch *watch = poll->data;
	uv_poll_stop(poll);
	watch->gone(watch->argument);
}

static void closed(uv_handle_t *handle)
{
	free(handle->data);
}

int hb_pid_watch_new(uv_loop_t *loop, int pidfd, void (*gone)(void *argument), void *argument,
		     struct hb_pid_watch **watch)
{
	int fd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct hb_pid_watch *made = malloc(sizeof *made);
	if (!made) {
		close(fd);
		return -ENOMEM;
	}
	*made = (struct hb_pid_watch){.fd = fd, .gone = gone, .argument = argument};
	int result = uv_poll_init(loop, &made->poll, fd);
	if (result < 0) {
		close(fd);
		free(made);
		return result;
	}
	made->poll.data = made;
	uv_poll_start(&made->poll, UV_READABLE, readable);
	*watch = made;
	return 0;
}

void hb_pid_watch_free(struct hb_pid_watch *watch)
{
	if (!watch)
		return;
	/* Stops polling at once; only the freeing is left to the loop. */
	uv_close((uv_handle_t *)&watch->poll, closed);
	close(watch->fd);
}
