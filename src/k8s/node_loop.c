/* SPDX-License-Identifier: Apache-2.0 */
/* See node_loop.h. */
#include "k8s/node_loop.h"

#include "base/log.h"

#include <signal.h>
#include <string.h>

#define CHECK_PERIOD_MS 1000

void hb_node_loop_complain(char *complaint, const struct hb_error *error)
{
	if (!error->text[0])
		return;
	if (strcmp(complaint, error->text) != 0)
		hb_log_warning("%s", error->text);
	strcpy(complaint, error->text);
}

static void read_view(uv_work_t *work)
{
	struct hb_node_loop *loop = work->data;
	loop->calls->read(loop);
}

static void take_view(uv_work_t *work, int status)
{
	struct hb_node_loop *loop = work->data;
	loop->reads = false;
	hb_node_view_fini(&loop->view);
	loop->view = loop->next;
	loop->has_view = true;
	loop->calls->taken(loop);
	if (!loop->is_ending)
		loop->calls->check(loop);
}

/* If the driver hangs, the view stays as it was; sockets and registration are still checked. */
static void check_node(uv_timer_t *timer)
{
	struct hb_node_loop *loop = timer->data;
	if (loop->has_view)
		loop->calls->check(loop);
	if (!loop->reads)
		loop->reads = uv_queue_work(&loop->loop, &loop->work, read_view, take_view) == 0;
}

static void close_all(uv_signal_t *signal, int number)
{
	struct hb_node_loop *loop = signal->data;
	loop->is_ending = true;
	uv_close((uv_handle_t *)&loop->timer, NULL);
	for (int i = 0; i < 2; i++)
		uv_close((uv_handle_t *)&loop->signals[i], NULL);
	loop->calls->close(loop);
}

int hb_node_loop_begin(struct hb_node_loop *loop)
{
	static const int numbers[2] = {SIGTERM, SIGINT};
	int result = uv_loop_init(&loop->loop);
	if (result < 0) {
		hb_log_error("%s", uv_strerror(result));
		return 1;
	}
	for (int i = 0; i < 2; i++) {
		uv_signal_init(&loop->loop, &loop->signals[i]);
		loop->signals[i].data = loop;
		uv_signal_start(&loop->signals[i], close_all, numbers[i]);
	}
	loop->work.data = loop;
	uv_timer_init(&loop->loop, &loop->timer);
	loop->timer.data = loop;
	return 0;
}

void hb_node_loop_run(struct hb_node_loop *loop)
{
	uv_timer_start(&loop->timer, check_node, 0, CHECK_PERIOD_MS);
	uv_run(&loop->loop, UV_RUN_DEFAULT);
}

void hb_node_loop_end(struct hb_node_loop *loop)
{
	hb_node_view_fini(&loop->view);
	uv_loop_close(&loop->loop);
}
