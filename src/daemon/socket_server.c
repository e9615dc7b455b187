/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the daemon's socket; see socket_server.h. */
#include "daemon/socket_server.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/gpu_processes.h"
#include "daemon/recorder.h"
#include "daemon/registration.h"
#include "daemon/status_json.h"
#include "daemon/tenancy.h"
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
#define STATUS_LIMIT_NS (300 * HB_NS_PER_MS) /* the longest that a status request waits for the driver */
#define GROUP "hummingbird"

struct server_connection {
	struct hb_server *server;
	uv_poll_t poll;
	int fd;
	struct hb_peer peer;
	bool greeted;
	int64_t last_ns;
	uint32_t
		waits_for_mps; /* number of the tenant whose registration is answered when the MPS server runs; 0 = none */
	bool waits_for_status; /* its status request is answered when the driver has answered */
	char *text;            /* text being sent; NULL = none */
	size_t text_length, text_sent;
};

struct hb_server {
	struct hb_daemon *daemon;
	int fd, lock_fd;
	uv_poll_t poll;
	bool is_paused; /* no descriptor was left for new connections: listening resumes at the next tick */
	struct hb_log_limit bad_messages; /* a client that sends bad messages all the time must not fill the log */
	struct server_connection *connections[HB_CONNECTIONS_MAX];
	union hb_msg message; /* the one being read or written */
};

/* --- connections -------------------------------------------------------------------- */

static void free_connection(uv_handle_t *handle)
{
	free(handle->data);
}

static void drop_connection(struct server_connection *connection)
{
	struct hb_server *server = connection->server;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] == connection)
			server->connections[i] = NULL;
	free(connection->text);
	connection->text = NULL;
	uv_close((uv_handle_t *)&connection->poll, free_connection);
	close(connection->fd);
}

static int send_answer(struct server_connection *connection, const int *fds, size_t n_fds)
{
	return hb_wire_send(connection->fd, &connection->server->message, fds, n_fds);
}

static int send_done(struct server_connection *connection)
{
	hb_msg_init(&connection->server->message, HB_MSG_DONE);
	return send_answer(connection, NULL, 0);
}

static int send_error(struct server_connection *connection, int code, const char *text)
{
	union hb_msg *message = &connection->server->message;
	hb_msg_init(message, HB_MSG_ERROR);
	message->as_ERROR.code = code;
	hb_msg_add_text(message, text, strlen(text));
	return send_answer(connection, NULL, 0);
}

/* --- requests ------------------------------------------------------------------------- */

static int serve_hello(struct server_connection *connection)
{
	struct hb_server *server = connection->server;
	const struct hb_msg_hello hello = server->message.as_HELLO;
	char text[160];
	if (hello.version_min > HB_PROTOCOL_VERSION || hello.version_max < HB_PROTOCOL_VERSION) {
		snprintf(text, sizeof text,
			 "this daemon uses protocol version %d, the client %u to %u: update the older one",
			 HB_PROTOCOL_VERSION, hello.version_min, hello.version_max);
		return send_error(connection, -EPROTONOSUPPORT, text);
	}
	connection->greeted = true;
	HB_FAULT(daemon_greeted);
	hb_msg_init(&server->message, HB_MSG_WELCOME);
	server->message.as_WELCOME.version = HB_PROTOCOL_VERSION;
	server->message.as_WELCOME.daemon_pid = (uint32_t)getpid();
	server->message.as_WELCOME.page_version = HB_PAGE_VERSION;
	return send_answer(connection, NULL, 0);
}

