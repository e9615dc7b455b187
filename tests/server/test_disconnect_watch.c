/* SPDX-License-Identifier: Apache-2.0 */
/* Cancelling the requests of clients that disconnect (server/http/disconnect_watch.h). */
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

struct watch_rig {
	char folder[64];
	struct hb_dispatch *dispatch;
	struct hb_disconnect_watch *watch;
	struct hb_inference *infers[REQUESTS];
	int fds[REQUESTS][2]; /* the server's and the client's end; -1 = closed */
	atomic_bool done[REQUESTS];
	sem_t a_request_is_done;
};

static struct watch_rig rig;

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

static void disconnect_client(int request)
{
	close(rig.fds[request][1]);
	rig.fds[request][1] = -1;
}

static void watch_request(int request)
{
	hb_disconnect_watch_add(rig.watch, rig.fds[request][0], rig.infers[request], &hb_disconnect_inference);
}

/* Closes the connection of REPLACED. The connection of NEW, whose client is connected, gets its descriptor. */
static void reuse_descriptor(void)
{
	int fd = rig.fds[REPLACED][0];
	hb_disconnect_watch_remove(rig.watch, fd);
	assert_int_equal(dup2(rig.fds[NEW][0], fd), fd);
	close(rig.fds[NEW][0]);
	rig.fds[NEW][0] = fd;
	rig.fds[REPLACED][0] = -1;
	watch_request(NEW);
}

/* Runs on the watch's thread, so sockets that are added here are reported together, in this order. */
static void note_done(struct hb_inference *infer)
{
	int request = (int)((atomic_bool *)infer->owner - rig.done);
	atomic_store(&rig.done[request], true);
	if (request == FIRST) {
		watch_request(SECOND);
		watch_request(REPLACED);
	} else if (request == SECOND) {
		reuse_descriptor();
		watch_request(LAST);
	}
	sem_post(&rig.a_request_is_done);
}

static void wait_for(int request)
{
	while (!atomic_load(&rig.done[request]))
		while (sem_wait(&rig.a_request_is_done) != 0)
			assert_int_equal(errno, EINTR);
}

static void submit_request(int request)
{
	struct hb_inference *infer = rig.infers[request] = hb_inference_new();
	assert_non_null(infer);
	infer->model = hb_dispatch_take_model(rig.dispatch, "m", NULL, &infer->answer, infer->reason,
					      sizeof(infer->reason));
	assert_non_null(infer->model);
	infer->items = 1;
	infer->done = note_done;
	infer->owner = &rig.done[request];
	assert_false(hb_dispatch_submit(rig.dispatch, infer));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, rig.fds[request]), 0);
}

static int set_up(void **state)
{
	const struct hb_dispatch_config config = {
		.models = rig.folder, .policy = "ours", .queue_max = REQUESTS, .speed = 1};
	struct hb_error error = {.text = ""};
	strcpy(rig.folder, "/tmp/hb-gone-XXXXXX");
	if (!mkdtemp(rig.folder) || sem_init(&rig.a_request_is_done, 0, 0) != 0)
		return -1;
	write_model(rig.folder);
	if (hb_dispatch_new(&config, &rig.dispatch, &error) < 0)
		return -1;
	rig.watch = hb_disconnect_watch_new(rig.dispatch);
	return rig.watch ? 0 : -1;
}

static int tear_down(void **state)
{
	for (int request = 0; request < REQUESTS; request++)
		for (int side = 0; side < 2; side++)
			if (rig.fds[request][side] >= 0)
				close(rig.fds[request][side]);
	hb_disconnect_watch_free(rig.watch);
	hb_dispatch_end(rig.dispatch, 0);
	for (int request = 0; request < REQUESTS; request++) {
		wait_for(request);
		hb_dispatch_give_model(rig.dispatch, rig.infers[request]->model);
		hb_inference_free(rig.infers[request]);
	}
	hb_dispatch_free(rig.dispatch);
	remove_model(rig.folder);
	return sem_destroy(&rig.a_request_is_done);
}

static void a_request_is_not_cancelled_for_an_earlier_connection_with_its_descriptor(void **state)
{
	for (int request = 0; request < REQUESTS; request++)
		submit_request(request);
	disconnect_client(SECOND);
	disconnect_client(REPLACED);
	disconnect_client(LAST);
	watch_request(FIRST);
	disconnect_client(FIRST);
	wait_for(LAST);
	for (int request = 0; request < REQUESTS; request++)
		if (rig.fds[request][0] >= 0)
			hb_disconnect_watch_remove(rig.watch, rig.fds[request][0]);
	assert_true(atomic_load(&rig.done[SECOND]));
	assert_false(atomic_load(&rig.done[REPLACED]));
	assert_false(atomic_load(&rig.done[NEW]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_request_is_not_cancelled_for_an_earlier_connection_with_its_descriptor, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
