/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the daemon's socket; see socket_server.h. */
#include "daemon/socket_server.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/privileged.h"
#include "daemon/server_requests.h"
#include "daemon/socket_lock.h"
#include "daemon/status_answers.h"
#include "daemon/tenancy.h"
#include "daemon/user_names.h"
#include "daemon/user_places.h"

#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define IDLE_LIMIT_NS (30 * HB_NS_PER_S)
#define NAME_LIMIT_NS HB_NS_PER_S
#define SERVE_NS (2 * HB_NS_PER_MS) /* the longest that requests are served before the loop does other work */
#define GROUP "hummingbird"

/* --- connections -------------------------------------------------------------------- */

static void log_bad_message(struct hb_connection *connection, const char *why)
{
	hb_user_log(connection->user, hb_clock_now_ns(), HB_LOG_WARNING, "process %d (user %s) sent a bad message: %s",
		    (int)connection->peer.pid, connection->peer.user, why);
}

static void read_request(struct hb_connection *connection)
{
	struct hb_server *server = connection->server;
	struct hb_wire_fds fds;
	const char *why = "";
	int result = hb_wire_receive(connection->fd, HB_SENDER_CLIENT, &server->message, &fds, &why);
	if (result == -EAGAIN)
		return;
	if (result == -EPROTO)
		log_bad_message(connection, why);
	if (result == 0) {
		connection->last_ns = hb_clock_now_ns();
		result = hb_request_serve(connection, &fds);
	}
	for (size_t i = 0; i < fds.n; i++)
		hb_fd_closer_add(server->daemon->closer, connection->peer.uid, fds.fd[i]);
	if (result < 0)
		hb_connection_drop(connection);
}

static void serve_connection(struct hb_connection *connection)
{
	if (hb_fd_closer_is_stuck(connection->server->daemon->closer, connection->peer.uid))
		hb_connection_drop(connection);
	/* The client closed the connection, or sent a message before it had the answer. */
	else if (hb_connection_is_asking(connection))
		hb_connection_drop(connection);
	else if (connection->text) {
		if (hb_connection_text(connection) < 0)
			hb_connection_drop(connection);
	} else
		read_request(connection);
}

void hb_connection_ready(uv_poll_t *poll, int status, int events)
{
	struct hb_connection *connection = poll->data;
	struct hb_server *server = connection->server;
	if (status < 0)
		hb_connection_drop(connection);
	else
		hb_fair_queue_add(&server->queue, &connection->turn,
				  (uint32_t)(connection->user - server->daemon->users.users));
}

/*
 * Serves users in turn for a while. Connections that were not served stay readable, so the loop comes back at once, after
 * it did its other work.
 */
static void serve_queue(uv_check_t *check)
{
	struct hb_server *server = check->data;
	int64_t now_ns = hb_clock_now_ns(), end_ns = now_ns + SERVE_NS;
	struct hb_fair_entry *entry;
	while (now_ns < end_ns && (entry = hb_fair_queue_next(&server->queue))) {
		struct hb_connection *connection = (struct hb_connection *)((char *)entry -
									    offsetof(struct hb_connection, turn));
		struct hb_user *user = connection->user;
		int64_t since_ns = now_ns;
		serve_connection(connection);
		now_ns = hb_clock_now_ns();
		hb_user_charge(user, now_ns - since_ns);
		hb_fair_queue_charge(&server->queue, entry->user, now_ns - since_ns);
	}
}

/* --- listening ---------------------------------------------------------------------------- */

/* The connection of this user that has been silent for longest and waits for nothing; NULL = none. */
static struct hb_connection *find_silent(const struct hb_server *server, const struct hb_user *user)
{
	struct hb_connection *silent = NULL;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->user != user || hb_connection_is_asking(connection))
			continue;
		if (!silent || connection->last_ns < silent->last_ns)
			silent = connection;
	}
	return silent;
}

/*
 * Takes a place for a connection of this user. If the user may have no more, its connection that has been silent for
 * longest is closed, and if it has none, one of the user with the most connections.
 */
static bool take_place(struct hb_server *server, struct hb_user *user)
{
	struct hb_user_table *users = &server->daemon->users;
	if (hb_user_take(users, user, HB_PLACE_CONNECTION))
		return true;
	struct hb_connection *silent = find_silent(
		server, user->held[HB_PLACE_CONNECTION] ? user : hb_user_largest(users, HB_PLACE_CONNECTION));
	if (!silent)
		return false;
	hb_connection_drop(silent);
	return hb_user_take(users, user, HB_PLACE_CONNECTION);
}

static struct hb_connection **find_place(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (!server->connections[i])
			return &server->connections[i];
	return NULL;
}

/* The name is known, or is not waited for any longer. */
static void take_name(struct hb_connection *connection)
{
	connection->wait = HB_WAIT_NOTHING;
	snprintf(connection->user->name, sizeof connection->user->name, "%s", connection->peer.user);
	hb_connection_poll(connection);
}

