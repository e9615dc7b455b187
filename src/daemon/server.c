/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket: accepts connections, reads one request at a time from each,
 * answers it. Memory is bounded: so many connections, one message each, idle
 * ones are closed.
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/recorder.h"
#include "daemon/registration.h"
#include "protocol/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define IDLE_LIMIT_NS (30 * HB_NS_PER_S)
#define LOOK_LIMIT_NS (300 * HB_NS_PER_MS) /* a status waits no longer for the driver */
#define GROUP "hummingbird"

struct connection {
	struct hb_server *server;
	uv_poll_t poll;
	int fd;
	struct hb_peer peer;
	bool greeted;
	int64_t last_ns;
	uint32_t waits_for;  /* number of the tenant whose answer waits for the MPS server; 0 = none */
	bool waits_for_look; /* its status is answered when the look at the GPUs is over */
	char *text;          /* status being sent; NULL = none */
	size_t text_length, text_sent;
};

struct hb_server {
	struct hb_daemon *daemon;
	int fd, lock_fd;
	uv_poll_t poll;
	bool deaf;                        /* until the next tick: there was no descriptor for who knocks */
	struct hb_log_limit bad_messages; /* whoever sends one after the other would fill the log */
	struct connection *connections[HB_CONNECTIONS_MAX];
	union hb_msg message; /* the one being read or written */
};

/* --- connections -------------------------------------------------------------------- */

static void connection_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void drop(struct connection *connection)
{
	struct hb_server *server = connection->server;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] == connection)
			server->connections[i] = NULL;
	free(connection->text);
	connection->text = NULL;
	uv_close((uv_handle_t *)&connection->poll, connection_closed);
	close(connection->fd);
}

static int answer(struct connection *connection, const int *fds, size_t n_fds)
{
	return hb_wire_send(connection->fd, &connection->server->message, fds, n_fds);
}

static int answer_done(struct connection *connection)
{
	hb_msg_init(&connection->server->message, HB_MSG_DONE);
	return answer(connection, NULL, 0);
}

static int answer_error(struct connection *connection, int code, const char *text)
{
	union hb_msg *message = &connection->server->message;
	hb_msg_init(message, HB_MSG_ERROR);
	message->as_ERROR.code = code;
	hb_msg_add_text(message, text, strlen(text));
	return answer(connection, NULL, 0);
}

/* --- requests ------------------------------------------------------------------------- */

static int serve_hello(struct connection *connection)
{
	struct hb_server *server = connection->server;
	const struct hb_msg_hello hello = server->message.as_HELLO;
	char text[160];
	if (hello.version_min > HB_PROTOCOL_VERSION || hello.version_max < HB_PROTOCOL_VERSION) {
		snprintf(text, sizeof text,
			 "this daemon speaks protocol version %d, the client %u to %u: update the older one",
			 HB_PROTOCOL_VERSION, hello.version_min, hello.version_max);
		return answer_error(connection, -EPROTONOSUPPORT, text);
	}
	connection->greeted = true;
	HB_FAULT(daemon_greeted);
	hb_msg_init(&server->message, HB_MSG_WELCOME);
	server->message.as_WELCOME.version = HB_PROTOCOL_VERSION;
	server->message.as_WELCOME.daemon_pid = (uint32_t)getpid();
	server->message.as_WELCOME.page_version = HB_PAGE_VERSION;
	return answer(connection, NULL, 0);
}

static int answer_registered(struct connection *connection, struct hb_tenancy *tenancy, uint32_t slot)
{
	union hb_msg *message = &connection->server->message;
	int fds[HB_MSG_FDS_MAX];
	char environment[1024];
	size_t n_fds = 1;
	fds[0] = tenancy->page_fd;
	for (uint32_t i = 0; i < tenancy->n_devices; i++)
		fds[n_fds++] = tenancy->devices[i]->page_fd;
	hb_msg_init(message, HB_MSG_REGISTERED);
	message->as_REGISTERED.tenant = tenancy->number;
	message->as_REGISTERED.slot = slot;
	message->as_REGISTERED.n_fds = (uint32_t)n_fds;
	if (slot < HB_PAGE_PROCESSES)
		message->as_REGISTERED.generation = tenancy->page->processes[slot].generation;
	else
		hb_msg_add_text(message, environment,
				hb_register_environment(tenancy, environment, sizeof environment));
	return answer(connection, fds, n_fds);
}

