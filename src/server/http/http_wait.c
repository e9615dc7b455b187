/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait: suspending and resuming their connections, and watching for the end of their clients. See http_call.h. */
#include "server/http/http_call.h"

static bool begin_wait(struct hb_kserve_http *http)
{
	int n = atomic_load(&http->n_waiting);
	while (n > 0)
		if (atomic_compare_exchange_weak(&http->n_waiting, &n, n + 1))
			return true;
	return false;
}

/* Ends a counted wait. The count reaches 0 only when the server shuts down, so requests do not take the lock. */
void hb_http_end_wait(struct hb_kserve_http *http)
{
	if (atomic_fetch_sub(&http->n_waiting, 1) != 1)
		return;
	pthread_mutex_lock(&http->lock);
	http->over = true;
	pthread_cond_broadcast(&http->ended);
	pthread_mutex_unlock(&http->lock);
}

bool hb_http_count_wait(struct hb_http_call *call)
{
	return call->counted = begin_wait(call->http);
}

void hb_http_uncount_wait(struct hb_http_call *call)
{
	if (!call->counted)
		return;
	call->counted = false;
	hb_http_end_wait(call->http);
}

static int get_socket(const struct hb_http_call *call)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(call->connection,
								       MHD_CONNECTION_INFO_CONNECTION_FD);
	return info ? info->connect_fd : -1;
}

void hb_http_watch_client(struct hb_http_call *call, void *request, const struct hb_disconnect_kind *kind)
{
	hb_disconnect_watch_add(call->http->disconnects, get_socket(call), request, kind);
	call->disconnect_watched = true;
}

void hb_http_unwatch_client(struct hb_http_call *call)
{
	if (call->disconnect_watched)
		hb_disconnect_watch_remove(call->http->disconnects, get_socket(call));
	call->disconnect_watched = false;
}

static void resume_connection(struct hb_http_call *call)
{
	/* When the connection is resumed, the call may end at once, and the server with it. */
	struct hb_kserve_http *http = call->http;
	struct hb_http_loop *loop = call->loop;
	bool counted = begin_wait(http);
	MHD_resume_connection(call->connection);
	hb_http_loop_wake(loop);
	if (counted)
		hb_http_end_wait(http);
}

enum MHD_Result hb_http_suspend(struct hb_http_call *call)
{
	MHD_suspend_connection(call->connection);
	if (atomic_exchange(&call->wait_state, HB_CALL_SUSPENDED) == HB_CALL_RESUMED)
		resume_connection(call);
	return MHD_YES;
}

void hb_http_resume(struct hb_http_call *call)
{
	if (atomic_exchange(&call->wait_state, HB_CALL_RESUMED) == HB_CALL_SUSPENDED)
		resume_connection(call);
}
