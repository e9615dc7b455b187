/* SPDX-License-Identifier: Apache-2.0 */
/* Answers status requests; see status_answers.h. */
#include "daemon/status_answers.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "daemon/gpu_processes.h"
#include "daemon/status_json.h"

#include <errno.h>
#include <string.h>

#define UNREAD_BYTES_MAX ((size_t)64 << 20) /* of documents that clients have not read to the end */

/* --- documents that slow clients still read -------------------------------------------------------- */

static bool is_first_user(const struct hb_server *server, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (server->connections[i] && server->connections[i]->text == server->connections[index]->text)
			return false;
	return true;
}

/* *oldest = the document with the lowest number. */
static size_t count_unread_bytes(const struct hb_server *server, const struct hb_shared_text **oldest)
{
	size_t bytes = 0;
	*oldest = NULL;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		const struct hb_connection *connection = server->connections[i];
		if (!connection || !connection->text || !is_first_user(server, i))
			continue;
		bytes += connection->text->length;
		if (!*oldest || connection->text->number < (*oldest)->number)
			*oldest = connection->text;
	}
	return bytes;
}

/* Ends the connections that have been reading for longest, until the others' documents take little enough memory. */
static void drop_slow_readers(struct hb_server *server)
{
	const struct hb_shared_text *oldest;
	while (count_unread_bytes(server, &oldest) > UNREAD_BYTES_MAX)
		for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
			if (server->connections[i] && server->connections[i]->text == oldest)
				hb_connection_drop(server->connections[i]);
}

/* --- answering --------------------------------------------------------------------------------------- */

static bool is_ready(const struct hb_connection *connection)
{
	return connection && connection->wait == HB_WAIT_STATUS;
}

static void send_status(struct hb_connection *connection, struct hb_shared_text *status)
{
	connection->wait = HB_WAIT_NOTHING;
	int result;
	if (status) {
		connection->text = hb_shared_text_use(status);
		connection->text_sent = 0;
		result = hb_connection_text(connection);
	} else
		result = hb_connection_error(connection, -ENOMEM, "out of memory");
	if (result < 0)
		hb_connection_drop(connection);
}

static void answer_all(struct hb_server *server)
{
	int64_t begin_ns = hb_clock_now_ns();
	drop_slow_readers(server);
	char *text = hb_status_text(server->daemon, begin_ns);
	struct hb_shared_text *status = hb_shared_text_new(text, text ? strlen(text) : 0);
	HB_FAULT(daemon_status_made);
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (is_ready(server->connections[i]))
			send_status(server->connections[i], status);
	hb_shared_text_drop(status);
	hb_loop_share_spend(&server->status_share, begin_ns, hb_clock_now_ns());
}

static void handle_status_timer(uv_timer_t *timer)
{
	struct hb_server *server = timer->data;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (is_ready(server->connections[i])) {
			answer_all(server);
			return;
		}
}

/* In the next turn of the loop at the earliest, so that all who ask in this turn get the same document. */
static void answer_soon(struct hb_server *server)
{
	int64_t left_ns = server->status_share.next_ns - hb_clock_now_ns();
	uint64_t wait_ms = left_ns > 0 ? (uint64_t)((left_ns + HB_NS_PER_MS - 1) / HB_NS_PER_MS) : 0;
	if (!uv_is_active((uv_handle_t *)&server->status_timer))
		uv_timer_start(&server->status_timer, handle_status_timer, wait_ms, 0);
}

void hb_status_answers_ask(struct hb_connection *connection)
{
	connection->wait = hb_gpu_processes_poll(connection->server->daemon->processes) ? HB_WAIT_DRIVER
											: HB_WAIT_STATUS;
	if (connection->wait == HB_WAIT_STATUS)
		answer_soon(connection->server);
}

void hb_status_answers_go(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] && server->connections[i]->wait == HB_WAIT_DRIVER)
			server->connections[i]->wait = HB_WAIT_STATUS;
	answer_soon(server);
}

void hb_status_answers_tick(struct hb_server *server, int64_t now_ns)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->wait != HB_WAIT_DRIVER ||
		    now_ns - connection->last_ns <= HB_DRIVER_LIMIT_NS)
			continue;
		connection->wait = HB_WAIT_STATUS;
		answer_soon(server);
	}
}