static int serve_register(struct connection *connection, const struct hb_wire_fds *fds)
{
	struct hb_server *server = connection->server;
	struct hb_grant grant;
	struct hb_error error = {""};
	size_t length;
	HB_FAULT(daemon_register_read);
	/* A copy: registering may start the MPS server, which may answer others from the same buffer. */
	const struct hb_msg_register request = server->message.as_REGISTER;
	const char *command = hb_msg_text(&server->message, &length);
	struct hb_peer peer = connection->peer;
	int result = hb_peer_open(connection->fd, &peer);
	if (result < 0)
		hb_error_set(&error, result, "process %d, which connected, cannot be watched: %s", (int)peer.pid,
			     strerror(-result));
	else
		result = hb_register(server->daemon, &peer, &request, command, length, fds->n ? fds->fd[0] : -1, &grant,
				     &error);
	hb_peer_close(&peer);
	if (result < 0)
		return answer_error(connection, result, error.text);
	HB_FAULT(daemon_registered);
	if (grant.wait) {
		connection->waits_for = grant.tenancy->number;
		return 0;
	}
	result = answer_registered(connection, grant.tenancy, grant.slot);
	HB_FAULT(daemon_answered);
	return result;
}

static int serve_bye(struct connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	struct hb_tenancy *tenancy = hb_tenancy_find(daemon, connection->server->message.as_BYE.token);
	if (!tenancy || hb_tenancy_leave(tenancy, connection->peer.pid) < 0)
		return answer_error(connection, -ESRCH, "this process belongs to no tenant with that token");
	hb_daemon_kick(daemon);
	return answer_done(connection);
}

static bool may_change(const struct connection *connection, const struct hb_tenancy *tenancy)
{
	uid_t uid = connection->peer.uid;
	return uid == 0 || uid == geteuid() || uid == tenancy->peer.uid;
}

static int serve_set(struct connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	const struct hb_msg_set change = connection->server->message.as_SET;
	struct hb_tenancy *tenancy = hb_tenancy_numbered(daemon, change.tenant);
	struct hb_error error = {""};
	char reduced[160];
	if (!tenancy || hb_tenancy_is_server(tenancy)) {
		hb_error_set(&error, -ESRCH, "no tenant has the id %u", change.tenant);
		return answer_error(connection, -ESRCH, error.text);
	}
	if (!may_change(connection, tenancy))
		return answer_error(connection, -EPERM, "only the tenant's user and root may change it");
	struct hb_terms asked = tenancy->terms;
	if (change.fields & HB_SET_PRIORITY)
		asked.priority = (enum hb_page_priority)change.priority;
	if (change.fields & HB_SET_SLO)
		asked.slo_ns = change.slo_ns;
	if (change.fields & HB_SET_MEMORY)
		asked.memory_bytes = change.memory_bytes;
	/* The rules for who runs the tenant hold, whoever asks, but for root in person. */
	struct hb_terms terms = hb_admit(&daemon->config, daemon->options.system_mode, &tenancy->peer, &asked, reduced);
	if (reduced[0] && connection->peer.uid != 0)
		return answer_error(connection, -EPERM, reduced);
	int result = hb_tenancy_set(tenancy, &change, connection->peer.uid == 0 ? &asked : &terms, &error);
	HB_FAULT(daemon_set);
	hb_daemon_kick(daemon);
	return result < 0 ? answer_error(connection, result, error.text) : answer_done(connection);
}

static void poll_connection(struct connection *connection);

/* Sends as much of the status as the socket takes; the rest when it takes more. */
static int send_text(struct connection *connection)
{
	union hb_msg *message = &connection->server->message;
	int result = 0;
	while (result == 0 && connection->text) {
		size_t left = connection->text_length - connection->text_sent;
		size_t piece = left < HB_MSG_TEXT_MAX ? left : HB_MSG_TEXT_MAX;
		hb_msg_init(message, HB_MSG_TEXT);
		message->as_TEXT.more = piece < left;
		hb_msg_add_text(message, connection->text + connection->text_sent, piece);
		result = answer(connection, NULL, 0);
		if (result < 0)
			break;
		connection->text_sent += piece;
		if (piece == left) {
			free(connection->text);
			connection->text = NULL;
		}
	}
	poll_connection(connection);
	return result == -EAGAIN ? 0 : result;
}

static int answer_status(struct connection *connection)
{
	connection->text = hb_status_text(connection->server->daemon, hb_clock_now_ns());
	if (!connection->text)
		return answer_error(connection, -ENOMEM, "out of memory");
	HB_FAULT(daemon_status_made);
	connection->text_length = strlen(connection->text);
	connection->text_sent = 0;
	return send_text(connection);
}

static int serve_status(struct connection *connection)
{
	connection->waits_for_look = hb_users_look(connection->server->daemon->users);
	return connection->waits_for_look ? 0 : answer_status(connection);
}