void hb_server_name_found(struct hb_server *server, uid_t uid)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (connection && connection->wait == HB_WAIT_NAME && connection->peer.uid == uid &&
		    hb_user_names_find(server->daemon->names, uid, connection->peer.user))
			take_name(connection);
	}
}

static void check_name(struct hb_connection *connection, int64_t now_ns)
{
	if (connection->wait != HB_WAIT_NAME || now_ns - connection->last_ns < NAME_LIMIT_NS)
		return;
	if (!hb_user_names_find(connection->server->daemon->names, connection->peer.uid, connection->peer.user))
		hb_user_log(connection->user, now_ns, HB_LOG_WARNING,
			    "the name of user %s was not found within a second, so rules for names do not fit",
			    connection->peer.user);
	take_name(connection);
}

static int begin_connection(struct hb_server *server, int fd, const struct hb_peer *peer)
{
	struct hb_user *user = hb_user_of_peer(server->daemon, peer);
	if (!user || !take_place(server, user))
		return -EDQUOT;
	struct hb_connection **place = find_place(server), *connection = place ? calloc(1, sizeof *connection) : NULL;
	int result = -ENOMEM;
	if (connection) {
		*connection = (struct hb_connection){
			.server = server, .fd = fd, .peer = *peer, .user = user, .last_ns = hb_clock_now_ns()};
		result = uv_poll_init(&server->daemon->loop, &connection->poll, fd);
	}
	if (result < 0) {
		hb_user_give(&server->daemon->users, user, HB_PLACE_CONNECTION, 1);
		free(connection);
		return result;
	}
	connection->poll.data = connection;
	*place = connection;
	hb_connection_take_fds(fd, true);
	connection->wait = HB_WAIT_NAME;
	if (hb_user_names_find(server->daemon->names, peer->uid, connection->peer.user))
		take_name(connection);
	HB_FAULT(daemon_accepted);
	return 0;
}

/* The mode of the socket excludes the same users; this check also covers a descriptor that was passed on. */
static bool is_allowed(const struct hb_server *server, const struct hb_peer *peer)
{
	return server->daemon->options.system_mode || peer->uid == geteuid() || peer->uid == 0;
}

/* A client can have sent descriptors already, unless the kernel refused them for the listening socket. */
static void refuse_connection(struct hb_server *server, int fd, uid_t uid)
{
	shutdown(fd, SHUT_RDWR);
	if (server->refuses_fds)
		close(fd);
	else
		hb_fd_closer_add(server->daemon->closer, uid, fd);
}

static void accept_ready(uv_poll_t *poll, int status, int events)
{
	struct hb_server *server = poll->data;
	struct hb_peer peer;
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		/* Without a descriptor or memory the socket stays readable, and the loop would call this function for ever. */
		server->is_paused = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		if (server->is_paused)
			uv_poll_stop(&server->poll);
		return;
	}
	if (hb_peer_read(fd, &peer) < 0)
		refuse_connection(server, fd, (uid_t)-1);
	else if (!is_allowed(server, &peer) || hb_fd_closer_is_stuck(server->daemon->closer, peer.uid) ||
		 begin_connection(server, fd, &peer) < 0)
		refuse_connection(server, fd, peer.uid);
}

static int give_to_group(const char *path)
{
	const struct group *group = getgrnam(GROUP);
	if (group && chown(path, (uid_t)-1, group->gr_gid) < 0)
		return -errno;
	if (!group)
		hb_log_warning("there is no group %s, so only root can use this daemon; run groupadd --system %s, then "
			       "restart the daemon",
			       GROUP, GROUP);
	return chmod(path, 0660) < 0 ? -errno : 0;
}

static int open_socket(const struct hb_daemon_options *options, struct hb_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hb_error_set(error, -errno, "socket: %s", strerror(errno));
	snprintf(address.sun_path, sizeof address.sun_path, "%s", options->socket);
	unlink(options->socket); /* this daemon has the lock: an existing socket belongs to a daemon that has ended */
	mode_t mask = umask(0177);
	int result = bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
	umask(mask);
	if (result == 0 && options->system_mode)
		result = give_to_group(options->socket);
	if (result == 0 && listen(fd, 128) < 0)
		result = -errno;
	if (result == 0)
		return fd;
	close(fd);
	unlink(options->socket);
	return hb_error_set(error, result, "%s: %s", options->socket, strerror(-result));
}

