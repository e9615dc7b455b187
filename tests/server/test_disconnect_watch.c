/* SPDX-License-Identifier: Apache-2.0 */
/* What notices that clients have gone (server/http/disconnect_watch.h): whose request is cancelled, and whose is not. */
#include "server/http/disconnect_watch.h"
#include "unit.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST, SECOND, REPLACED, NEW, LAST, REQUESTS };

struct bench {
	char folder[64];
	struct hb_dispatch *dispatch;
	struct hb_disconnect_watch *watch;
	struct hb_inference *infers[REQUESTS];
	int fds[REQUESTS][2]; /* ours and the client's, -1 = it has gone */
	atomic_bool done[REQUESTS];
	sem_t one_is_done;
};

static struct bench bench;

static void write_model(const char *folder)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/m", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/m/model.yaml", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs("platform: echo\ndelay: 1h\nrun: 1ms\ninputs: [{name: x, datatype: FP32, shape: [2]}]\n"
	      "outputs: [{name: y, datatype: FP32, shape: [2]}]\n",
	      file);
	fclose(file);
}

static void remove_model(const char *folder)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/m/model.yaml", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/m", folder);
	rmdir(path);
	rmdir(folder);
}

static void client_goes(int request)
{
	close(bench.fds[request][1]);
	bench.fds[request][1] = -1;
}

static void watch(int request)
{
	hb_disconnect_watch_add(bench.watch, bench.fds[request][0], bench.infers[request]);
}

/* The connection of REPLACED is closed, and its descriptor comes back as that of NEW, whose client is there. */
static void replace(void)
{
	int fd = bench.fds[REPLACED][0];
	hb_disconnect_watch_forget(bench.watch, fd);
	assert_int_equal(dup2(bench.fds[NEW][0], fd), fd);
	close(bench.fds[NEW][0]);
	bench.fds[NEW][0] = fd;
	bench.fds[REPLACED][0] = -1;
	watch(NEW);
}

/* On the watch's thread, so what becomes ready here comes in one lot, in this order. */
static void done(struct hb_inference *infer)
{
	int request = (int)((atomic_bool *)infer->owner - bench.done);
	atomic_store(&bench.done[request], true);
	if (request == FIRST) {
		watch(SECOND);
		watch(REPLACED);
	} else if (request == SECOND) {
		replace();
		watch(LAST);
	}
	sem_post(&bench.one_is_done);
}

static void wait_for(int request)
{
	while (!atomic_load(&bench.done[request]))
		while (sem_wait(&bench.one_is_done) != 0)
			assert_int_equal(errno, EINTR);
}

static void submit(int request)
{
	struct hb_inference *infer = bench.infers[request] = hb_inference_new();
	assert_non_null(infer);
	infer->model = hb_dispatch_take_model(bench.dispatch, "m", NULL, &infer->answer, infer->reason,
					      sizeof(infer->reason));
	assert_non_null(infer->model);
	infer->items = 1;
	infer->done = done;
	infer->owner = &bench.done[request];
	assert_false(hb_dispatch_submit(bench.dispatch, infer));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, bench.fds[request]), 0);
}

static int set_up(void **state)
{
	const struct hb_dispatch_config config = {
		.models = bench.folder, .policy = "ours", .queue_max = REQUESTS, .speed = 1};
	struct hb_error error = {.text = ""};
	strcpy(bench.folder, "/tmp/hb-gone-XXXXXX");
	if (!mkdtemp(bench.folder) || sem_init(&bench.one_is_done, 0, 0) != 0)
		return -1;
	write_model(bench.folder);
	if (hb_dispatch_new(&config, &bench.dispatch, &error) < 0)
		return -1;
	bench.watch = hb_disconnect_watch_new(bench.dispatch);
	return bench.watch ? 0 : -1;
}

static int tear_down(void **state)
{
	for (int request = 0; request < REQUESTS; request++)
		for (int side = 0; side < 2; side++)
			if (bench.fds[request][side] >= 0)
				close(bench.fds[request][side]);
	hb_disconnect_watch_free(bench.watch);
	hb_dispatch_end(bench.dispatch, 0);
	for (int request = 0; request < REQUESTS; request++) {
		wait_for(request);
		hb_dispatch_give_model(bench.dispatch, bench.infers[request]->model);
		hb_inference_free(bench.infers[request]);
	}
	hb_dispatch_free(bench.dispatch);
	remove_model(bench.folder);
	return sem_destroy(&bench.one_is_done);
}

static void a_request_is_not_cancelled_for_the_connection_before_it(void **state)
{
	for (int request = 0; request < REQUESTS; request++)
		submit(request);
	client_goes(SECOND);
	client_goes(REPLACED);
	client_goes(LAST);
	watch(FIRST);
	client_goes(FIRST);
	wait_for(LAST);
	for (int request = 0; request < REQUESTS; request++)
		if (bench.fds[request][0] >= 0)
			hb_disconnect_watch_forget(bench.watch, bench.fds[request][0]);
	assert_true(atomic_load(&bench.done[SECOND]));
	assert_false(atomic_load(&bench.done[REPLACED]));
	assert_false(atomic_load(&bench.done[NEW]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_request_is_not_cancelled_for_the_connection_before_it, set_up,
						tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