static int stop_recording(struct connection *connection)
{
	int code;
	connection->text = hb_recorder_stop(connection->server->daemon, &code);
	if (!connection->text)
		return answer_error(connection, code, code == -ENOENT ? "nothing is being recorded" : "out of memory");
	connection->text_length = strlen(connection->text);
	connection->text_sent = 0;
	return send_text(connection);
}

/* A recording shows what all tenants do: for root and whoever runs the daemon. */
static int serve_record(struct connection *connection)
{
	const struct hb_msg_record request = connection->server->message.as_RECORD;
	uid_t uid = connection->peer.uid;
	if (uid != 0 && uid != geteuid())
		return answer_error(connection, -EPERM,
				    "only root and the daemon's own user may record: run it as one of them");
	if (request.action == HB_RECORD_STOP)
		return stop_recording(connection);
	int result = hb_recorder_start(connection->server->daemon, (int64_t)request.seconds * HB_NS_PER_S);
	if (result < 0)
		return answer_error(connection, result,
				    result == -EBUSY ? "somebody records already" : "out of memory");
	return answer_done(connection);
}

static int serve(struct connection *connection, const struct hb_wire_fds *fds)
{
	unsigned kind = connection->server->message.header.kind;
	if (kind != HB_MSG_HELLO && !connection->greeted)
		return -EPROTO;
	switch (kind) {
	case HB_MSG_HELLO:
		return serve_hello(connection);
	case HB_MSG_REGISTER:
		return serve_register(connection, fds);
	case HB_MSG_BYE:
		return serve_bye(connection);
	case HB_MSG_SET:
		return serve_set(connection);
	case HB_MSG_STATUS:
		return serve_status(connection);
	case HB_MSG_RECORD:
		return serve_record(connection);
	default:
		return -EPROTO;
	}
}

static void tell_bad_message(struct connection *connection, const char *why)
{
	uint64_t unsaid;
	if (!hb_log_limit_pass(&connection->server->bad_messages, hb_clock_now_ns(), &unsaid))
		return;
	if (unsaid)
		hb_log_warning("%llu more bad messages were sent since the last that was told of",
			       (unsigned long long)unsaid);
	hb_log_warning("process %d (user %s) sent a bad message: %s", (int)connection->peer.pid, connection->peer.user,
		       why);
}

static void read_request(struct connection *connection)
{
	struct hb_server *server = connection->server;
	struct hb_wire_fds fds;
	const char *why = "";
	int result = hb_wire_receive(connection->fd, HB_SENDER_CLIENT, &server->message, &fds, &why);
	if (result == -EAGAIN)
		return;
	if (result == -EPROTO)
		tell_bad_message(connection, why);
	if (result == 0) {
		connection->last_ns = hb_clock_now_ns();
		result = serve(connection, &fds);
		hb_wire_close_fds(&fds);
	}
	if (result < 0)
		drop(connection);
}

static void connection_ready(uv_poll_t *poll, int status, int events)
{
	struct connection *connection = poll->data;
	if (status < 0)
		drop(connection);
	else if (connection->waits_for || connection->waits_for_look) /* it hung up, or speaks out of turn */
		drop(connection);
	else if (connection->text) {
		if (send_text(connection) < 0)
			drop(connection);
	} else
		read_request(connection);
}

static void poll_connection(struct connection *connection)
{
	uv_poll_start(&connection->poll, connection->text ? UV_WRITABLE : UV_READABLE, connection_ready);
}

/* --- listening ---------------------------------------------------------------------------- */

/* A full table makes room for the newest by cutting off who has been silent for longest. */
static struct connection **free_place(struct hb_server *server)
{
	struct connection **silent = NULL;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct connection **place = &server->connections[i];
		if (!*place)
			return place;
		if (!(*place)->waits_for && !(*place)->waits_for_look &&
		    (!silent || (*place)->last_ns < (*silent)->last_ns))
			silent = place;
	}
	if (silent)
		drop(*silent);
	return silent;
}

static int begin(struct hb_server *server, int fd, const struct hb_peer *peer)
{
	struct connection **place = free_place(server);
	struct connection *connection = place ? calloc(1, sizeof *connection) : NULL;
	if (!connection)
		return place ? -ENOMEM : -EUSERS;
	*connection = (struct connection){.server = server, .fd = fd, .peer = *peer, .last_ns = hb_clock_now_ns()};
	int result = uv_poll_init(&server->daemon->loop, &connection->poll, fd);
	if (result < 0) {
		free(connection);
		return result;
	}
	connection->poll.data = connection;
	*place = connection;
	poll_connection(connection);
	HB_FAULT(daemon_accepted);
	return 0;
}

