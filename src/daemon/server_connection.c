/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of the daemon's socket; see server_connection.h. */
#include "daemon/server_connection.h"

#include "base/clock.h"
#include "daemon/gpu.h"
#include "daemon/previous_page.h"
#include "daemon/registration.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS /* since Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

int hb_connection_take_fds(int fd, bool take)
{
	int value = take;
	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof value) < 0 ? -errno : 0;
}

static void free_connection(uv_handle_t *handle)
{
	free(handle->data);
}

void hb_connection_drop(struct hb_connection *connection)
{
	struct hb_server *server = connection->server;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] == connection)
			server->connections[i] = NULL;
	hb_shared_text_drop(connection->text);
	connection->text = NULL;
	free(connection->place);
	connection->place = NULL;
	hb_fair_queue_remove(&server->queue, &connection->turn);
	hb_user_give(&server->daemon->users, connection->user, HB_PLACE_CONNECTION, 1);
	uv_close((uv_handle_t *)&connection->poll, free_connection);
	/* The client sees the end at once. Descriptors may be in the queue, so the socket itself is closed elsewhere. */
	hb_connection_take_fds(connection->fd, false);
	shutdown(connection->fd, SHUT_RDWR);
	hb_fd_closer_add(server->daemon->closer, connection->peer.uid, connection->fd);
}

void hb_connection_poll(struct hb_connection *connection)
{
	uv_poll_start(&connection->poll, connection->text ? UV_WRITABLE : UV_READABLE, hb_connection_ready);
}

int hb_connection_answer(struct hb_connection *connection, const int *fds, size_t n_fds)
{
	return hb_wire_send(connection->fd, &connection->server->message, fds, n_fds);
}

int hb_connection_done(struct hb_connection *connection)
{
	hb_msg_init(&connection->server->message, HB_MSG_DONE);
	return hb_connection_answer(connection, NULL, 0);
}

int hb_connection_done_text(struct hb_connection *connection, const char *text)
{
	hb_msg_init(&connection->server->message, HB_MSG_DONE);
	hb_msg_add_text(&connection->server->message, text, strlen(text));
	return hb_connection_answer(connection, NULL, 0);
}

int hb_connection_error(struct hb_connection *connection, int code, const char *text)
{
	union hb_msg *message = &connection->server->message;
	hb_msg_init(message, HB_MSG_ERROR);
	message->as_ERROR.code = code;
	hb_msg_add_text(message, text, strlen(text));
	return hb_connection_answer(connection, NULL, 0);
}

/* Collects the descriptors of the tenant's pages. Returns their number, or negative errno. */
static int collect_pages(const struct hb_connection *connection, const struct hb_tenancy *tenancy,
			 int fds[HB_MSG_FDS_MAX])
{
	fds[0] = tenancy->page_fd;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
		bool is_previous = !(connection->features & HB_PROTOCOL_ONE_WRITER);
		int fd = is_previous ? hb_previous_page_fd(tenancy->gpus[i], tenancy) : tenancy->gpus[i]->page_fd;
		if (fd < 0)
			return fd;
		if (is_previous)
			hb_gpu_choose_engine(tenancy->gpus[i], hb_clock_now_ns());
		fds[i + 1] = fd;
	}
	return (int)tenancy->n_gpus + 1;
}

int hb_connection_registered(struct hb_connection *connection, struct hb_tenancy *tenancy, uint32_t slot)
{
	union hb_msg *message = &connection->server->message;
	int fds[HB_MSG_FDS_MAX];
	char environment[1024];
	int n_fds = collect_pages(connection, tenancy, fds);
	if (n_fds < 0)
		return hb_connection_error(connection, n_fds, "the daemon cannot make the pages of the tenant");
	hb_msg_init(message, HB_MSG_REGISTERED);
	message->as_REGISTERED.tenant = tenancy->number;
	message->as_REGISTERED.slot = slot;
	message->as_REGISTERED.n_fds = (uint32_t)n_fds;
	if (slot < HB_PAGE_PROCESSES)
		message->as_REGISTERED.generation = tenancy->page->processes[slot].generation;
	else
		hb_msg_add_text(message, environment,
				hb_register_environment(tenancy, environment, sizeof environment));
	return hb_connection_answer(connection, fds, (size_t)n_fds);
}

int hb_connection_text(struct hb_connection *connection)
{
	union hb_msg *message = &connection->server->message;
	int result = 0;
	while (result == 0 && connection->text) {
		size_t left = connection->text->length - connection->text_sent;
		size_t part = left < HB_MSG_TEXT_MAX ? left : HB_MSG_TEXT_MAX;
		hb_msg_init(message, HB_MSG_TEXT);
		message->as_TEXT.more = part < left;
		hb_msg_add_text(message, connection->text->text + connection->text_sent, part);
		result = hb_connection_answer(connection, NULL, 0);
		if (result < 0)
			break;
		connection->text_sent += part;
		if (part == left) {
			hb_shared_text_drop(connection->text);
			connection->text = NULL;
		}
	}
	hb_connection_poll(connection);
	return result == -EAGAIN ? 0 : result;
}
