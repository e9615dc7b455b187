/* SPDX-License-Identifier: Apache-2.0 */
/* See kserve_grpc.h. The loop, its thread and the waking of calls; grpc_connection.c has the connections. */
#include "server/grpc/kserve_grpc.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/grpc/grpc_connection.h"
#include "server/kserve/peer_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK_PERIOD_MS 1000
#define BACKLOG 4096

void hb_grpc_call_free(struct hb_grpc_call *call)
{
	hb_grpc_headers_free(call->headers);
	free(call->data);
	hb_load_free(call->load);
	hb_memory_charge_end(&call->charge);
	free(call->out);
	free(call);
}

void hb_grpc_resume(struct hb_grpc_call *call)
{
	struct hb_kserve_grpc *grpc = call->grpc;
	pthread_mutex_lock(&grpc->lock);
	call->next = grpc->resumed;
	grpc->resumed = call;
	/* Ring under the lock, because the loop may end and close the doorbell once it has taken the last call. */
	uv_async_send(&grpc->doorbell);
	pthread_mutex_unlock(&grpc->lock);
}

static void answer_resumed(struct hb_grpc_call *call)
{
	call->waits = false;
	call->grpc->n_waiting--;
	call->finish(call);
	if (call->waits)
		return;
	if (call->connection)
		hb_grpc_connection_answer(call);
	else
		hb_grpc_call_free(call);
}

static void close_all(struct hb_kserve_grpc *grpc)
{
	hb_grpc_connections_close(grpc);
	if (!uv_is_closing((uv_handle_t *)&grpc->listener))
		uv_close((uv_handle_t *)&grpc->listener, NULL);
	if (!uv_is_closing((uv_handle_t *)&grpc->unix_listener))
		uv_close((uv_handle_t *)&grpc->unix_listener, NULL);
	if (!uv_is_closing((uv_handle_t *)&grpc->timer))
		uv_close((uv_handle_t *)&grpc->timer, NULL);
	if (grpc->n_waiting == 0 && !uv_is_closing((uv_handle_t *)&grpc->doorbell))
		uv_close((uv_handle_t *)&grpc->doorbell, NULL);
}

static void take_resumed(uv_async_t *doorbell)
{
	struct hb_kserve_grpc *grpc = doorbell->data;
	pthread_mutex_lock(&grpc->lock);
	struct hb_grpc_call *call = grpc->resumed;
	bool stopping = grpc->stopping;
	grpc->resumed = NULL;
	pthread_mutex_unlock(&grpc->lock);
	while (call) {
		struct hb_grpc_call *next = call->next;
		answer_resumed(call);
		call = next;
	}
	if (stopping)
		close_all(grpc);
}

static void check_connections(uv_timer_t *timer)
{
	struct hb_kserve_grpc *grpc = timer->data;
	hb_grpc_connections_check(grpc, hb_clock_now_ns());
}

static void accept_connection(uv_stream_t *listener, int status)
{
	if (status == 0)
		hb_grpc_connection_accept(listener->data, listener);
}

static void *run_loop(void *argument)
{
	struct hb_kserve_grpc *grpc = argument;
	uv_run(&grpc->loop, UV_RUN_DEFAULT);
	return NULL;
}

static int listen_on_unix(struct hb_kserve_grpc *grpc, struct hb_error *error)
{
	/* uv_close() closes its descriptor. */
	int fd = fcntl(hb_unix_listener_fd(grpc->config.unix_listener), F_DUPFD_CLOEXEC, 0);
	int result = fd < 0 ? -errno : uv_pipe_open(&grpc->unix_listener, fd);
	if (fd >= 0 && result < 0)
		close(fd);
	if (result == 0)
		result = uv_listen((uv_stream_t *)&grpc->unix_listener, BACKLOG, accept_connection);
	return result < 0 ? hb_error_set(error, result, "grpc: cannot listen: %s", uv_strerror(result)) : 0;
}

static int listen_on(struct hb_kserve_grpc *grpc, struct hb_error *error)
{
	struct sockaddr_storage bound;
	int size = sizeof(bound);
	int result = uv_tcp_bind(&grpc->listener, (const struct sockaddr *)&grpc->config.address, 0);
	if (result == 0)
		result = uv_listen((uv_stream_t *)&grpc->listener, BACKLOG, accept_connection);
	if (result == 0)
		result = uv_tcp_getsockname(&grpc->listener, (struct sockaddr *)&bound, &size);
	if (result != 0)
		return hb_error_set(error, result, "grpc: cannot listen: %s", uv_strerror(result));
	grpc->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
						       : ((struct sockaddr_in *)&bound)->sin_port);
	return 0;
}

static int start_loop(struct hb_kserve_grpc *grpc, struct hb_error *error)
{
	uv_tcp_init(&grpc->loop, &grpc->listener);
	uv_pipe_init(&grpc->loop, &grpc->unix_listener, 0);
	uv_async_init(&grpc->loop, &grpc->doorbell, take_resumed);
	uv_timer_init(&grpc->loop, &grpc->timer);
	grpc->listener.data = grpc->unix_listener.data = grpc->doorbell.data = grpc->timer.data = grpc;
	int result = grpc->config.unix_listener ? listen_on_unix(grpc, error) : 0;
	if (result == 0 && grpc->config.address.ss_family != AF_UNSPEC)
		result = listen_on(grpc, error);
	if (result < 0)
		return result;
	uv_timer_start(&grpc->timer, check_connections, CHECK_PERIOD_MS, CHECK_PERIOD_MS);
	result = -pthread_create(&grpc->thread, NULL, run_loop, grpc);
	grpc->runs = result == 0;
	return result == 0 ? 0 : hb_error_set(error, result, "grpc: cannot start a thread: %s", strerror(-result));
}

int hb_kserve_grpc_new(const struct hb_kserve_grpc_config *config, struct hb_kserve_grpc **out, struct hb_error *error)
{
	struct hb_kserve_grpc *grpc = calloc(1, sizeof(*grpc));
	if (!grpc || uv_loop_init(&grpc->loop) != 0) {
		free(grpc);
		return hb_error_set(error, -ENOMEM, "grpc: out of memory");
	}
	grpc->config = *config;
	pthread_mutex_init(&grpc->lock, NULL);
	grpc->peers = hb_peer_limit_new("grpc", config->client_connections);
	grpc->jobs = hb_job_thread_new();
	int result = grpc->peers && grpc->jobs ? start_loop(grpc, error)
					       : hb_error_set(error, -ENOMEM, "grpc: out of memory");
	if (result < 0) {
		hb_kserve_grpc_free(grpc);
		return result;
	}
	*out = grpc;
	return 0;
}

uint16_t hb_kserve_grpc_port(const struct hb_kserve_grpc *grpc)
{
	return grpc->port;
}

void hb_kserve_grpc_free(struct hb_kserve_grpc *grpc)
{
	if (!grpc)
		return;
	if (grpc->runs) {
		pthread_mutex_lock(&grpc->lock);
		grpc->stopping = true;
		uv_async_send(&grpc->doorbell);
		pthread_mutex_unlock(&grpc->lock);
		pthread_join(grpc->thread, NULL);
	} else if (grpc->peers) {
		close_all(grpc);
		uv_run(&grpc->loop, UV_RUN_DEFAULT);
	}
	uv_loop_close(&grpc->loop);
	hb_job_thread_free(grpc->jobs);
	hb_peer_limit_free(grpc->peers);
	pthread_mutex_destroy(&grpc->lock);
	free(grpc);
}