/* The socket's mode says the same; this holds also for a descriptor that was passed on. */
static bool welcome(const struct hb_server *server, const struct hb_peer *peer)
{
	return server->daemon->options.system_mode || peer->uid == geteuid() || peer->uid == 0;
}

static void accept_ready(uv_poll_t *poll, int status, int events)
{
	struct hb_server *server = poll->data;
	struct hb_peer peer;
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		/* Without descriptors or memory who knocks goes on knocking, and we would turn in circles. */
		server->deaf = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		if (server->deaf)
			uv_poll_stop(&server->poll);
		return;
	}
	if (hb_peer_read(fd, &peer) < 0 || !welcome(server, &peer) || begin(server, fd, &peer) < 0)
		close(fd);
}

/* Holding the lock proves that no living daemon uses the socket's path. */
static int lock(const char *socket_path, struct hb_error *error)
{
	char path[HB_PATH_MAX + 8];
	snprintf(path, sizeof path, "%s.lock", socket_path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	close(fd);
	return hb_error_set(error, -EADDRINUSE, "%s: another daemon serves this socket; `hb status` shows it",
			    socket_path);
}

static int give_to_group(const char *path)
{
	const struct group *group = getgrnam(GROUP);
	if (group && chown(path, (uid_t)-1, group->gr_gid) < 0)
		return -errno;
	if (!group)
		hb_log_warning("there is no group %s: only root can use this daemon; groupadd --system %s, then "
			       "restart it",
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
	unlink(options->socket); /* the lock is ours: what lies there is a dead daemon's */
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
	return hb_error_set(error, result, "%s: %s", options->socket, strerror(-result));
}

int hb_server_new(struct hb_daemon *daemon, struct hb_server **server, struct hb_error *error)
{
	int lock_fd = lock(daemon->options.socket, error);
	if (lock_fd < 0)
		return lock_fd;
	/* From here on what lies in the folder is a dead daemon's. */
	if (daemon->options.has_log && ftruncate(STDERR_FILENO, 0) < 0)
		hb_log_warning("the log of an earlier daemon cannot be emptied: %s", strerror(errno));
	int fd = open_socket(&daemon->options, error);
	struct hb_server *made = fd < 0 ? NULL : calloc(1, sizeof *made);
	if (!made) {
		close(lock_fd);
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : hb_error_set(error, -ENOMEM, "out of memory");
	}
	made->daemon = daemon;
	made->fd = fd;
	made->lock_fd = lock_fd;
	made->bad_messages.period_ns = HB_NS_PER_S;
	uv_poll_init(&daemon->loop, &made->poll, fd);
	made->poll.data = made;
	uv_poll_start(&made->poll, UV_READABLE, accept_ready);
	*server = made;
	return 0;
}

static void server_closed(uv_handle_t *handle)
{
	struct hb_server *server = handle->data;
	free(server);
}

void hb_server_free(struct hb_server *server)
{
	if (!server)
		return;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i])
			drop(server->connections[i]);
	unlink(server->daemon->options.socket);
	uv_close((uv_handle_t *)&server->poll, server_closed);
	close(server->fd);
	close(server->lock_fd);
}

void hb_server_resume(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct connection *connection = server->connections[i];
		if (!connection || !connection->waits_for)
			continue;
		struct hb_tenancy *tenancy = hb_tenancy_numbered(server->daemon, connection->waits_for);
		connection->waits_for = 0;
		if (!tenancy || answer_registered(connection, tenancy, HB_PAGE_PROCESSES) < 0)
			drop(connection);
	}
}

static void end_look(struct connection *connection)
{
	connection->waits_for_look = false;
	if (answer_status(connection) < 0)
		drop(connection);
}

void hb_server_looked(struct hb_server *server)
{
	for (size_t i = 0; server && i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] && server->connections[i]->waits_for_look)
			end_look(server->connections[i]);
}

static void listen_again(struct hb_server *server)
{
	server->deaf = false;
	uv_poll_start(&server->poll, UV_READABLE, accept_ready);
}

void hb_server_tick(struct hb_server *server, int64_t now_ns)
{
	if (server->deaf)
		listen_again(server);
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct connection *connection = server->connections[i];
		if (connection && connection->waits_for_look && now_ns - connection->last_ns > LOOK_LIMIT_NS) {
			end_look(connection);
			continue;
		}
		if (connection && !connection->waits_for && now_ns - connection->last_ns > IDLE_LIMIT_NS)
			drop(connection);
	}
}