int hb_server_new(struct hb_daemon *daemon, struct hb_server **server, struct hb_error *error)
{
	int result = hb_socket_lock_take(daemon->options.socket, &daemon->lock, error);
	if (result < 0)
		return result;
	/* With the lock, the log in the folder belongs to a daemon that has ended. */
	if (daemon->options.has_log && ftruncate(STDERR_FILENO, 0) < 0)
		hb_log_warning("cannot empty the log of an earlier daemon: %s", strerror(errno));
	int fd = open_socket(&daemon->options, error);
	struct hb_server *made = fd < 0 ? NULL : calloc(1, sizeof *made);
	if (fd < 0)
		return fd;
	if (!made) {
		close(fd);
		unlink(daemon->options.socket);
		return hb_error_set(error, -ENOMEM, "out of memory");
	}
	made->daemon = daemon;
	made->fd = fd;
	made->refuses_fds = hb_connection_take_fds(fd, false) == 0;
	uv_poll_init(&daemon->loop, &made->poll, fd);
	uv_check_init(&daemon->loop, &made->serve);
	uv_check_start(&made->serve, serve_queue);
	uv_timer_init(&daemon->loop, &made->status_timer);
	made->poll.data = made->serve.data = made->status_timer.data = made;
	made->n_handles = 3;
	uv_poll_start(&made->poll, UV_READABLE, accept_ready);
	*server = made;
	return 0;
}

static void free_server(uv_handle_t *handle)
{
	struct hb_server *server = handle->data;
	if (--server->n_handles == 0)
		free(server);
}

void hb_server_free(struct hb_server *server)
{
	if (!server)
		return;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i])
			hb_connection_drop(server->connections[i]);
	hb_socket_lock_check(server->daemon->lock);
	hb_privileged_remove_socket(server->daemon->privileged);
	uv_close((uv_handle_t *)&server->serve, free_server);
	uv_close((uv_handle_t *)&server->status_timer, free_server);
	uv_close((uv_handle_t *)&server->poll, free_server);
	/* Clients that were not accepted yet may have sent descriptors. */
	shutdown(server->fd, SHUT_RDWR);
	hb_fd_closer_add(server->daemon->closer, (uid_t)-1, server->fd);
}

void hb_server_answer_registrations(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->wait != HB_WAIT_MPS)
			continue;
		struct hb_tenancy *tenancy = hb_tenancy_numbered(server->daemon, (uint32_t)connection->wait_number);
		connection->wait = HB_WAIT_NOTHING;
		if (!tenancy || hb_connection_registered(connection, tenancy, HB_PAGE_PROCESSES) < 0)
			hb_connection_drop(connection);
	}
}

void hb_server_answer_faults(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->wait != HB_WAIT_FAULT)
			continue;
		connection->wait = HB_WAIT_NOTHING;
		if (hb_request_answer_bye(connection, (uint32_t)connection->wait_number) < 0)
			hb_connection_drop(connection);
	}
}

/* Answers a PLACE that has waited for the driver since `before_ns` or longer. */
static void answer_place(struct hb_connection *connection, int64_t before_ns)
{
	if (!connection || connection->wait != HB_WAIT_PLACE || connection->last_ns > before_ns)
		return;
	connection->wait = HB_WAIT_NOTHING;
	if (hb_request_answer_place(connection) < 0)
		hb_connection_drop(connection);
}

void hb_server_answer_places(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		answer_place(server->connections[i], INT64_MAX);
}

void hb_server_answer_terminated(struct hb_server *server, uint64_t number)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->wait != HB_WAIT_TERMINATION || connection->wait_number != number)
			continue;
		connection->wait = HB_WAIT_NOTHING;
		if (hb_connection_done(connection) < 0)
			hb_connection_drop(connection);
	}
}

void hb_server_answer_memory(struct hb_server *server, const struct hb_gpu *gpu, const struct hb_tenancy *tenancy,
			     int code, const char *why)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		if (!connection || connection->wait != HB_WAIT_MEMORY || connection->wait_gpu != gpu ||
		    connection->wait_number != tenancy->number)
			continue;
		connection->wait = HB_WAIT_NOTHING;
		int result = code < 0 ? hb_connection_error(connection, code, why) : hb_connection_done(connection);
		if (result < 0)
			hb_connection_drop(connection);
	}
}

void hb_server_answer_status(struct hb_server *server)
{
	hb_status_answers_go(server);
}

static void resume_listening(struct hb_server *server)
{
	server->is_paused = false;
	uv_poll_start(&server->poll, UV_READABLE, accept_ready);
}

uint32_t hb_server_closing(const struct hb_server *server)
{
	return hb_fd_closer_waiting(server->daemon->closer);
}

void hb_server_tick(struct hb_server *server, int64_t now_ns)
{
	hb_status_answers_tick(server, now_ns);
	hb_fd_closer_tick(server->daemon->closer);
	if (server->is_paused)
		resume_listening(server);
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct hb_connection *connection = server->connections[i];
		answer_place(connection, now_ns - HB_DRIVER_LIMIT_NS);
		connection = server->connections[i];
		if (connection)
			check_name(connection, now_ns);
		if (connection && connection->wait != HB_WAIT_MPS && now_ns - connection->last_ns > IDLE_LIMIT_NS)
			hb_connection_drop(connection);
	}
}