static int send_registered(struct server_connection *connection, struct hb_tenancy *tenancy, uint32_t slot)
{
	union hb_msg *message = &connection->server->message;
	int fds[HB_MSG_FDS_MAX];
	char environment[1024];
	size_t n_fds = 1;
	fds[0] = tenancy->page_fd;
	for (uint32_t i = 0; i < tenancy->n_gpus; i++)
		fds[n_fds++] = tenancy->gpus[i]->page_fd;
	hb_msg_init(message, HB_MSG_REGISTERED);
	message->as_REGISTERED.tenant = tenancy->number;
	message->as_REGISTERED.slot = slot;
	message->as_REGISTERED.n_fds = (uint32_t)n_fds;
	if (slot < HB_PAGE_PROCESSES)
		message->as_REGISTERED.generation = tenancy->page->processes[slot].generation;
	else
		hb_msg_add_text(message, environment,
				hb_register_environment(tenancy, environment, sizeof environment));
	return send_answer(connection, fds, n_fds);
}

static int serve_register(struct server_connection *connection, const struct hb_wire_fds *fds)
{
	struct hb_server *server = connection->server;
	struct hb_grant grant;
	struct hb_error error = {""};
	size_t length;
	HB_FAULT(daemon_register_read);
	/* A copy: the registration may start the MPS server, and answers to other clients use the same buffer. */
	const struct hb_msg_register request = server->message.as_REGISTER;
	const char *command = hb_msg_text(&server->message, &length);
	struct hb_peer peer = connection->peer;
	int result = hb_peer_open(connection->fd, &peer);
	if (result < 0)
		hb_error_set(&error, result, "cannot watch process %d, which connected: %s", (int)peer.pid,
			     strerror(-result));
	else
		result = hb_register(server->daemon, &peer, &request, command, length, fds->n ? fds->fd[0] : -1, &grant,
				     &error);
	hb_peer_close(&peer);
	if (result < 0)
		return send_error(connection, result, error.text);
	HB_FAULT(daemon_registered);
	if (grant.wait) {
		connection->waits_for_mps = grant.tenancy->number;
		return 0;
	}
	result = send_registered(connection, grant.tenancy, grant.slot);
	HB_FAULT(daemon_answered);
	return result;
}

static int serve_bye(struct server_connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	struct hb_tenancy *tenancy = hb_tenancy_find(daemon, connection->server->message.as_BYE.token);
	if (!tenancy || hb_tenancy_leave(tenancy, connection->peer.pid) < 0)
		return send_error(connection, -ESRCH, "this process does not belong to the tenant with that token");
	hb_daemon_wake(daemon);
	return send_done(connection);
}

static bool may_change(const struct server_connection *connection, const struct hb_tenancy *tenancy)
{
	uid_t uid = connection->peer.uid;
	return uid == 0 || uid == geteuid() || uid == tenancy->peer.uid;
}

static int serve_set(struct server_connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	const struct hb_msg_set change = connection->server->message.as_SET;
	struct hb_tenancy *tenancy = hb_tenancy_numbered(daemon, change.tenant);
	struct hb_error error = {""};
	char reduced[160];
	if (!tenancy || hb_tenancy_is_server(tenancy)) {
		hb_error_set(&error, -ESRCH, "no tenant has the id %u", change.tenant);
		return send_error(connection, -ESRCH, error.text);
	}
	if (!may_change(connection, tenancy))
		return send_error(connection, -EPERM, "only the tenant's user and root may change it");
	struct hb_rights wanted = tenancy->rights;
	if (change.fields & HB_SET_PRIORITY)
		wanted.priority = (enum hb_page_priority)change.priority;
	if (change.fields & HB_SET_SLO)
		wanted.slo_ns = change.slo_ns;
	if (change.fields & HB_SET_MEMORY)
		wanted.memory_bytes = change.memory_bytes;
	/* The rules for the tenant's own user apply to everyone who changes it, except root. */
	struct hb_rights granted = hb_admit(&daemon->config, daemon->options.system_mode, &tenancy->peer, &wanted,
					    reduced);
	if (reduced[0] && connection->peer.uid != 0)
		return send_error(connection, -EPERM, reduced);
	int result = hb_tenancy_set(tenancy, &change, connection->peer.uid == 0 ? &wanted : &granted, &error);
	HB_FAULT(daemon_set);
	hb_daemon_wake(daemon);
	return result < 0 ? send_error(connection, result, error.text) : send_done(connection);
}

static void poll_connection(struct server_connection *connection);

