/* SPDX-License-Identifier: Apache-2.0 */
/* Watches a pidfd in the event loop; see pid_watch.h. */
#include "daemon/pid_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct hb_pid_watch {
	uv_poll_t poll;
	int fd;
	void (*ended)(void *argument);
	void *argument;
};

static void report_end(uv_poll_t *poll, int status, int events)
{
	struct hb_pid_watch *watch = poll->data;
	uv_poll_stop(poll);
	watch->ended(watch->argument);
}

static void free_watch(uv_handle_t *handle)
{
	free(handle->data);
}

int hb_pid_watch_new(uv_loop_t *loop, int pidfd, void (*ended)(void *argument), void *argument,
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
	*made = (struct hb_pid_watch){.fd = fd, .ended = ended, .argument = argument};
	int result = uv_poll_init(loop, &made->poll, fd);
	if (result < 0) {
		close(fd);
		free(made);
		return result;
	}
	made->poll.data = made;
	uv_poll_start(&made->poll, UV_READABLE, report_end);
	*watch = made;
	return 0;
}

void hb_pid_watch_free(struct hb_pid_watch *watch)
{
	if (!watch)
		return;
	/* The poll stops at once; the loop frees the record later. */
	uv_close((uv_handle_t *)&watch->poll, free_watch);
	close(watch->fd);
}
