/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop that both commands of hb-k8s have: once in CHECK_PERIOD_MS a thread
 * reads the view of the node, which may take long if the driver hangs, and the loop
 * takes it over and checks the sockets. SIGTERM and SIGINT end it.
 */
#ifndef HB_K8S_NODE_LOOP_H
#define HB_K8S_NODE_LOOP_H

#include "k8s/node_view.h"

#include <uv.h>

struct hb_node_loop;

struct hb_node_loop_calls {
	void (*read)(struct hb_node_loop *loop);  /* thread: fills `next` */
	void (*taken)(struct hb_node_loop *loop); /* `view` is new; for complaints */
	void (*check)(struct hb_node_loop *loop); /* regularly, once there is a view */
	void (*close)(struct hb_node_loop *loop); /* closes every handle of the caller */
};

/* Zeros but for `calls` and `argument`. */
struct hb_node_loop {
	const struct hb_node_loop_calls *calls;
	void *argument; /* for the caller */
	uv_loop_t loop;
	uv_timer_t timer;
	uv_signal_t signals[2];
	uv_work_t work;
	struct hb_node_view view, next;
	bool reads, has_view, is_ending;
};

/* Returns 0, or 1 after a message. Between the two calls the caller adds handles to `loop`. */
int hb_node_loop_begin(struct hb_node_loop *loop);
/* Runs until a signal has ended it; then only hb_node_loop_end() may follow, after the caller's own objects were freed. */
void hb_node_loop_run(struct hb_node_loop *loop);
void hb_node_loop_end(struct hb_node_loop *loop);
/* Logs an error that differs from the one before, and remembers it in `complaint`, of sizeof(struct hb_error) bytes. */
void hb_node_loop_complain(char *complaint, const struct hb_error *error);

#endif