/* Sends as much of the text as the socket accepts now, and the rest when it is writable again. */
static int send_text(struct server_connection *connection)
{
	union hb_msg *message = &connection->server->message;
	int result = 0;
	while (result == 0 && connection->text) {
		size_t left = connection->text_length - connection->text_sent;
		size_t part = left < HB_MSG_TEXT_MAX ? left : HB_MSG_TEXT_MAX;
		hb_msg_init(message, HB_MSG_TEXT);
		message->as_TEXT.more = part < left;
		hb_msg_add_text(message, connection->text + connection->text_sent, part);
		result = send_answer(connection, NULL, 0);
		if (result < 0)
			break;
		connection->text_sent += part;
		if (part == left) {
			free(connection->text);
			connection->text = NULL;
		}
	}
	poll_connection(connection);
	return result == -EAGAIN ? 0 : result;
}

static int send_status(struct server_connection *connection)
{
	connection->text = hb_status_text(connection->server->daemon, hb_clock_now_ns());
	if (!connection->text)
		return send_error(connection, -ENOMEM, "out of memory");
	HB_FAULT(daemon_status_made);
	connection->text_length = strlen(connection->text);
	connection->text_sent = 0;
	return send_text(connection);
}

static int serve_status(struct server_connection *connection)
{
	connection->waits_for_status = hb_gpu_processes_poll(connection->server->daemon->processes);
	return connection->waits_for_status ? 0 : send_status(connection);
}

static int stop_recording(struct server_connection *connection)
{
	int code;
	connection->text = hb_recorder_stop(connection->server->daemon, &code);
	if (!connection->text)
		return send_error(connection, code, code == -ENOENT ? "no recording is running" : "out of memory");
	connection->text_length = strlen(connection->text);
	connection->text_sent = 0;
	return send_text(connection);
}

/* A recording shows what all tenants do, so only root and the user of the daemon may record. */
static int serve_record(struct server_connection *connection)
{
	const struct hb_msg_record request = connection->server->message.as_RECORD;
	uid_t uid = connection->peer.uid;
	if (uid != 0 && uid != geteuid())
		return send_error(connection, -EPERM,
				  "only root and the daemon's own user may record: run the command as one of them");
	if (request.action == HB_RECORD_STOP)
		return stop_recording(connection);
	int result = hb_recorder_start(connection->server->daemon, (int64_t)request.seconds * HB_NS_PER_S);
	if (result < 0)
		return send_error(connection, result,
				  result == -EBUSY ? "another recording is running" : "out of memory");
	return send_done(connection);
}

static int serve_message(struct server_connection *connection, const struct hb_wire_fds *fds)
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

static void log_bad_message(struct server_connection *connection, const char *why)
{
	uint64_t unsaid;
	if (!hb_log_limit_pass(&connection->server->bad_messages, hb_clock_now_ns(), &unsaid))
		return;
	if (unsaid)
		hb_log_warning("%llu more bad messages were received since the last one in this log",
			       (unsigned long long)unsaid);
	hb_log_warning("process %d (user %s) sent a bad message: %s", (int)connection->peer.pid, connection->peer.user,
		       why);
}

static void read_request(struct server_connection *connection)
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
		result = serve_message(connection, &fds);
		hb_wire_close_fds(&fds);
	}
	if (result < 0)
		drop_connection(connection);
}

static void connection_ready(uv_poll_t *poll, int status, int events)
{
	struct server_connection *connection = poll->data;
	if (status < 0)
		drop_connection(connection);
	else if (
		connection->waits_for_mps ||
		connection
			->waits_for_status) /* the client closed the connection, or sent a message before it had the answer */
		drop_connection(connection);
	else if (connection->text) {
		if (send_text(connection) < 0)
			drop_connection(connection);
	} else
		read_request(connection);
}

static void poll_connection(struct server_connection *connection)
{
	uv_poll_start(&connection->poll, connection->text ? UV_WRITABLE : UV_READABLE, connection_ready);
}

/* --- listening ---------------------------------------------------------------------------- */

/* Returns a free place. If there is none, closes the connection that has been silent for longest. */
static struct server_connection **make_place(struct hb_server *server)
{
	struct server_connection **silent = NULL;
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct server_connection **place = &server->connections[i];
		if (!*place)
			return place;
		if (!(*place)->waits_for_mps && !(*place)->waits_for_status &&
		    (!silent || (*place)->last_ns < (*silent)->last_ns))
			silent = place;
	}
	if (silent)
		drop_connection(*silent);
	return silent;
}

static int begin_connection(struct hb_server *server, int fd, const struct hb_peer *peer)
{
	struct server_connection **place = make_place(server);
	struct server_connection *connection = place ? calloc(1, sizeof *connection) : NULL;
	if (!connection)
		return place ? -ENOMEM : -EUSERS;
	*connection = (struct server_connection){
		.server = server, .fd = fd, .peer = *peer, .last_ns = hb_clock_now_ns()};
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

/* The mode of the socket excludes the same users; this check also covers a descriptor that was passed on. */
static bool is_allowed(const struct hb_server *server, const struct hb_peer *peer)
{
	return server->daemon->options.system_mode || peer->uid == geteuid() || peer->uid == 0;
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
	if (hb_peer_read(fd, &peer) < 0 || !is_allowed(server, &peer) || begin_connection(server, fd, &peer) < 0)
		close(fd);
}

/* The daemon that holds the lock is the only one that uses the path of the socket. */
static int lock_socket(const char *socket_path, struct hb_error *error)
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
	return hb_error_set(error, result, "%s: %s", options->socket, strerror(-result));
}

int hb_server_new(struct hb_daemon *daemon, struct hb_server **server, struct hb_error *error)
{
	int lock_fd = lock_socket(daemon->options.socket, error);
	if (lock_fd < 0)
		return lock_fd;
	/* With the lock, the log in the folder belongs to a daemon that has ended. */
	if (daemon->options.has_log && ftruncate(STDERR_FILENO, 0) < 0)
		hb_log_warning("cannot empty the log of an earlier daemon: %s", strerror(errno));
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

static void free_server(uv_handle_t *handle)
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
			drop_connection(server->connections[i]);
	unlink(server->daemon->options.socket);
	uv_close((uv_handle_t *)&server->poll, free_server);
	close(server->fd);
	close(server->lock_fd);
}

void hb_server_answer_registrations(struct hb_server *server)
{
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct server_connection *connection = server->connections[i];
		if (!connection || !connection->waits_for_mps)
			continue;
		struct hb_tenancy *tenancy = hb_tenancy_numbered(server->daemon, connection->waits_for_mps);
		connection->waits_for_mps = 0;
		if (!tenancy || send_registered(connection, tenancy, HB_PAGE_PROCESSES) < 0)
			drop_connection(connection);
	}
}

static void answer_waiting_status(struct server_connection *connection)
{
	connection->waits_for_status = false;
	if (send_status(connection) < 0)
		drop_connection(connection);
}

void hb_server_answer_status(struct hb_server *server)
{
	for (size_t i = 0; server && i < HB_CONNECTIONS_MAX; i++)
		if (server->connections[i] && server->connections[i]->waits_for_status)
			answer_waiting_status(server->connections[i]);
}

static void resume_listening(struct hb_server *server)
{
	server->is_paused = false;
	uv_poll_start(&server->poll, UV_READABLE, accept_ready);
}

void hb_server_tick(struct hb_server *server, int64_t now_ns)
{
	if (server->is_paused)
		resume_listening(server);
	for (size_t i = 0; i < HB_CONNECTIONS_MAX; i++) {
		struct server_connection *connection = server->connections[i];
		if (connection && connection->waits_for_status && now_ns - connection->last_ns > STATUS_LIMIT_NS) {
			answer_waiting_status(connection);
			continue;
		}
		if (connection && !connection->waits_for_mps && now_ns - connection->last_ns > IDLE_LIMIT_NS)
			drop_connection(connection);
	}
}
